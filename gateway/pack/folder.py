"""The files of a pack: written into a folder beside the final one, summed as they are written, and put in place as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import GatewayError

SUMS = "SHA256SUMS"


class PackExists(GatewayError):
    """The folder is there and holds something: a pack never replaces what it did not write."""


class PackFolder:
    """Used by `with`: what fails half-way leaves nothing behind. Raises PackExists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        real = path.resolve()
        self._made = real.with_name(f".{real.name}.{os.getpid()}.part")
        self._sums: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise PackExists(f"{self.path} is there and not empty: name a new folder with --out")
        self._made.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            return
        if not self.path.exists():
            self._made.rename(self.path)
            return
        for name in sorted((child.name for child in self._made.iterdir()), key=lambda name: name == SUMS):  # somebody may stand in that folder: it stays
            self._made.joinpath(name).rename(self.path / name)
        self._made.rmdir()

    def lines(self, name: str, lines: Iterable[bytes]) -> int:
        """One line each, as they come: never held whole. How many."""
        count = 0
        hashed = hashlib.sha256()
        place = self._made / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            for line in lines:
                file.write(line + b"\n")
                hashed.update(line + b"\n")
                count += 1
        self._sums[name] = hashed.hexdigest()
        return count

    def text(self, name: str, text: str) -> None:
        self.lines(name, text.removesuffix("\n").encode().split(b"\n"))

    def document(self, name: str, document: object) -> None:
        self.text(name, json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True))

    def append(self, name: str) -> AppendedFile:
        """A file that grows while others are written."""
        return AppendedFile(self._made / name, name, self._sums)

    def sum_up(self) -> None:
        """Writes the sums of everything written so far, in the form of sha256sum."""
        self._made.joinpath(SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(self._sums.items())), encoding="utf-8")


class AppendedFile:
    """Its sum counts once it is closed."""

    def __init__(self, place: Path, name: str, sums: dict[str, str]) -> None:
        self._name, self._sums, self._hashed = name, sums, hashlib.sha256()
        self._file = place.open("xb")

    def write(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._file.write(data)
        self._hashed.update(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._sums[self._name] = self._hashed.hexdigest()
