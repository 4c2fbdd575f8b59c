"""What an engine answered to a helper request, parsed. A list of millions of token ids is held as numbers of four bytes, and read in slices.

As a list of objects ten million ids would take 400 MB and, in one go, keep the event loop waiting for 200 ms though parsed in another thread.
"""

from __future__ import annotations

from array import array
from typing import Final

import orjson

TOKENS_HEAD: Final = b'{"tokens":['
TOKENS_END: Final = b"]}"
SLICE_BYTES: Final = 256 * 1024


def parsed(data: bytes) -> object:
    """None where it is no JSON."""
    if len(data) > SLICE_BYTES and data.startswith(TOKENS_HEAD) and data.endswith(TOKENS_END):
        try:
            return {"tokens": _token_ids(data)}
        except (TypeError, OverflowError, orjson.JSONDecodeError):
            pass  # something else than a flat list of ids
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value


def _token_ids(data: bytes) -> array[int]:
    ids = array("I")
    start, end = len(TOKENS_HEAD), len(data) - len(TOKENS_END)
    while start < end:
        stop = end if end - start <= SLICE_BYTES else data.rindex(b",", start, start + SLICE_BYTES)
        ids.extend(orjson.loads(b"[" + data[start:stop] + b"]"))
        start = stop + 1
    return ids
