"""The one form of a policy that is hashed, stored and served from.

The rule: RFC 8785 JSON of the whole policy with every default filled in and the schema number; a limit that is not set is absent.
So neither the order of keys nor a comment changes the hash, and a release that changes a default does.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from math import isfinite

from gateway.errors import ConfigurationError
from gateway.policy.declaration import SCHEMA, Policy


def canonical(policy: Policy) -> str:
    return canonical_json(policy.model_dump(mode="json", by_alias=True, exclude_none=True))


def canonical_json(value: dict[str, object]) -> str:
    """RFC 8785 for what a policy can hold: objects, lists, texts, numbers, truth values."""
    return _text(value)


def _text(value: object) -> str:
    match value:
        case dict():  # keys by their UTF-16 units
            keys = sorted(value, key=lambda key: str(key).encode("utf-16-be"))
            return "{" + ",".join(f"{_text(key)}:{_text(value[key])}" for key in keys) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_text, value)) + "]"
        case float():
            return _fraction(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _fraction(value: float) -> str:
    """As ECMAScript writes a number: the shortest digits that give it back, an exponent only below 1e-6 and from 1e21."""
    if not isfinite(value):
        raise ValueError(f"{value} is no number of JSON")
    if value == 0:
        return "0"
    sign, figures, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "a finite number has one"
    digits, point = "".join(map(str, figures)), len(figures) + exponent
    if 0 < point <= 21:
        text = digits.ljust(point, "0")
        text = text[:point] + (f".{text[point:]}" if text[point:] else "")
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + (f".{digits[1:]}" if digits[1:] else "") + f"e{point - 1:+d}"
    return "-" * sign + text


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def policy_hash(policy: Policy) -> str:
    return sha256_hex(canonical(policy))


def parse_canonical(text: str) -> Policy:
    """The policy that a campaign's opening entry holds."""
    value = json.loads(text)
    number = value.get("schema") if isinstance(value, dict) else None
    if number != SCHEMA:
        raise ConfigurationError(f"the stored policy has schema {number}; this version reads schema {SCHEMA}")
    return Policy.model_validate(value)
