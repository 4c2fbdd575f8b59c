"""What a process did, from strace's own words: calls with the line at which each began and at which it returned. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

WATCHED = "fsync,fdatasync,pwrite64,pwritev,pwritev2,write,writev,sendto,sendmsg,sendmmsg,sendfile"

_LINE = re.compile(r"(?P<pid>\d+) +[\d.]+ (?P<rest>.*)")
_WHOLE = re.compile(r"(?P<name>\w+)\((?P<args>.*)\) += (?P<result>-?\d+|\?)")
_BEGUN = re.compile(r"(?P<name>\w+)\((?P<args>.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<args>.*)\) += (?P<result>-?\d+|\?)")
_FILE = re.compile(r"\d+<(?P<file>(?:->|[^<>])*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def wrap(out: Path) -> list[str]:
    """To go before a command: strace detached, so that signals and the exit status are the command's own; whole strings, files and sockets named."""
    return ["strace", "-D", "-f", "-ttt", "-yy", "-s", "1000000", "-e", f"trace={WATCHED}", "-e", "signal=none", "-o", str(out)]


@dataclass(slots=True, kw_only=True)
class Syscall:
    name: str
    file: str
    """What its descriptor is: a path, or `TCP:[HERE->THERE]`."""
    data: bytes
    began: int
    """Line of the trace; what began on a later line began later."""
    returned: int | None = None
    """None where it never did."""
    result: int = -1


def parse(lines: Iterable[str]) -> list[Syscall]:
    """In the order in which they began."""
    calls: list[Syscall] = []
    running: dict[str, Syscall] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        pid, rest = found["pid"], found["rest"]
        if begun := _BEGUN.match(rest):
            calls.append(running.setdefault(pid, _syscall(begun["name"], begun["args"], number)))
        elif resumed := _RESUMED.match(rest):
            _returns(running.pop(pid), number, resumed["result"])
        elif whole := _WHOLE.match(rest):
            calls.append(_syscall(whole["name"], whole["args"], number))
            _returns(calls[-1], number, whole["result"])
    return calls


def _syscall(name: str, args: str, number: int) -> Syscall:
    file = _FILE.match(args)
    data = b"".join(codecs.escape_decode(text.encode("latin-1"))[0] for text in _STRING.findall(args))
    return Syscall(name=name, file=file["file"] if file else "", data=data, began=number)


def _returns(call: Syscall, number: int, result: str) -> None:
    call.returned, call.result = number, -1 if result == "?" else int(result)
