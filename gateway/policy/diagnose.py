"""Turns what is wrong with a file into lines that a person can act on: file, line, path, what is wrong, the right name and where it belongs.

The rule: all errors of a file at once. Unknown keys are found against the shape first and taken out, so that pydantic can judge the values beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.errors import ConfigurationError
from gateway.policy.declared import Path, dotted
from gateway.policy.nearest import close, nearest
from gateway.policy.positions import line_of
from gateway.policy.reserved import FIXED_PLACES, LATER, OF_POLICIES, may_name_a_lane
from gateway.policy.shape import LANE, Leaf, Names, Shape, leaves
from gateway.policy.values import what_is_wrong

Raw = Mapping[str, object]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Problem:
    path: Path
    what: str
    line: int | None = None
    """Where it is not the line of the path."""


@dataclass(slots=True)
class Report:
    """The problems of one file."""

    file: str
    lines: Mapping[Path, int]
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: Path, what: str) -> None:
        self.problems.append(Problem(path, what))

    def where(self, path: Path) -> str:
        return f"{self.file}:{line_of(self.lines, path)}"

    def texts(self) -> list[str]:
        numbered = [(problem.line or line_of(self.lines, problem.path), problem) for problem in self.problems]
        numbered.sort(key=lambda pair: pair[0])
        return list(dict.fromkeys(f"{self.file}:{line}: {dotted(problem.path)}: {problem.what}" for line, problem in numbered))

    def raise_if_any(self) -> None:
        if self.problems:
            raise ConfigurationError("\n".join(self.texts()))


def known_part(raw: Raw, shape: Shape, names: Names, report: Report) -> dict[str, object]:
    """The file without what is unknown; each unknown key is reported."""
    right = [path for path, _ in leaves(shape, names)]

    def unknown(path: Path, value: object) -> None:
        for leaf in _leaf_paths(path, value):
            lanes = _likely_lanes(leaf, right)
            report.add(leaf, unknown_key(leaf, [found for found, _ in leaves(shape, replace(names, lanes=(*(names.lanes or ()), *lanes)))]))

    return _walk(raw, shape, (), names, unknown, report)


def _walk(raw: Raw, shape: Shape, above: Path, names: Names, unknown: Callable[[Path, object], None], report: Report) -> dict[str, object]:
    known: dict[str, object] = {}
    for key, value in raw.items():
        path = (*above, key)
        node = shape.keys.get(key)
        if node is None:
            node = _named(path, value, shape, names, unknown, report)
        if node is None:
            if key not in shape.keys and not _by_name(shape, value):
                unknown(path, value)
        elif isinstance(node, Shape) and isinstance(value, dict):
            known[key] = _walk(value, node, path, names, unknown, report)
        elif isinstance(node, Leaf) and isinstance(value, dict) and not node.free:
            unknown(path, value)
        else:
            known[key] = value
    return known


def _likely_lanes(path: Path, right: list[Path]) -> list[str]:
    """Words in the place of a table that nothing explains but a lane that was not declared."""
    words = {part for candidate in right for part in candidate}
    return [part for part in path[:-1] if part not in words and may_name_a_lane(part) and close(part, words) is None]


def _by_name(shape: Shape, value: object) -> bool:
    """A name of the user's own was expected here: `_named` has said what is wrong with it."""
    return shape.named is not None and (isinstance(value, dict) or shape.named_by != LANE)


def _named(path: Path, value: object, shape: Shape, names: Names, unknown: Callable[[Path, object], None], report: Report) -> Shape | Leaf | None:
    """What may stand under this name, or None, with the reason reported."""
    name, declared = path[-1], names.of(shape.named_by)
    if not _by_name(shape, value):
        return None
    if shape.named_by == LANE and not may_name_a_lane(name):
        unknown(path, value)
        return None
    if declared is not None and name not in declared:
        report.add(path, _undeclared(shape.named_by, name, declared, names.models_at))
        return None
    return shape.named


def _undeclared(kind: str, name: str, declared: tuple[str, ...], models_at: str) -> str:
    word, table = {"LANE": ("lane", "[lanes.NAME]"), "MODEL": ("model", models_at), "API": ("API", "apis")}[kind]
    likely = close(name, declared)
    meant = f"; did you mean {likely}?" if likely else ""
    return f"{word} {name} is not declared under {table} (declared: {', '.join(declared)}){meant}"


def _leaf_paths(path: Path, value: object) -> Iterable[Path]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _leaf_paths((*path, key), below)
    else:
        yield path


def unknown_key(path: Path, candidates: list[Path]) -> str:
    """What to say of a key that is not in the format."""
    leaf = path[-1]
    if leaf in LATER and path[0] in FIXED_PLACES:
        return f"{leaf} is unknown in this version"
    if path[0] == "limits" and leaf in OF_POLICIES:
        return f"{leaf} belongs in a policy, in [{OF_POLICIES[leaf]}]: the gateway has neither a beginning nor an end"
    if path[0] == "body" and len(path) == 2:
        candidates = [("body", table, leaf) for table in ("force", "default")]
    found = nearest(path, candidates)
    if not found:
        return f"unknown key{_beside(path, candidates)}"
    reason = "concurrent has no window: it counts what runs at once; " if leaf == "concurrent" and "day" in path else ""
    reason = reason or ("runs are counted in their campaign; " if leaf == "runs" and path[0] == "run" else "") or "unknown key; "
    return f"{reason}the right name is {' or '.join(_placed(_with_own_name(right, path)) for right in found)}"


def _with_own_name(right: Path, path: Path) -> Path:
    """`upstreams.NAME.address` as `upstreams.local.address`, where the wrong key stands in that table."""
    at = right.index("NAME") if "NAME" in right else 0
    return (*right[:at], path[at], *right[at + 1 :]) if 0 < at < len(path) - 1 and right[:at] == path[:at] else right


def _placed(right: Path) -> str:
    place = f"in [{dotted(right[:-1])}]" if len(right) > 1 else "at the top of the file"
    return f"{dotted(right)} ({right[-1]} {place})"


def _beside(path: Path, candidates: list[Path]) -> str:
    """What is known in the nearest table above that exists."""
    for depth in range(len(path) - 1, -1, -1):
        here = sorted({candidate[depth] for candidate in candidates if len(candidate) > depth and candidate[:depth] == path[:depth]})
        if here:
            table = f"in [{dotted(path[:depth])}]" if depth else "at the top"
            return f" (known {table}: {', '.join(here)})"
    return ""


def judge(model: type[Model], known: Raw, report: Report) -> Model | None:
    """The model, or None with every wrong value reported."""
    try:
        return model.model_validate(known)
    except ValidationError as error:
        for item in error.errors():
            path = tuple(str(part) for part in item["loc"] if not isinstance(part, int) and part != "[key]")
            report.add(path, what_is_wrong(item, path))
        return None
