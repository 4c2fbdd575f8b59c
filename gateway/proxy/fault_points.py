"""A test aid: ends the own process, as `kill -9` would, at a named place of a call's way. Off unless GATEWAY_FAULT_POINT names one.

`GATEWAY_FAULT_POINT=NAME:N` ends it at the N-th passing of NAME. The places, in the order in which a call passes them:

* `reserved`: its reservation is durable, nothing was sent
* `sent`: the engine has the whole request
* `mid_stream`: a part of the answer went to the agent
* `terminal_held`: the answer's end was read and is held back, nothing is settled
* `settled`: the settlement is durable, the end is not yet written

The rule: what is off costs one comparison, and nothing here ever decides anything about a call.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from itertools import count

from gateway.errors import ConfigurationError

VARIABLE = "GATEWAY_FAULT_POINT"
POINTS = ("reserved", "sent", "mid_stream", "terminal_held", "settled")


def parse(value: str) -> tuple[str, int]:
    """Raises ConfigurationError: a test that misspells a point must not pass."""
    name, _, number = value.partition(":")
    if name not in POINTS or not number.isdecimal() or int(number) == 0:
        raise ConfigurationError(f"{VARIABLE}={value}: it is NAME:N, N from 1 up, NAME one of {', '.join(POINTS)}")
    return name, int(number)


_NAME, _NUMBER = parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else ("", 0)
ARMED = bool(_NAME)
"""For places that are passed with every event: asked there, it saves the call."""
_passed = count(1)


def reach(name: str) -> None:
    if name == _NAME and next(_passed) == _NUMBER:
        os.kill(os.getpid(), signal.SIGKILL)


def reach_once_written(name: str) -> Callable[[], object] | None:
    """For a place behind a write: called when the loop was given the bytes, it reaches the place once they are with the kernel. None while it is off."""
    if name != _NAME:
        return None
    return lambda: asyncio.get_running_loop().call_soon(reach, name)
