"""Every error that a caller can act on. What is refused is a value (`upstream.call.Refusal`) that `Refused` carries to the one place that answers."""

from __future__ import annotations


class GatewayError(Exception):
    """Base of all errors of this project."""


class ConfigurationError(GatewayError):
    """A configuration file can't be used. The text names file, line, path, what is wrong and the mend."""


class AddressUnavailable(ConfigurationError):
    """Nothing can listen there now: it is taken, or not this machine's. Later it may be otherwise."""


class LedgerUnavailable(GatewayError):
    """The ledger can't be written (locked, full disk, I/O error): nothing may be forwarded."""


class LedgerLocked(LedgerUnavailable):
    """Another process serves this ledger. The text says which."""


class LedgerCorrupt(GatewayError):
    """An entry does not fit its chain, or balances differ from postings. The text names the entry."""


class CommandRejected(GatewayError):
    """What the books were asked to write may not follow what stands there. The text says why."""


class NotFound(GatewayError):
    """No such campaign, run, key or call."""


class NotYet(NotFound):
    """The ledger has no entry of that number yet. The text names its last."""


class RecordProblem(GatewayError):
    """An agent's record can't be read as one. The text names the file, what was found and what is known."""


class ClockUncertain(GatewayError):
    """The system clock can't be trusted until a person accepts it."""


class EngineFailure(GatewayError):
    """The engine could not be used. `kind` is one of unreachable, closed, died, timeout; `phase` names the time-out."""

    def __init__(self, kind: str, phase: str = "", detail: str = "") -> None:
        super().__init__(detail or kind)
        self.kind = kind
        self.phase = phase


class ControlError(GatewayError):
    """The control plane answered with an error; the text is its message."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ZoneUnclear(GatewayError):
    """Days were asked for, but not in which time zone, or in one that does not exist. The text says which."""


class MixedLabels(GatewayError):
    """One total over several labels was asked for without saying so. The text names them."""
