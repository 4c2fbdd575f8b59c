"""What the allocator does with the memory of a body: it serves the next one.

glibc gives the end of its heap back whenever 128 kB of it are free, and then each body of 60 kB has its pages mapped and cleared anew. It learns otherwise
from the first large piece that is freed (mallopt(3), "dynamic mmap threshold"): so it is shown one. Who sets MALLOC_TRIM_THRESHOLD_ has the say.
"""

from __future__ import annotations

from typing import Final

LARGE_BYTES: Final = 8 << 20
"""As if a body of this size had passed: larger pieces are mapped one by one, and twice as much may lie free at the heap's end."""


def keep_memory() -> None:
    bytes(LARGE_BYTES)  # never touched: it costs no memory
