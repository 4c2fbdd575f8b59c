"""A gateway that breaks its promise, to show that the tests would see it: with GATEWAY_HASTY=Reserve (or Settle) it goes on before that entry is written.

Found by every Python process that has this folder on its path.
"""

from __future__ import annotations

import asyncio
import os

from gateway.accounting.commands import Command
from gateway.accounting.entries import Posting
from gateway.ledger.ledger import NOTHING_WRITTEN, Ledger

LATE_S = 0.2
_kind = os.environ.get("GATEWAY_HASTY", "")
_post = Ledger.post


def _hasty_post(self: Ledger, command: Command) -> asyncio.Future[Posting]:
    if type(command).__name__ != _kind:
        return _post(self, command)
    loop = asyncio.get_running_loop()
    loop.call_later(LATE_S, _post, self, command)
    done: asyncio.Future[Posting] = loop.create_future()
    done.set_result(NOTHING_WRITTEN)
    return done


if _kind:
    Ledger.post = _hasty_post  # type: ignore[method-assign]
