"""A gateway that is not as it should be, for showing that tests would see it, or that it copes. Found by every Python process that has this folder on its path.

* GATEWAY_HASTY=Reserve (or Settle): it goes on before that entry is written.
* GATEWAY_LATE=Reserve: it hears late (GATEWAY_LATE_S, half a second) that the entry is written.
* GATEWAY_BROKEN=settle_terms: that part of a settlement raises.
"""

from __future__ import annotations

import asyncio
import os

from gateway.accounting.commands import Command
from gateway.accounting.entries import Posting
from gateway.ledger.ledger import NOTHING_WRITTEN, Ledger

LATE_S = float(os.environ.get("GATEWAY_LATE_S", "0.5"))
_hasty, _late, _broken = (os.environ.get(f"GATEWAY_{name}", "") for name in ("HASTY", "LATE", "BROKEN"))
_post = Ledger.post


def _post_otherwise(self: Ledger, command: Command) -> asyncio.Future[Posting]:
    kind, loop = type(command).__name__, asyncio.get_running_loop()
    if kind == _hasty:
        loop.call_later(LATE_S, _post, self, command)
        done: asyncio.Future[Posting] = loop.create_future()
        done.set_result(NOTHING_WRITTEN)
        return done
    if kind == _late:
        return loop.create_task(_heard_late(_post(self, command)))
    return _post(self, command)


async def _heard_late(posted: asyncio.Future[Posting]) -> Posting:
    posting = await posted
    await asyncio.sleep(LATE_S)
    return posting


def _raise(*_: object, **__: object) -> None:
    raise ArithmeticError("broken on purpose")


if _hasty or _late:
    Ledger.post = _post_otherwise  # type: ignore[method-assign]
if _broken:
    from gateway.proxy import settlement

    setattr(settlement, _broken, _raise)
