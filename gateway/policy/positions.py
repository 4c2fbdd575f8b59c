"""On which line of a TOML file each key stands.

The rule: it runs on text that tomllib has already accepted, so it only has to find keys, not to judge them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from gateway.policy.declared import Path

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")
_STRING = re.compile(r"\"\"\"(?:[^\\]|\\.)*?\"\"\"\"{0,2}|'''.*?''''{0,2}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}\n#]+")
_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def positions(text: str) -> dict[Path, int]:
    """Path -> line, counted from 1, for every table header and every key."""
    return _Scanner(text).scan()


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of a path, or of the nearest table above it that has one."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self.skip(_SPACE)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                start = self.at
                while self.text[self.at] == "[":
                    self.at += 1
                table = self.key()
                self.note((), table, start)
                while self.at < len(self.text) and self.text[self.at] == "]":
                    self.at += 1
            else:
                self.pair(table)
            self.skip(_SPACE)
        return self.lines

    def pair(self, table: Path) -> None:
        """`key = value`; the value may hold further keys."""
        start = self.at
        key = self.key()
        self.note(table, key, start)
        self.at += 1
        self.skip(_BLANK)
        self.value((*table, *key))

    def value(self, path: Path) -> None:
        match self.text[self.at]:
            case "[":
                self.items("]", path)
            case "{":
                self.items("}", path)
            case '"' | "'":
                self.skip(_STRING)
            case _:
                self.skip(_SCALAR)

    def items(self, end: str, path: Path) -> None:
        self.at += 1
        self.skip(_SPACE)
        while self.text[self.at] != end:
            if end == "}":
                self.pair(path)
            else:
                self.value(path)
            self.skip(_SPACE)
            if self.text[self.at] == ",":
                self.at += 1
                self.skip(_SPACE)
        self.at += 1

    def key(self) -> Path:
        parts: list[str] = []
        while True:
            self.skip(_BLANK)
            found = _QUOTED.match(self.text, self.at) or _BARE.match(self.text, self.at)
            assert found is not None, "tomllib accepted this text"
            self.at = found.end()
            word = found.group()
            parts.append(str(tomllib.loads(f"k={word}")["k"]) if word[0] in "\"'" else word)
            self.skip(_BLANK)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def note(self, table: Path, key: Path, start: int) -> None:
        """The first place where a path, or a table above it, is named."""
        line = self.text.count("\n", 0, start) + 1
        for end in range(1, len(key) + 1):
            self.lines.setdefault((*table, *key[:end]), line)

    def skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
