"""What a policy file may say, and nothing else.

The rule: every key has a default or is required, every whole number has its unit in its name, and what is not declared here is an error.
The description of a field is its documentation: a test holds the examples and the reference against these models.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from gateway.dialects import ALSO, FAMILIES
from gateway.policy.body_rules import BodyRules
from gateway.policy.declared import Declared, flatten
from gateway.policy.guard_rules import GuardRules
from gateway.policy.limit_tables import Amount, CallLimits, CampaignLimits, GatewayLimits, Positive, RunLimits
from gateway.policy.table import Table

__all__ = [
    "APIS",
    "COUNTERS",
    "DEFAULT_LANE",
    "SCHEMA",
    "Admission",
    "Agent",
    "Amount",
    "BodyRules",
    "Charging",
    "GatewayLimits",
    "GuardRules",
    "IdentityRules",
    "LanePolicy",
    "ModelPolicy",
    "Policy",
    "Positive",
    "Table",
]

SCHEMA: Final = 1
DEFAULT_LANE: Final = "foreground"
APIS: Final = tuple(sorted({*FAMILIES.values(), *ALSO.values()}))
PromptCounter = Literal["engine", "tiktoken:o200k_base", "tiktoken:cl100k_base", "tiktoken:qwen", "tiktoken:qwen3_6", "bytes"]
COUNTERS: Final[tuple[str, ...]] = get_args(PromptCounter)


def _price(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        raise ValueError(f'"{value}" is no price; write digits, and at most nine behind a point: "0.25"')
    return value


def _currency(value: str) -> str:
    if not re.fullmatch(r"[A-Z]{3}", value):
        raise ValueError(f'"{value}" is no currency; write its three capitals: "EUR"')
    return value


Price = Annotated[str, AfterValidator(_price)]
"""A text, since a number with a point would not be what was written."""


class ModelPolicy(Table):
    """A model that agents may ask for."""

    counter: PromptCounter = Field(
        default="engine", description="what counts a prompt: the engine's own tokenizer (exact), a shipped encoding (an estimate), or bytes (only a bound)"
    )
    context_tokens: Positive | None = Field(default=None, description="largest prompt and output together, where it is smaller than the engine's own")
    default_output_tokens: Positive | None = Field(default=None, description="output ceiling a choice of a call that names none")
    overhead_tokens: Amount | None = Field(default=None, description="tokens the template adds to any prompt, where the engine can't be asked to render one")
    image_tokens_max: Positive | None = Field(default=None, description="most prompt tokens that one picture can become")
    price_currency: Annotated[str, AfterValidator(_currency)] | None = Field(
        default=None, description="currency of its price, for reports only: no limit depends on it"
    )
    price_input: Price | None = Field(default=None, description="price of a million input tokens, as a text of digits")
    price_output: Price | None = Field(default=None, description="price of a million output tokens, as a text of digits")

    @model_validator(mode="after")
    def _a_whole_price(self) -> Self:
        given = [name for name in ("price_currency", "price_input", "price_output") if getattr(self, name) is not None]
        if given and len(given) < 3:
            raise ValueError("a price is price_currency, price_input and price_output together; without all three the model is unpriced")
        return self


class LanePolicy(Table):
    """A class of traffic with keys of its own."""

    models: tuple[str, ...] = Field(default=(), description="models that this lane may use; none named: all")

    @field_validator("models")
    @classmethod
    def _a_set(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))


class Admission(Table):
    """How calls wait for room, and what is sent when there is less than they want."""

    over: Literal["clamp", "refuse"] = Field(default="clamp", description="less room than wanted: send with a smaller ceiling, or refuse")
    min_output_tokens: Positive = Field(default=1024, description="smallest output a choice that is worth sending when clamped")
    enough_output_tokens: Positive = Field(default=4096, description="output a choice with which a clamped call is sent while others still hold room")
    clamp_after_seconds: Annotated[int, Field(strict=True, ge=0, le=120)] = Field(
        default=10, description="how long a call waits for all it wants before it takes enough"
    )
    queue_seconds: Annotated[int, Field(strict=True, ge=0, le=120)] = Field(default=120, description="longest wait; then a passing refusal")
    over_prompt: Literal["stop", "overflow"] = Field(
        default="stop", description="a prompt above its cap: final refusal, or the overflow error on which agents compact"
    )


class Charging(Table):
    """What a call counts against its limits where its usage is not known."""

    cut_streams: Literal["known", "reserved"] = Field(default="known", description="the client left a stream: charge what is known, or the whole reservation")
    engine_errors: Literal["prompt", "reserved", "nothing"] = Field(default="prompt", description="the engine failed before its first content: what is charged")


class Agent(Table):
    """What agents are told."""

    tell_agent: bool = Field(default=True, strict=True, description="agents may see their limits in headers and at /gateway/v1/budget")
    refusal_status: dict[str, Annotated[int, Field(strict=True, ge=400, le=499)]] = Field(
        default={}, description="HTTP status of a final refusal by API, where the API's own does not stop your agent"
    )
    warn_at: Annotated[float, Field(strict=True, ge=0, le=1)] = Field(
        default=0.9, description="part of a limit that is spent when the agent is warned, once; 0: never"
    )
    require_preflight: bool = Field(default=False, strict=True, description="the first call is refused until a preflight has said what is expected")
    utility_calls: Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)] = Field(
        default=10_000, description="requests of one run that do no model work (tokenize, detokenize, count_tokens); 0: none"
    )


class IdentityRules(Table):
    """What becomes of an upstream that names another model than gateway.toml says it has."""

    mismatch: Literal["mark", "refuse"] = Field(
        default="mark", description="the model an upstream names is not the declared one: mark the calls, or don't use it for that model"
    )


class Policy(Table):
    """One policy file."""

    schema_number: Annotated[int, Field(strict=True)] = Field(default=SCHEMA, alias="schema", description="version of this format")
    apis: tuple[str, ...] = Field(min_length=1, description="APIs that agents may call; all else is 404")
    timezone: str | None = Field(default=None, description="IANA zone of every day window, e.g. Europe/Berlin; needed by the first one")
    models: dict[str, ModelPolicy] = Field(min_length=1, description="models that agents may ask for, by the name that they use")
    lanes: dict[str, LanePolicy] = Field(default={}, description="named classes of traffic; none declared: one lane, foreground")
    admission: Admission = Field(default=Admission(), description="how calls wait")
    charging: Charging = Field(default=Charging(), description="charges where usage is unknown")
    agent: Agent = Field(default=Agent(), description="what agents are told")
    cache_sharing: Literal["campaign", "run", "all"] = Field(
        default="campaign", description="who may share an engine's prompt cache, where the engine can keep callers apart: runs of one campaign, nobody, or all"
    )
    identity: IdentityRules = Field(default=IdentityRules(), description="models that are not what they should be")
    capture: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="keep bodies of requests and answers beside the ledger; without it only their digests stand anywhere"
    )
    guard: GuardRules = Field(default=GuardRules(), description="what the guard lets through or drops, of all that it refuses")
    body: BodyRules = Field(default=BodyRules(), description="fields of requests that the policy sets, proposes or refuses")
    call: CallLimits = Field(default=CallLimits(), description="caps of each single call")
    run: RunLimits = Field(default=RunLimits(), description="limits of each run")
    campaign: CampaignLimits = Field(default=CampaignLimits(), description="limits of the campaign: all its runs together")

    @field_validator("apis")
    @classmethod
    def _a_set(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))

    @property
    def lane_names(self) -> tuple[str, ...]:
        return tuple(self.lanes) or (DEFAULT_LANE,)

    def models_of(self, lane: str) -> tuple[str, ...]:
        """Models that a lane may use."""
        declared = self.lanes.get(lane)
        return declared.models if declared is not None and declared.models else tuple(self.models)

    @cached_property
    def declared(self) -> tuple[Declared, ...]:
        """Every limit of the file, flat."""
        tree = self.model_dump(include={"call", "run", "campaign"}, exclude_none=True)
        return flatten(tree, self.timezone or "")
