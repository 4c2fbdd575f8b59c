"""What should happen and what a run was made of: the planned runs of a campaign, and the pins of a run, as they stand in openings.

What is planned and does not happen is missing: never a failure, never a zero.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.ids import NAME
from gateway.runs.declined import Declined

PLAN_MAX: Final = 10_000
"""Planned runs of a campaign: they stand in one entry."""
PINS_MAX: Final = 100
TEXT_MAX: Final = 200
"""Characters of a task, a label or an idempotency key."""
PIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@:+-]{0,199}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    run: str
    task: str = ""
    label: str = ""
    repeat: int = 0
    """Which attempt at its task; 0: not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What made a run what it was, beside its task and label."""

    repeat: int = 0
    pins: Mapping[str, str]
    """Name to `sha256:…` of what it names: a task's file, an image, an agent's build."""

    def details(self) -> dict[str, object]:
        """For its opening: pairs, since a name may hold what a key may not."""
        said: dict[str, object] = {"repeat": self.repeat, "pins": [[name, digest] for name, digest in sorted(self.pins.items())]}
        return {name: value for name, value in said.items() if value}


UNPINNED: Final = Made(pins={})


def plan_details(plan: Sequence[PlannedRun]) -> dict[str, object]:
    """For a campaign's opening. Raises Declined."""
    if len(plan) > PLAN_MAX:
        raise Declined("This plan can't be put on record.", f"It has {len(plan)} runs; a campaign takes {PLAN_MAX}.", "Plan several campaigns.", code="invalid")
    seen: set[str] = set()
    for planned in plan:
        if not NAME.fullmatch(planned.run) or planned.run in seen:
            cause = "It is planned twice." if planned.run in seen else "Names are 1 to 64 of a-z 0-9 . _ - and begin with a letter or digit."
            raise Declined(f"{planned.run!r} can't be planned.", cause, "Name each planned run once.", code="invalid")
        seen.add(planned.run)
        for what, text in (("task", planned.task), ("label", planned.label)):
            check_text(f"{what} of {planned.run}", text)
    return {"plan": [[planned.run, planned.task, planned.label, planned.repeat] for planned in plan]} if plan else {}


def check_made(made: Made) -> None:
    """Raises Declined."""
    if len(made.pins) > PINS_MAX:
        raise Declined("These pins can't be put on record.", f"There are {len(made.pins)}; a run takes {PINS_MAX}.", "Pin fewer.", code="invalid")
    for name, digest in made.pins.items():
        if not PIN_NAME.fullmatch(name) or not DIGEST.fullmatch(digest):
            raise Declined(
                f"Pin {name!r} can't be put on record.",
                "A pin is a name of letters, digits and . _ / @ : + - and the SHA-256 of what it names.",
                f"Write {name or 'image'}=sha256: and 64 hex digits, or give `gateway run open --pin` the file itself.",
                code="invalid",
            )


def check_text(what: str, text: str) -> None:
    """Raises Declined. Two texts that look alike must be the same: reports sum by them, and attempts at a task are counted."""
    if len(text) > TEXT_MAX:
        cause, mend = f"It is longer than {TEXT_MAX} characters.", "Use a shorter one."
    elif not text.isprintable():
        cause, mend = "It holds a character that can't be seen.", "Leave out line ends, tabs and control characters."
    elif text != text.strip():
        cause, mend = "It begins or ends with a blank.", "Leave the blank out."
    elif not unicodedata.is_normalized("NFC", text):
        cause, mend = "Its accents are characters of their own: two that look alike would be two.", "Write it in Unicode's composed form (NFC)."
    else:
        return
    raise Declined(f"This {what} can't be put on record.", cause, mend, code="invalid")
