"""What a command's exit code says. One code, one thing that a script can act on."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    OK = 0
    NOT_SO = 1
    USAGE = 2
    CONFLICT = 3
    UNREACHABLE = 4
    REFUSED = 5
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "done",
    Exit.NOT_SO: "what was asked is not so: an entry does not fit, the ledger's clock is uncertain, a preflight differs, a probed health path is none, "
    "`reconcile` found what nothing explains, `doctor` found a fault, `selftest` reached more than the gateway",
    Exit.USAGE: "a wrong command line, or a configuration, policy or ledger file that can't be used",
    Exit.CONFLICT: "the run is closed, but a declared result contradicts what the gateway saw; the receipt lists each conflict",
    Exit.UNREACHABLE: "the gateway could not be reached over its control socket, or did not answer in time; a probed engine did not answer",
    Exit.REFUSED: "it answered and refused: no such campaign, run or key, already open with other arguments, ledger not writable; "
    "a ledger that is served or an address that is taken; a probed engine let nobody in",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.PIPE_CLOSED: "the reader of the output went away",
}


def epilog() -> str:
    """The table of exit codes as `gateway --help` shows it."""
    lines = "\n".join(f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items())
    return f"\b\nExit codes:\n{lines}"
