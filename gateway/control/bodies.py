"""What a request may say: nothing undeclared, nothing coerced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from gateway.accounting.commands import Results
from gateway.control.problems import Problem
from gateway.runs.plan import PINS_MAX, PLAN_MAX, PlannedRun

_Body = TypeVar("_Body", bound=BaseModel)

Text = Annotated[str, Field(max_length=200)]
Tokens = Annotated[int, Field(ge=0, le=2**53 - 1)]
Repeat = Annotated[int, Field(ge=0, le=1_000_000)]
Seconds = Annotated[int, Field(ge=0, le=86_400)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PlannedRunBody(Body):
    run: Text
    task: Text = ""
    label: Text = ""
    repeat: Repeat = 0


class OpenCampaignBody(Body):
    campaign: Text
    policy: Text
    """Name of a file in the policies folder, without its ending."""
    planned: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    plan: list[PlannedRunBody] = Field(default=[], max_length=PLAN_MAX)
    """The runs that should happen; `planned` is then their number."""

    def planned_runs(self) -> list[PlannedRun]:
        return [PlannedRun(run=row.run, task=row.task, label=row.label, repeat=row.repeat) for row in self.plan]


class ReasonBody(Body):
    reason: Text = ""


class CloseCampaignBody(Body):
    close_seconds: Seconds | None = None
    drain_seconds: Seconds = 0


class OpenRunBody(Body):
    run: Text = ""
    task: Text = ""
    label: Text = ""
    lanes: list[Text] = Field(default=[], max_length=64)
    idempotency_key: Text = ""
    repeat: Repeat = 0
    """Which attempt at its task."""
    pins: dict[Text, Text] = Field(default={}, max_length=PINS_MAX)
    """Name to `sha256:…` of what made the run what it is."""


class ResultsBody(Body):
    """What is missing is unknown."""

    exit: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    turn_end: Literal["completed", "aborted", "failed", "token_limit", "time_limit", "budget", "blocked"] | None = None
    judge: Literal["pass", "fail", "error"] | None = None
    outcomes: dict[Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$")], Text] = Field(default={}, max_length=100)

    def results(self) -> Results | None:
        """None where nothing is declared."""
        declared = Results(exit=self.exit, turn_end=self.turn_end or "", judge=self.judge or "", outcomes=tuple(sorted(self.outcomes.items())))
        return None if declared == Results() else declared


class CloseRunBody(Body):
    results: ResultsBody = Field(default_factory=lambda: ResultsBody())
    drain_seconds: Seconds = 0
    reason: Text = ""
    """Needed where other results stand already: then these correct them."""


class PreflightBody(Body):
    lane: Text = ""
    expect: dict[Text, int | Text] = Field(min_length=1, max_length=200)
    """A limit's name, or an ending of it that fits exactly one, and its value; `policy`, `limits`: the hashes."""


class CorrectCallBody(Body):
    """What is not given stays as it stands."""

    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    tool_calls: Tokens | None = None
    why: Annotated[str, Field(min_length=1, max_length=200)]
    evidence: Annotated[str, Field(min_length=1, max_length=200)]

    def given(self) -> dict[str, int]:
        return self.model_dump(exclude={"why", "evidence"}, exclude_none=True)


class IssueKeyBody(Body):
    campaign: Text
    run: Text
    lane: Text


def check_query(request: web.Request, declared: Sequence[str]) -> None:
    """Raises Problem: a filter that is misspelt, or said twice, would be a sum of what nobody asked for."""
    for name in request.query:
        if name not in declared:
            takes = f"It takes: {', '.join(declared)}." if declared else "It takes none."
            raise Problem(400, "invalid", f"There is no parameter {name!r} here.", takes, "Ask with these, or leave it out.")
        if len(request.query.getall(name)) > 1:
            raise Problem(400, "invalid", f"The parameter {name!r} stands twice.", "Which of the two is meant is not to be known.", "Say it once.")


async def read(request: web.Request, kind: type[_Body]) -> _Body:
    """An empty body says nothing. Raises pydantic's ValidationError."""
    return kind.model_validate_json(await request.read() or b"{}")
