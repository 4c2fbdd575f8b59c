"""The policies that a campaign can be opened with: every file of the folder, read and checked, and kept as it was then.

The rule: what was read stays until a person says `reload`, and a reload takes all files or none. A name that is not here yet is looked for on the disk. Open
campaigns are served from their own frozen version, whatever happens here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.control.problems import Problem
from gateway.errors import ConfigurationError
from gateway.ids import NAME
from gateway.policy.loading import LoadedPolicy, load_policy

Check = Callable[[LoadedPolicy], None]
"""Raises ConfigurationError where this gateway can't keep a policy."""


@dataclass(frozen=True, slots=True)
class Taken:
    loaded: LoadedPolicy
    note: str = ""
    """Where the file is another by now."""


@dataclass(frozen=True, slots=True)
class _Kept:
    loaded: LoadedPolicy
    digest: bytes
    """SHA-256 of the file as it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    hashes: Mapping[str, str]
    """Every policy that is here now."""
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def view(self) -> dict[str, object]:
        policies = [{"policy": name, "hash": self.hashes[name], "change": self._change(name)} for name in sorted(self.hashes)]
        return {"policies": policies, "removed": list(self.removed)}

    def _change(self, name: str) -> str:
        return "new" if name in self.added else "changed" if name in self.changed else "same"


class PolicyShelf:
    def __init__(self, folder: Path, check: Check) -> None:
        self.folder = folder
        self._check = check
        self._kept: dict[str, _Kept] = {}
        self._lock = asyncio.Lock()

    def fill(self) -> list[str]:
        """At start: every file that is right; why the others are not, line by line. A wrong file keeps no gateway from serving."""
        self._kept, wrong = self._read()
        if not self._kept and not wrong:
            what = "holds no NAME.toml" if self.folder.is_dir() else "is no folder"
            wrong = [f"{self.folder} {what}, so no campaign can open; `policies` of gateway.toml says which folder it is"]
        return wrong

    async def reload(self) -> Reloaded:
        """All files anew, where all of them are right. Raises ConfigurationError, and nothing has changed, where one is not."""
        async with self._lock:
            found, wrong = await asyncio.to_thread(self._read)
            if wrong:
                raise ConfigurationError("\n".join(wrong))
            before, self._kept = self._kept, found
        return Reloaded(
            hashes={name: kept.loaded.hash for name, kept in found.items()},
            added=tuple(sorted(found.keys() - before.keys())),
            changed=tuple(sorted(name for name in found.keys() & before.keys() if found[name].loaded.hash != before[name].loaded.hash)),
            removed=tuple(sorted(before.keys() - found.keys())),
        )

    async def take(self, name: str) -> Taken:
        """A name, not a path: a driver can't make the gateway read any file. Raises Problem, ConfigurationError."""
        name = name.removesuffix(".toml")
        if not NAME.fullmatch(name):
            cause = "Names are 1 to 64 of a-z 0-9 . _ - and begin with a letter or digit; never a path."
            raise Problem(404, "not_found", f"There is no policy {name!r}.", cause, "Name a file of the folder without its ending, or rename the file.")
        async with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                return Taken(kept.loaded, await asyncio.to_thread(self._note, name, kept))
            if not await asyncio.to_thread(self._file(name).is_file):
                raise self._no_such(name)
            kept = self._kept[name] = await asyncio.to_thread(self._load, self._file(name))
            return Taken(kept.loaded)

    def _read(self) -> tuple[dict[str, _Kept], list[str]]:
        found: dict[str, _Kept] = {}
        wrong: list[str] = []
        for file in sorted(self.folder.glob("*.toml")):
            try:
                found[file.stem] = self._load(file)
            except ConfigurationError as error:
                wrong += str(error).splitlines()
        return found, wrong

    def _load(self, file: Path) -> _Kept:
        digest = _digest(file)  # before it is read: where it changes meanwhile, the note says so
        loaded = load_policy(file)
        self._check(loaded)
        return _Kept(loaded, digest)

    def _note(self, name: str, kept: _Kept) -> str:
        if _digest(self._file(name)) == kept.digest:
            return ""
        return f"{self._file(name)} is not any more what was read; this is the version that was. `gateway policy reload` reads it again."

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    def _no_such(self, name: str) -> Problem:
        there = ", ".join(sorted({*self._kept, *(file.stem for file in self.folder.glob("*.toml"))})) or "none"
        return Problem(404, "not_found", f"There is no policy {name!r}.", f"{self.folder} has: {there}.", "Name one of these, or put the file there.")


def _digest(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b""
