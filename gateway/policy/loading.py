"""From a TOML file to a policy that can be served, or to every reason why not.

The rule: nothing half right is loaded; an error names file and line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as File

from gateway.errors import ConfigurationError
from gateway.policy.canonical import canonical, sha256_hex
from gateway.policy.checks import check_policy, place
from gateway.policy.declaration import APIS, DEFAULT_LANE, SCHEMA, Policy
from gateway.policy.declared import Declared, Path
from gateway.policy.diagnose import Report, judge, known_part
from gateway.policy.positions import positions
from gateway.policy.reserved import RESERVED, may_name_a_lane
from gateway.policy.shape import Names, shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicy:
    policy: Policy
    name: str
    """The file's name without its ending."""
    canonical: str
    hash: str
    origins: Mapping[str, str]
    """A limit's name -> `file:line`."""
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    """Every path of the file -> its line."""


def load_policy(path: File | str) -> LoadedPolicy:
    """Raises ConfigurationError with one line for each thing that is wrong."""
    return policy_from_text(read_text(path), str(path))


def policy_from_text(text: str, file: str) -> LoadedPolicy:
    raw, report = read_toml(text, file)
    policy = _policy(raw, report)
    report.raise_if_any()
    assert policy is not None, "a policy that was not made was reported"
    form = canonical(policy)
    return LoadedPolicy(
        policy=policy,
        name=File(file).stem,
        canonical=form,
        hash=sha256_hex(form),
        origins=origins_of(policy.declared, report),
        file=file,
        lines=report.lines,
    )


def _policy(raw: dict[str, object], report: Report) -> Policy | None:
    number = raw.get("schema", SCHEMA)
    if isinstance(number, int) and number != SCHEMA:
        report.add(("schema",), f"{number} is not a version of this format: this version reads schema = {SCHEMA}")
        return None
    _check_lane_names(raw, report)
    known = known_part(raw, shape_of(Policy), _names(raw), report)
    policy = judge(Policy, known, report)
    if policy is not None:
        check_policy(policy, report)
    return policy


def _names(raw: Mapping[str, object]) -> Names:
    return Names(lanes=table_keys(raw, "lanes") or (DEFAULT_LANE,), models=table_keys(raw, "models"), apis=APIS)


def table_keys(raw: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = raw.get(key)
    return tuple(value) if isinstance(value, dict) else ()


def _check_lane_names(raw: Mapping[str, object], report: Report) -> None:
    for lane in table_keys(raw, "lanes"):
        if lane in RESERVED:
            report.add(("lanes", lane), f"a lane can't be named {lane}: the word is a scope, window, quantity or keyword of limits")
        elif not may_name_a_lane(lane):
            report.add(("lanes", lane), "a lane's name is a small letter, then at most 31 small letters, digits, _ or -")


def origins_of(declared: Iterable[Declared], report: Report) -> dict[str, str]:
    return {item.name: report.where(place(item)) for item in declared}


def read_text(path: File | str) -> str:
    try:
        return File(path).read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def read_toml(text: str, file: str) -> tuple[dict[str, object], Report]:
    if text.startswith("\ufeff"):
        raise ConfigurationError(
            f"{file}:1: begins with a byte order mark, which TOML does not allow; save it as UTF-8 without one (some editors: UTF-8, no BOM)"
        )
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_not_toml(str(error), text, file)) from error
    return raw, Report(file, positions(text.replace("\r\n", "\n")))


def _not_toml(message: str, text: str, file: str) -> str:
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", message)
    line = int(found[1]) if found and found[1] else text.count("\n") + 1
    said = message[: found.start()] if found else message
    if said.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate")):
        return f"{file}:{line}: {_twice(text.splitlines(), line)} (TOML: {said})"
    return f"{file}:{line}: not TOML: {said}"


def _twice(lines: list[str], line: int) -> str:
    """Which key or table stands a second time on this line, and where the first one is."""
    stands = lines[line - 1].strip() if line <= len(lines) else ""
    table = next((above.strip() for above in reversed(lines[: line - 1]) if above.lstrip().startswith("[")), "")
    what = stands if stands.startswith("[") else f"{stands.split('=')[0].strip()}{f' in {table}' if table else ''}"
    start = 0 if stands.startswith("[") or not table else max(at for at, above in enumerate(lines[: line - 1]) if above.strip() == table)
    same = stands if stands.startswith("[") else stands.split("=")[0].strip()
    first = next((at for at in range(start, line - 1) if lines[at].split("=")[0].strip() == same), None)
    return f"{what}: stands twice{f', first on line {first + 1}' if first is not None else ''}; keep one"
