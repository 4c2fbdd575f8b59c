"""The one form of a policy that is hashed, stored and served from.

The rule: RFC 8785 JSON of the whole policy with every default filled in and the schema number; a limit that is not set is absent.
So neither the order of keys nor a comment changes the hash, and a release that changes a default does.
"""

from __future__ import annotations

import hashlib
import json

from gateway.errors import ConfigurationError
from gateway.policy.declaration import SCHEMA, Policy


def canonical(policy: Policy) -> str:
    return canonical_json(policy.model_dump(mode="json", by_alias=True, exclude_none=True))


def canonical_json(value: dict[str, object]) -> str:
    """RFC 8785 for what a policy can hold: objects, lists, texts, whole numbers, truth values."""
    return json.dumps(_sorted(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _sorted(value: object) -> object:
    """Keys by their UTF-16 units, as RFC 8785 wants them."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=lambda key: str(key).encode("utf-16-be"))}
    return [_sorted(item) for item in value] if isinstance(value, (list, tuple)) else value


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
