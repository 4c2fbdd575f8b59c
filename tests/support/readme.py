"""README's blocks as one shell script: what a reader would do, in the order in which it is written there.

A block's first line says what it is: `sh run` (done), `sh serve` (left running until the end), `sh make` (targets of the Makefile), `toml FILE` (written to
that file), `text` (a part of what the block before it prints).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "=== block "
_VOLATILE = re.compile(r"(?:\b(?:gw-[\w-]+…?|key-[0-9a-f]{12}|call-[0-9a-f]{20,}|[0-9a-f]{40,}|[0-9a-f]{8}…|\d{4}-\d\d-\d\dT[\d:]+Z)|/\S*(?=gateway\.ledger))")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_.-]+")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    info: str
    text: str


def blocks(markdown: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(markdown)]


def script(doing: Sequence[Block], replaced: Mapping[str, str]) -> str:
    """One bash script. What serves is waited for until it is ready, and ended by SIGTERM at the end; its exit status is then printed."""
    lines = ["set -euo pipefail", "SERVES=", "trap 'if [ -n \"$SERVES\" ]; then kill -KILL $SERVES; fi' EXIT"]
    for number, block in enumerate(doing):
        text = block.text
        for old, new in replaced.items():
            text = text.replace(old, new)
        match block.language, block.info:
            case "toml", name:
                lines.append(f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE")
            case "sh", "run":
                lines.append(f"echo '{_MARK}{number}'\n{text}")
            case "sh", "serve":
                lines.append(f"{text.strip()} > serves.out 2> serves.err &\nSERVES=$!\n{_WAIT}")
    lines.append(f"echo '{_MARK}end'\nkill -TERM $SERVES\nENDED=$SERVES SERVES=\nwait $ENDED && echo stopped with 0 || echo \"stopped with $?\"")
    return "\n".join(lines) + "\n"


_WAIT = """for _ in $(seq 150); do
  if grep -q '^ready ' serves.out; then break; fi
  if ! kill -0 $SERVES; then cat serves.out serves.err; exit 1; fi
  sleep 0.2
done
grep -q '^ready ' serves.out"""


def outputs(printed: str) -> dict[str, str]:
    """What each block printed, by its number in the script; the last is `end`."""
    parts = re.split(rf"^{_MARK}(\w+)\n", printed, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def not_printed(shown: str, printed: str) -> list[str]:
    """Lines that are shown but have no counterpart: none was printed with all of its words. Numbers, ids, hashes and times may differ."""
    there = [_words(line) for line in printed.splitlines()]
    return [line for line in shown.splitlines() if line.strip() and line.strip() != "…" and not any(_words(line) <= words for words in there)]


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_VOLATILE.sub("", line)))
