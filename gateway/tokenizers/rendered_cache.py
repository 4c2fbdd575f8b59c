"""What was counted before of a conversation that grows: rendered texts and, at each special token in them, how many tokens stand before it.

A text may be cut before a special token without changing what either side tokenises to: tokenizers split there first. So of a new text the longest prefix
shared with an earlier one, up to the last special token that lies whole inside it, needs no counting. By rendered text, never by message: templates render the
past anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RENDERED_CACHE_BYTES: Final = 64 * 1024 * 1024
"""About a hundred long conversations. The oldest run goes first."""
TEXTS_PER_RUN: Final = 4
"""An agent and its helpers speak in turns under one key."""
_STRIDE: Final = 65_536


@dataclass(frozen=True, slots=True)
class Mark:
    """One special token of a rendered text."""

    offset: int
    """Of its first byte."""
    end: int
    tokens_before: int


@dataclass(slots=True)
class _Entry:
    text: bytes
    offsets: array[int]
    ends: array[int]
    tokens_before: array[int]

    @property
    def size(self) -> int:
        return len(self.text) + 24 * len(self.offsets) + 200

    def cut(self, common: int) -> Mark | None:
        """The last special token that lies whole in the first `common` bytes."""
        at = bisect_right(self.ends, common) - 1
        return Mark(self.offsets[at], self.ends[at], self.tokens_before[at]) if at >= 0 else None


def common_prefix(first: bytes, second: bytes) -> int:
    """Length of the longest common prefix, in large strides and then by halves."""
    length = min(len(first), len(second))
    low = 0
    while low < length and first[low : low + _STRIDE] == second[low : low + _STRIDE]:
        low += _STRIDE
    if low >= length:
        return length
    high = min(low + _STRIDE, length)
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class RenderedCache:
    """Bounded in bytes; the run that was counted longest ago goes first."""

    def __init__(self, max_bytes: int = RENDERED_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._runs: OrderedDict[str, list[_Entry]] = OrderedDict()
        self.bytes_held = 0

    def find(self, run_key: str, text: bytes) -> Mark | None:
        """Where `text` may be cut: everything before the mark is known."""
        best: Mark | None = None
        for entry in self._runs.get(run_key, ()):
            mark = entry.cut(common_prefix(entry.text, text))
            if mark is not None and (best is None or mark.offset > best.offset):
                best = mark
        return best

    def put(self, run_key: str, text: bytes, marks: Sequence[Mark]) -> None:
        """Takes the place of the text that it continues, if there is one."""
        entry = _Entry(text, array("Q", (m.offset for m in marks)), array("Q", (m.end for m in marks)), array("Q", (m.tokens_before for m in marks)))
        if not marks or entry.size > self._max_bytes:
            return
        texts = self._runs.setdefault(run_key, [])
        self._runs.move_to_end(run_key)
        for old in [old for old in texts if self._continues(old, text)] or texts[: max(0, len(texts) - TEXTS_PER_RUN + 1)]:
            texts.remove(old)
            self.bytes_held -= old.size
        texts.append(entry)
        self.bytes_held += entry.size
        while self.bytes_held > self._max_bytes:
            _, dropped = self._runs.popitem(last=False)
            self.bytes_held -= sum(old.size for old in dropped)

    def marks_before(self, run_key: str, text: bytes, cut: Mark) -> list[Mark]:
        """The marks of the known part, so that the whole can be put back."""
        for entry in self._runs.get(run_key, ()):
            if entry.text[: cut.end] == text[: cut.end]:
                count = bisect_right(entry.offsets, cut.offset - 1)
                return [Mark(*one) for one in zip(entry.offsets[:count], entry.ends[:count], entry.tokens_before[:count], strict=True)]
        return []

    @staticmethod
    def _continues(old: _Entry, text: bytes) -> bool:
        """All of the old text but its last opened turn stands in the new one."""
        mark = old.cut(common_prefix(old.text, text))
        return mark is not None and len(old.offsets) > 0 and mark.offset >= old.offsets[max(0, len(old.offsets) - 2)]
