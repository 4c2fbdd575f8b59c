"""What a handler can reach: built once, by app.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from gateway.control.shelf import PolicyShelf
from gateway.errors import NotFound
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.runs.runs import Runs

View = Mapping[str, object]
"""What is shown of something, as JSON."""


def _no_upstream(name: str, _drained: bool) -> None:
    raise NotFound(f"there is no upstream {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlServices:
    runs: Runs
    ledger: Ledger
    reader: Callable[[], LedgerReader]
    """A reading side of its own for each request: it is used on another thread."""
    shelf: PolicyShelf
    """The policies that a campaign can be opened with."""
    gate_view: Callable[[], View]
    """Who waits."""
    upstream_view: Callable[[], Sequence[View]]
    """Each upstream, how it stands and why."""
    drain: Callable[[str, bool], None] = _no_upstream
    """Whether a person wants no calls at an upstream. Raises NotFound."""
    not_ready: Callable[[], Sequence[str]]
    """Why no call could be admitted now; empty where one could."""
    render_metrics: Callable[[], bytes]
    reconciled: Callable[[str, str, Mapping[str, int], int], None] = lambda campaign, run, classes, unexplained: None
    """Told of each reconciliation that was put on record."""
    data_address: Callable[[], str] = lambda: ""
    """Where agents come in, `http://HOST:PORT`, with the port that it got; empty while that is not known."""
    close_s: int = 60
    """How long closing a campaign waits for its runs where the driver names nothing else."""


SERVICES = web.AppKey("services", ControlServices)
