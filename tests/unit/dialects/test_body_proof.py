"""A rebuilt request against what is on record of a call: the very bytes, the same JSON, or another request and in which fields."""

import hashlib
import json

import pytest

from gateway.dialects.body_proof import SAYS, proof_of_body
from gateway.dialects.body_record import body_record, canonical_sha256

BODY = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "grüße"}], "temperature": 0.5}
RAW = json.dumps(BODY).encode()
SENT = b'{"model":"engine-name"}'
RECORD = {
    **body_record(RAW, BODY, {"model", "max_tokens", "temperature"}, ()),
    "canonical_sha256": canonical_sha256(BODY),
    "sent_sha256": hashlib.sha256(SENT).hexdigest(),
}


def test_the_bytes_that_came_and_the_bytes_that_went_are_told_apart() -> None:
    assert proof_of_body(RECORD, RAW)["is"] == "received"
    assert proof_of_body(RECORD, SENT)["is"] == "forwarded"


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(BODY, indent=2).encode(),
        json.dumps(BODY, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode(),
        RAW.replace(b"0.5", b"5e-1"),
    ],
)
def test_the_same_json_written_another_way_is_said_to_be_that(raw: bytes) -> None:
    assert proof_of_body(RECORD, raw)["is"] == "same_json"


@pytest.mark.parametrize(
    ("raw", "differences"),
    [
        (json.dumps({**BODY, "max_tokens": 6}).encode(), ["max_tokens: 5 on record, 6 in this one"]),
        (
            json.dumps({**BODY, "messages": []}).encode(),
            [f"messages: another value of 2 bytes, or the same written another way; {len(json.dumps(BODY['messages']))} bytes on record"],
        ),
        (json.dumps({**BODY, "seed": 1}).encode(), ["seed: in this one, not on record"]),
        (b'{"model":"m","max_tokens":5,"temperature":0.5}', ["messages: on record, not in this one"]),
        (b"[]", ["it is no JSON object"]),
        (b"{", ["it is no JSON object"]),
        (b"", ["it is no JSON object"]),
    ],
)
def test_another_request_is_told_with_what_differs(raw: bytes, differences: list[str]) -> None:
    found = proof_of_body(RECORD, raw)
    assert (found["is"], found["differences"]) == ("another", differences)


def test_without_a_digest_on_record_nothing_is_claimed() -> None:
    assert proof_of_body({}, RAW) == {"is": "not_known", "says": SAYS["not_known"]}
