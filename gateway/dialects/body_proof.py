"""Whether a request that somebody rebuilt is the one that is on record: by the digests of its bytes, of its canonical form, and of each field."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import orjson

from gateway.dialects.body_record import ascii_name, canonical_sha256
from gateway.dialects.field_spans import field_spans

Row = dict[str, object]

SAYS = {
    "received": "these are the bytes that the agent sent",
    "forwarded": "these are the bytes that the engine was sent",
    "same_json": "the agent sent the same JSON, written another way: spaces, order of names, or how a letter or number is written",
    "another": "this is another request",
    "not_known": "it can't be told: of that call no digest is on record",
}


def proof_of_body(record: Mapping[str, Any], raw: bytes) -> Row:
    """`record`: details of the call's reservation. `is`: a key of SAYS; for another request, the fields that differ, each with what is known of why."""
    if "body_sha256" not in record:
        return {"is": "not_known", "says": SAYS["not_known"]}
    digest = hashlib.sha256(raw).hexdigest()
    if digest == record["body_sha256"]:
        return _found("received", digest)
    if digest == record.get("sent_sha256"):
        return _found("forwarded", digest)
    body = _parsed(raw)
    if body is not None and (canonical := canonical_sha256(body)) is not None and canonical == record.get("canonical_sha256"):
        return _found("same_json", digest)
    return {**_found("another", digest), "differences": ["it is no JSON object"] if body is None else _differences(record, raw, body)}


def _found(what: str, digest: str) -> Row:
    return {"is": what, "says": SAYS[what], "sha256": digest}


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


def _differences(record: Mapping[str, Any], raw: bytes, body: Mapping[str, Any]) -> list[str]:
    asked, fields = cast("dict[str, str]", record.get("settings_asked", {})), cast("dict[str, dict[str, object]]", record.get("fields", {}))
    found: list[str] = []
    here = {ascii_name(name): raw[slice(*span)] for name, span in field_spans(raw, body).items()}
    for name in sorted(here.keys() | asked.keys() | fields.keys()):
        if name not in here:
            found.append(f"{name}: on record, not in this one")
        elif name in asked:
            if not _same_value(asked[name], here[name]):
                found.append(f"{name}: {asked[name]} on record, {here[name].decode('utf-8', 'backslashreplace')[:200]} in this one")
        elif name in fields:
            if hashlib.sha256(here[name]).hexdigest() != fields[name]["sha256"]:
                found.append(f"{name}: another value of {len(here[name])} bytes, or the same written another way; {fields[name]['bytes']} bytes on record")
        else:
            found.append(f"{name}: in this one, not on record")
    return found


def _same_value(text: str, here: bytes) -> bool:
    try:
        return bool(orjson.loads(text) == orjson.loads(here))
    except orjson.JSONDecodeError:
        return False
