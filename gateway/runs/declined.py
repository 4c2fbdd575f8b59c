"""Why a request about campaigns, runs or keys was not carried out: problem, cause and mend, and a code that a program can act on."""

from __future__ import annotations

from gateway.accounting.limit import Shortfall
from gateway.errors import GatewayError


class Declined(GatewayError):
    """Nothing was changed. Codes: `not_found`, `invalid`, `conflict`, `run_budget_reached`, `window_over`."""

    def __init__(self, problem: str, cause: str, mend: str, *, code: str = "conflict", shortfall: Shortfall | None = None) -> None:
        super().__init__(f"{problem} {cause} {mend}")
        self.problem = problem
        self.cause = cause
        self.mend = mend
        self.code = code
        self.shortfall = shortfall
        """The limit that stood in the way, where it was one."""
