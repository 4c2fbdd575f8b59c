"""Prompts as bodies give them where no template is used: one text, a list of texts, token numbers, lists of these.

Which list is one prompt and which is many: numbers beside each other are one prompt, also with texts between them; texts alone, or lists, are one each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.dialects.body_fields import invalid

PROMPTS_MAX: Final = 2_048
_WHAT: Final = "a text, a list of token numbers, or a list of such prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    count: int
    texts: tuple[str, ...]
    """Of all prompts, in order."""
    ids: int
    """Tokens given as numbers."""
    begins: int
    """How many begin with a text."""


def read_prompts(value: object, name: str) -> Prompts:
    """Raises BodyError."""
    if isinstance(value, str):
        return Prompts(count=1, texts=(value,), ids=0, begins=1)
    if not isinstance(value, list) or not value:
        raise invalid(name, _WHAT)
    if any(_is_id(item) for item in value):
        texts, ids = _pieces(value, name)
        return Prompts(count=1, texts=texts, ids=ids, begins=isinstance(value[0], str))
    if len(value) > PROMPTS_MAX:
        raise invalid(name, "a shorter list")
    found: list[str] = []
    ids = begins = 0
    for item in value:
        if isinstance(item, str):
            found.append(item)
            begins += 1
        elif isinstance(item, list) and item:
            texts, numbers = _pieces(item, name)
            found.extend(texts)
            ids += numbers
            begins += isinstance(item[0], str)
        else:
            raise invalid(name, _WHAT)
    return Prompts(count=len(value), texts=tuple(found), ids=ids, begins=begins)


def _pieces(items: list[object], name: str) -> tuple[tuple[str, ...], int]:
    """One prompt in pieces."""
    texts = tuple(item for item in items if isinstance(item, str))
    ids = sum(map(_is_id, items))
    if len(texts) + ids != len(items):
        raise invalid(name, _WHAT)
    return texts, ids


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0
