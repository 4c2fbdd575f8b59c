"""Utilities: requests that make an engine do no model work (its tokenizer, a count of a prompt). No calls: nothing is reserved, nothing is charged.

The rule: only fields that are known go on; agent and engine speak the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid
from gateway.dialects.dialect import BodyError
from gateway.dialects.prompts import read_prompts

_TEXTS: Final = ("content", "prompt", "text")
_FLAGS: Final = ("add_special", "parse_special", "with_pieces", "add_special_tokens", "return_token_strs", "skip_special_tokens")


class Utility(Protocol):
    """One kind of utility request."""

    @property
    def name(self) -> str: ...

    @property
    def form(self) -> str:
        """The dialect in whose words it is refused; empty: OpenAI's."""

    def read(self, body: Mapping[str, Any], allowed: Allowed = NOTHING) -> str:
        """The model that it names, or nothing. Raises BodyError."""

    def forward(self, body: Mapping[str, Any], model: str, strip_fields: frozenset[str]) -> dict[str, Any]:
        """The body that is sent. `model`: the engine's own name."""


@dataclass(frozen=True, slots=True)
class Texts:
    """`tokenize`: a text under the name that the engine has for it. A conversation is not taken: that is a count, not a text."""

    name: str = "tokenize"
    form: str = ""

    def read(self, body: Mapping[str, Any], allowed: Allowed = NOTHING) -> str:
        named = [name for name in _TEXTS if body.get(name) is not None]
        if len(named) != 1:
            raise invalid("content", "one text")
        read_prompts(body[named[0]], named[0])
        _known(body, (*named, *_FLAGS))
        return _model(body)

    def forward(self, body: Mapping[str, Any], model: str, strip_fields: frozenset[str]) -> dict[str, Any]:
        return _own(body, model)


@dataclass(frozen=True, slots=True)
class Numbers:
    """`detokenize`: token numbers."""

    name: str = "detokenize"
    form: str = ""

    def read(self, body: Mapping[str, Any], allowed: Allowed = NOTHING) -> str:
        tokens = body.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
            raise invalid("tokens", "a list of token numbers")
        _known(body, ("tokens", *_FLAGS))
        return _model(body)

    def forward(self, body: Mapping[str, Any], model: str, strip_fields: frozenset[str]) -> dict[str, Any]:
        return _own(body, model)


def _known(body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in body:
        if name != "model" and name not in names and body[name] is not None:
            raise BodyError("not_allowed", f"The field {name} is none that this API takes.", name)
    for name in _FLAGS:
        flag(body, name)


def _model(body: Mapping[str, Any]) -> str:
    value = body.get("model")
    if value is not None and not isinstance(value, str):
        raise invalid("model", "a text")
    return value or ""


def _own(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    return {**body, "model": model}


def counted_tokens(answer: object) -> int | None:
    """How many tokens a tokenizer's answer tells of: an answer, never usage."""
    if isinstance(answer, list):
        return len(answer)
    if not isinstance(answer, dict):
        return None
    for name in ("count", "length", "input_tokens"):
        if isinstance(answer.get(name), int) and not isinstance(answer[name], bool):
            return int(answer[name])
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None
