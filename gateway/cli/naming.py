"""Which run a person means: `CAMPAIGN/RUN`, or just `RUN` where only one campaign has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.cli.exits import Exit
from gateway.cli.problems import Problem
from gateway.client.control import ControlClient

NAMED_AT_MOST: Final = 3
"""How many candidates a message names."""


@dataclass(frozen=True, slots=True)
class RunName:
    campaign: str
    run: str

    def __str__(self) -> str:
        return f"{self.campaign}/{self.run}"


def split(name: str) -> RunName | None:
    """`CAMPAIGN/RUN` taken apart; None for a bare name."""
    campaign, slash, run = name.partition("/")
    if not slash:
        return None
    if not campaign or not run or "/" in run:
        raise Problem(f"{name!r} names no run", "a run is named CAMPAIGN/RUN, with one slash", "`gateway run list` shows the names", code="bad_name")
    return RunName(campaign, run)


def find_run(control: ControlClient, name: str) -> RunName:
    """Asks the gateway only for a bare name."""
    return split(name) or only(candidates(control, name), name)


def candidates(control: ControlClient, run: str) -> list[RunName]:
    campaigns = [str(row["campaign"]) for row in control.campaigns()]
    return [RunName(campaign, run) for campaign in campaigns for row in control.runs(campaign) if row["run"] == run]


def only(found: list[RunName], name: str) -> RunName:
    if not found:
        raise Problem(
            f"there is no run {name!r}", "no campaign has a run of that name", "`gateway run list` shows the names", exit_code=Exit.REFUSED, code="not_found"
        )
    if len(found) > 1:
        shown = ", ".join(str(one) for one in found[:NAMED_AT_MOST]) + (", …" if len(found) > NAMED_AT_MOST else "")
        raise Problem(f"{name!r} names {len(found)} runs", shown, "write CAMPAIGN/RUN", code="ambiguous")
    return found[0]
