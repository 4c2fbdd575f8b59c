"""What holds in the end: every limit and every rule of a policy under these settings, each with the place that set it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gateway.policy.declared import Path, dotted
from gateway.policy.loading import LoadedPolicy
from gateway.policy.positions import line_of
from gateway.settings.settings import Settings

RUN_RULES = ("wall_from", "require_room")
"""Words among the limits."""


class Row(NamedTuple):
    name: str
    value: str
    origin: str
    """`file:line`, or `default`."""


def explain_effective(loaded: LoadedPolicy, settings: Settings) -> list[Row]:
    """Rows for `gateway policy show --effective`: rules first, then limits narrow to broad."""
    tree = loaded.policy.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"call", "run", "campaign"})
    rows = [Row(dotted(path), _shown(value, path), _origin(path, loaded)) for path, value in _leaves(tree, ())]
    rows += [Row(f"run.{key}", str(getattr(loaded.policy.run, key)), _origin(("run", key), loaded)) for key in RUN_RULES]
    origins = {**loaded.origins, **settings.origins}
    for item in (*loaded.policy.declared, *settings.limits.declared):
        value = f"{item.ceiling} ({item.timezone})" if item.window else str(item.ceiling)
        rows.append(Row(item.name, value, origins.get(item.name, "")))
    return rows


def _leaves(tree: Mapping[str, object], above: Path) -> Iterator[tuple[Path, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _origin(path: Path, loaded: LoadedPolicy) -> str:
    return f"{loaded.file}:{line_of(loaded.lines, path)}" if path in loaded.lines else "default"


def _shown(value: object, path: Path) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return ", ".join(str(item) for item in value) or ("all" if path[-1] == "models" else "none")
        case _:
            return str(value)
