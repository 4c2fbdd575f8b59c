"""What the doctor saw, as values: of an engine and of the machine. Those who ask make them, those who judge read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.accounting.usage import Reading
from gateway.doctor.networks import Network
from gateway.errors import EngineFailure
from gateway.upstream.at_work import Found
from gateway.upstream.probe import Probed

CAP: Final = 3
"""Tokens that the short call asks for."""
CounterKey = tuple[str, int | None]
"""Its word in the policy, and the declared overhead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """How the call of three tokens went."""

    status: int = 0
    reading: Reading | None = None
    pieces: int = 0
    """Events with content."""
    said: str = ""
    """The engine's own words, where it refused."""
    failure: EngineFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What the engine was seen to do, a while after a call was left. `found` is None where nothing could be tried, and `why` says why."""

    found: Found | None = None
    why: str = ""
    lags: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSeen:
    """What asking showed. Where `failure` is there, nothing else is."""

    failure: EngineFailure | None = None
    probed: Probed | None = None
    model: str = ""
    """The engine's own name of the model that was tried; empty: none could be."""
    short: Short | None = None
    left: Left | None = None
    counts: Mapping[CounterKey, int | str] = field(default_factory=dict)
    """Of each counter that a policy names: the count of the conversation of the short call, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One that must be written to."""

    path: Path
    exists: bool
    writable: bool
    """By this process's user; of one that is not there: the nearest that is."""
    open_to_others: bool = False
    """Others may rename what lies in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A gateway that answers on the control socket."""

    clock: Mapping[str, object] = field(default_factory=dict)
    process: int | None = None
    """By the ledger's lock file, where it is of this machine."""
    mute: str = ""
    """Somebody listens there, and why nothing was learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen:
    user: str
    ledger: Folder
    socket: Folder
    free_bytes: int | None
    files: int
    """As many as the gateway may open: the hard limit, or what a running one has."""
    files_of: str
    modes: Mapping[Path, int]
    """Of what only the gateway's user should read: its secrets, where they are there."""
    last_entry_ms: int | None
    """None: no ledger yet."""
    ledger_problem: str
    system_ms: int
    running: Running | None
    networks: tuple[Network, ...] = ()
