"""One finding of the doctor: what was looked at, how it is, and what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works, and somebody should know."""
    FAIL = "fail"
    """It does not do what the configuration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    check: str
    """`reachability`, `disk`: the same word in every release."""
    about: str
    """The upstream's name, `machine` or `listeners`."""
    status: Status
    text: str
    mend: str = ""
    """Empty where all is well."""


def ok(check: str, about: str, text: str) -> Line:
    return Line(check=check, about=about, status=Status.OK, text=text)


def warn(check: str, about: str, text: str, mend: str) -> Line:
    return Line(check=check, about=about, status=Status.WARN, text=text, mend=mend)


def fail(check: str, about: str, text: str, mend: str) -> Line:
    return Line(check=check, about=about, status=Status.FAIL, text=text, mend=mend)
