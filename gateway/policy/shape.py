"""The tables and keys that a pydantic model allows, as a tree that can be walked.

The rule: this is derived from the models and never written by hand, so that errors, examples and documentation follow them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.policy.declared import Path

LANE: Final = "LANE"
_PLACEHOLDERS: Final = {"model": "MODEL", "models": "NAME", "lanes": "NAME", "upstreams": "NAME", "refusal_status": "API"}


@dataclass(frozen=True, slots=True)
class Leaf:
    description: str = ""
    default: object = None
    required: bool = False
    free: bool = False
    """Whatever stands below it is the user's own."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table: its keys, and what stands under a name of the user's own."""

    keys: Mapping[str, Shape | Leaf] = field(default_factory=dict)
    named: Shape | Leaf | None = None
    named_by: str = ""
    """LANE, MODEL (one that is declared elsewhere), API, or NAME (a new one)."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names that a file declares. None: any name will do."""

    lanes: tuple[str, ...] | None
    models: tuple[str, ...] | None
    apis: tuple[str, ...] = ()
    models_at: str = "[models.NAME]"
    """Where models are declared."""

    def of(self, kind: str) -> tuple[str, ...] | None:
        match kind:
            case "LANE":
                return self.lanes
            case "MODEL":
                return self.models
            case "API":
                return self.apis
            case _:
                return None


def shape_of(model: type[BaseModel]) -> Shape:
    keys = {info.alias or name: _node(info.alias or name, info) for name, info in model.model_fields.items()}
    lane_table = getattr(model, "lane_table", None)
    if lane_table is None:
        return Shape(keys)
    return Shape(keys, shape_of(lane_table), LANE)


def leaves(shape: Shape, names: Names, above: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Every key that a file could have, the user's own names filled in; where none is known, the placeholder stands."""
    for key, node in shape.keys.items():
        yield from _leaves_of(node, names, (*above, key))
    if shape.named is not None:
        for name in names.of(shape.named_by) or (shape.named_by,):
            yield from _leaves_of(shape.named, names, (*above, name))


def _leaves_of(node: Shape | Leaf, names: Names, path: Path) -> Iterator[tuple[Path, Leaf]]:
    if isinstance(node, Leaf):
        yield path, node
    else:
        yield from leaves(node, names, path)


def _node(key: str, info: FieldInfo) -> Shape | Leaf:
    for kind in _choices(info.annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return shape_of(kind)
        if get_origin(kind) is dict:
            below = get_args(kind)[1]
            is_table = isinstance(below, type) and issubclass(below, BaseModel)
            leaf = Leaf(info.description or "", free=below is object)
            return Shape({}, shape_of(below) if is_table else leaf, _PLACEHOLDERS.get(key, "NAME"))
    return Leaf(info.description or "", info.default, info.is_required())


def _choices(annotation: object) -> tuple[object, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
