"""The limits that a file may set, table by table: of one call, of a run, of a campaign, of the gateway.

The rule: what is added up stands in every scope, for a lane, a model and both; what is a deadline or a count of runs stands only where it has a meaning.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.policy.declared import Declared, flatten
from gateway.policy.table import Table

LARGEST: Final = 2**53 - 1
"""Largest whole number that canonical JSON carries exactly."""
LONGEST_S: Final = 10 * 366 * 86_400

Amount = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]
Positive = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]
Span = Annotated[int, Field(strict=True, ge=1, le=LONGEST_S)]


class DayLimits(Table):
    """Budgets that renew at local midnight."""

    requests: Amount | None = Field(default=None, description="calls sent to an engine, a day")
    input_tokens: Amount | None = Field(default=None, description="prompt tokens a day, cached ones included")
    output_tokens: Amount | None = Field(default=None, description="generated tokens a day, reasoning included")
    total_tokens: Amount | None = Field(default=None, description="input and output tokens a day")
    tool_calls: Amount | None = Field(default=None, description="tool calls in answers, a day")
    timezone: str | None = Field(default=None, description="IANA zone of this day, where it is not the file's")


class CampaignDayLimits(DayLimits):
    runs: Amount | None = Field(default=None, description="runs opened a day")


class ModelLimits(Table):
    """Limits of one model within what stands above it."""

    requests: Amount | None = Field(default=None, description="calls sent to an engine")
    input_tokens: Amount | None = Field(default=None, description="prompt tokens, cached ones included")
    output_tokens: Amount | None = Field(default=None, description="generated tokens, reasoning included, over all choices")
    total_tokens: Amount | None = Field(default=None, description="input and output tokens together")
    tool_calls: Amount | None = Field(default=None, description="tool calls in answers; the answer that crosses is delivered, the next call is refused")
    concurrent: Amount | None = Field(default=None, description="calls between admission and settlement at one moment")
    day: DayLimits = Field(default=DayLimits(), description="the same quantities (but concurrent) a calendar day")


class LaneLimits(ModelLimits):
    model: dict[str, ModelLimits] = Field(default={}, description="the same limits for one model by name")


class ScopeLimits(LaneLimits):
    """What every scope has; a table under a lane's name holds the lane's."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, LaneLimits] = Field(init=False)
    lane_table: ClassVar[type[BaseModel] | None] = LaneLimits


class RunLaneLimits(LaneLimits):
    wall_seconds: Span | None = Field(default=None, description="how long the lane may go on; the clock of a lane begins as wall_from says")


class RunLimits(ScopeLimits):
    """Limits of each run."""

    __pydantic_extra__: dict[str, RunLaneLimits] = Field(init=False)  # type: ignore[assignment]
    lane_table: ClassVar[type[BaseModel] | None] = RunLaneLimits
    wall_seconds: Span | None = Field(default=None, description="how long a run may go on; a call that runs then is cut")
    wall_from: Literal["first_call", "opening"] = Field(default="first_call", description="from when wall_seconds count")
    attempts_per_task: Positive | None = Field(default=None, description="runs of a campaign that may name the same task")
    require_room: Literal["refuse", "warn", "off"] = Field(
        default="refuse", description="a run is not opened where campaign, day or gateway have less left than the run's own caps"
    )


class CampaignLimits(ScopeLimits):
    """Limits of all runs of a campaign together."""

    runs: Amount | None = Field(default=None, description="runs opened, also those that never call")
    span_seconds: Span | None = Field(default=None, description="from the campaign's opening; then no call and no run is admitted, what runs goes on")
    day: CampaignDayLimits = Field(default=CampaignDayLimits(), description="the same quantities (but concurrent) a calendar day")


class CallModelLimits(Table):
    prompt_tokens: Positive | None = Field(default=None, description="largest prompt of one call")
    output_tokens: Positive | None = Field(
        default=None, description="largest output of one call, over all its choices; also the output of a call that names none"
    )
    context_tokens: Positive | None = Field(default=None, description="largest prompt and output of one call together")


class CallLaneLimits(CallModelLimits):
    model: dict[str, CallModelLimits] = Field(default={}, description="the same caps for one model by name")


class CallLimits(CallLaneLimits):
    """Caps of each single call; a table under a lane's name holds the lane's."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, CallLaneLimits] = Field(init=False)
    lane_table: ClassVar[type[BaseModel] | None] = CallLaneLimits


class GatewayLimits(ScopeLimits):
    """Limits over everything that passes this gateway: `[limits]` of gateway.toml."""

    timezone: str | None = Field(default=None, description="IANA zone of the days in [limits]")

    @cached_property
    def declared(self) -> tuple[Declared, ...]:
        tree = self.model_dump(exclude_none=True, exclude={"timezone"})
        return flatten({"gateway": tree}, self.timezone or "")
