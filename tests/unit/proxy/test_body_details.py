"""What is known of a body by an earlier call, and what its bytes prove, changes how fast it is read: never its verdict, its value or its record."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects import DIALECTS, received
from gateway.dialects.body_record import body_record, bytes_by_role, canonical_sha256, sent_record
from gateway.dialects.dialect import ForwardFacts
from gateway.dialects.field_spans import field_spans, spans_by_token
from gateway.dialects.known import Known, whole
from gateway.dialects.received import Received, write
from gateway.dialects.structure import structure_of
from gateway.proxy import body as reading
from gateway.proxy.body import BodyBounds, BodyRefused, receive
from gateway.proxy.body_details import body_details
from gateway.proxy.calls import Call
from gateway.runs import growth as growing
from gateway.runs.growth import Growth
from gateway.tokenizers.shape import shape_of

BOUNDS = BodyBounds(max_bytes=1 << 20, max_depth=8, max_keys=60, read_seconds=60)
ROOMY = BodyBounds(max_bytes=1 << 20, max_depth=64, max_keys=20_000, read_seconds=60)
CHAT = DIALECTS["openai.chat"]
NAMES = st.sampled_from(["a", "messages", "b", "temperature", "é", "\U0001f600", "\ue000", "c d", ""])
NUMBERS = st.sampled_from(
    ["0", "-0", "-0.0", "1.0", "1e5", "1E+2", "1e-5", "0.00001", "1e16", "9007199254740993", "18446744073709551616", "1e999", "NaN", "01"]
)
LITERALS = NUMBERS | st.sampled_from(
    ["null", "true", '"\\u0041"', '"\\/"', '"\\ud800"', '"\\ud83d\\ude00"', '"é"', '"\\u001b"', '"\\u001B"', '"\x7f"', '"x":1', '"{"']
)


def joined(opening: str, items: list[str], closing: str, blank: str) -> str:
    return opening + f",{blank}".join(items) + closing


def json_texts(blank: str) -> st.SearchStrategy[str]:
    """Also such as are no JSON, name a key twice, or write numbers in odd ways."""
    return st.recursive(
        LITERALS,
        lambda inner: st.lists(inner, max_size=4).map(lambda items: joined("[", items, "]", blank)) | objects_of(inner, blank),
        max_leaves=12,
    )


def objects_of(inner: st.SearchStrategy[str], blank: str) -> st.SearchStrategy[str]:
    pairs = st.tuples(NAMES, inner).map(lambda pair: f"{json.dumps(pair[0], ensure_ascii=False)}:{blank}{pair[1]}")
    return st.lists(pairs, max_size=4).map(lambda items: joined("{", items, "}", blank))


BODIES = st.sampled_from(["", " "]).flatmap(lambda blank: objects_of(json_texts(blank), blank)).map(lambda text: text.encode("utf-8", "surrogatepass"))
EDGES = st.sampled_from([(b"", b""), (b"\xef\xbb\xbf", b""), (b" ", b""), (b"", b"\n"), (b"", b"}"), (b"", b"x"), (b"", b"\0")])


def verdict(raw: bytes, bounds: BodyBounds, known: Sequence[Known] = ()) -> tuple[str, object]:
    try:
        found = receive(raw, bounds, known)
    except BodyRefused as refusal:
        return refusal.code, str(refusal)
    return "", repr(found.value)  # by its text: 1, 1.0, True and -0.0 are told apart, and so is the order of fields


def slowly(raw: bytes, bounds: BodyBounds) -> tuple[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_read_written", lambda _raw, _known: None)
        return verdict(raw, bounds)


@given(BODIES, EDGES)
@settings(max_examples=250, deadline=None)
def test_the_fast_and_the_strict_reading_of_any_text_agree(text: bytes, edges: tuple[bytes, bytes]) -> None:
    raw = edges[0] + text + edges[1]
    assert verdict(raw, BOUNDS) == slowly(raw, BOUNDS)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.integers(0, 80), st.binary(min_size=1, max_size=1))
@settings(max_examples=100, deadline=None)
def test_one_wrong_byte_in_a_plainly_written_body_changes_no_verdict(body: dict[str, Any], where: int, byte: bytes) -> None:
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    for text in (raw, raw[:where] + byte + raw[where + 1 :], raw[:where] + byte + raw[where:], raw[:where] + raw[where + 1 :]):
        assert verdict(text, BOUNDS) == slowly(text, BOUNDS)


def test_a_body_as_the_sdks_write_it_takes_the_fast_way_and_others_take_the_strict_one() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": 'größer → \U0001f600 "q" \\ \t\x7f\x1b\u2028'}], "temperature": 0.2, "top_p": 1.0}
    sdk = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    assert receive(sdk, BOUNDS).written is not None
    assert receive(json.dumps(body).encode(), BOUNDS).written is None
    assert receive(sdk.replace(b"0.2", b"2e-1"), BOUNDS).written is None


@given(st.dictionaries(NAMES, VALUES, max_size=5))
@settings(max_examples=100, deadline=None)
def test_fields_stand_where_every_token_says_and_go_on_as_they_were_written(body: dict[str, Any]) -> None:
    raw = write(body)
    found = receive(raw, ROOMY)
    assert found.spans() == spans_by_token(raw) == field_spans(raw, body)
    changed = {**{name: value for name, value in found.value.items() if name != "a"}, "b": 1, "model": "own"}
    assert found.forwarded(changed)[0] == write(changed)
    assert found.forwarded({}) == (b"{}", 0)


# A conversation of several calls


SHORT = st.text(max_size=3) | st.sampled_from(['"],', "]", ",", "}", "\U0001f600", "→"])
CALLS = st.lists(
    st.fixed_dictionaries({"id": SHORT, "type": st.just("function"), "function": st.fixed_dictionaries({"name": SHORT, "arguments": SHORT})}), max_size=2
)
CONTENT = SHORT | st.none() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": SHORT}), max_size=2)
PICTURE = st.just([{"type": "image_url", "image_url": {"url": "data:,"}}])
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "critic"]), "content": CONTENT | PICTURE},
    optional={"tool_calls": CALLS, "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(), "name": SHORT, "é": st.just(1)},
)
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=4)
TOOLS: list[Any] = [[{"type": "function", "function": {"name": name, "x": {"é": [0.5, 1.0, "größer"]}}} for name in names] for names in ("f", "fg")]
FIELDS = st.fixed_dictionaries(
    {"model": st.just("m")},
    optional={
        "max_tokens": st.integers(1, 9),
        "temperature": st.floats(0, 2),
        "tools": st.sampled_from([*TOOLS, [], None]),
        "functions": st.sampled_from([[{"name": "old"}], [], None]),
        "zz": SHORT,
    },
)
STEP = st.tuples(
    st.sampled_from(["goes on", "again", "begins anew", "forgets", "changes its mind", "is written loosely"]), MESSAGES, FIELDS, FIELDS, st.booleans()
)


def bodies(steps: list[tuple[str, list[dict[str, Any]], dict[str, Any], dict[str, Any], bool]]) -> list[bytes]:
    talk: list[dict[str, Any]] = []
    made = []
    for how, more, before, behind, _same in steps:
        if how == "begins anew" or not talk:
            talk = more
        elif how == "goes on":
            talk = talk + more
        elif how == "forgets":
            talk = talk[: max(1, len(talk) // 2)]
        elif how == "changes its mind":
            talk = talk[:-1] + more
        body = {**before, "messages": talk, **{name: value for name, value in behind.items() if name not in before}}
        made.append(json.dumps(body, indent=1).encode() if how == "is written loosely" else write(body))
    return made


def asked(growth: Growth, raw: bytes, own_model: str) -> tuple[Received, Any, bytes, dict[str, object]]:
    found = receive(raw, ROOMY, growth.known("c/r", "l", CHAT.name))
    request = CHAT.read_request(found.value, known=found.known)
    forwarded = CHAT.forward_body(request, ForwardFacts(model=own_model, cap_name="max_tokens"), ceiling_per_choice=5)
    call = SimpleNamespace(received=found, request=request, dialect=CHAT, stripped=(), run_key="c/r", identity=SimpleNamespace(lane="l"))
    return found, request, *body_details(cast(Call, call), forwarded, growth)


def plainly(growth: Growth, raw: bytes, own_model: str) -> tuple[Any, bytes, dict[str, object]]:
    """The same from the whole body, with nothing known and nothing shared."""
    body = json.loads(raw)
    request = CHAT.read_request(body)
    forwarded = CHAT.forward_body(request, ForwardFacts(model=own_model, cap_name="max_tokens"), ceiling_per_choice=5)
    sent = write(forwarded)
    details = body_record(raw, body, CHAT.settings, request.tool_names) | sent_record(forwarded, CHAT.settings, sent)
    if (canonical := canonical_sha256(body)) is not None:
        details["canonical_sha256"] = canonical
    details["new_bytes"] = growth.new_bytes("c/r", "l", body["messages"])
    return request, sent, details


@given(st.lists(STEP, min_size=1, max_size=6), st.sampled_from([0, 10**6]), st.sampled_from([0, 300, 10**6]))
@settings(max_examples=100, deadline=None)
def test_a_call_that_continues_another_is_read_and_recorded_as_if_nothing_were_known(steps: list[Any], least_bytes: int, kept_bytes: int) -> None:
    knowing, unknowing = Growth(), Growth()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(received, "LEAST_BYTES", least_bytes)
        patch.setattr(growing, "KEPT_BYTES_MAX", kept_bytes)
        for raw, step in zip(bodies(steps), steps, strict=True):
            own_model = "m" if step[-1] else "own"
            found, request, sent, details = asked(knowing, raw, own_model)
            expected, expected_sent, expected_details = plainly(unknowing, raw, own_model)
            assert (sent, details) == (expected_sent, expected_details)
            assert found.structure == structure_of(json.loads(raw), 64, 20_000)
            assert repr(found.value) == repr(json.loads(raw))
            assert (request.read, request.pictures, [*request.rendered_parts]) == (expected.read, expected.pictures, [*expected.rendered_parts])
            assert shape_of(request) == shape_of(expected)


def said(*texts: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], "z": ["]", ","]}


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> Growth:
    monkeypatch.setattr(received, "LEAST_BYTES", 0)
    return Growth()


def test_what_a_call_before_held_is_known_and_only_what_was_added_is_read(growth: Growth) -> None:
    asked(growth, write(said("a", "b")), "m")
    found, *_ = asked(growth, write(said("a", "b", "c")), "m")
    assert found.known is not None and found.known.messages == 2
    found, *_ = asked(growth, write(said("a", "b", "c")), "m")
    assert found.known is not None and found.known.messages == 3


def test_a_changed_byte_in_what_was_known_makes_it_unknown(growth: Growth) -> None:
    asked(growth, write(said("a", "b")), "m")
    assert asked(growth, write(said("a", "x", "c")), "m")[0].known is None
    assert asked(growth, write(said("a", "b2")), "m")[0].known is None


def test_what_stands_behind_known_messages_is_proven_as_strictly(growth: Growth) -> None:
    asked(growth, write(said("a")), "m")
    known = growth.known("c/r", "l", CHAT.name)
    raw = write(said("a", "b"))
    for wrong in (raw.replace(b'"content":"b"', b'"content":"b","content":"b"'), raw.replace(b'"z"', b'"model"'), raw + b"x", raw[:-1] + b',"z":1}'):
        with pytest.raises(BodyRefused):
            receive(wrong, ROOMY, known)
    assert receive(raw, ROOMY, known).known is not None


def test_what_only_looks_like_known_messages_is_read_as_it_is(growth: Growth) -> None:
    asked(growth, write(said("a")), "m")
    known = growth.known("c/r", "l", CHAT.name)
    list_text = write(said("a")["messages"])
    inside, twice = b'{"x":{"messages":' + list_text + b"}}", b'{"messages":' + list_text + b',"messages":[]}'
    assert verdict(inside, ROOMY, known) == verdict(inside, ROOMY) == ("", repr(orjson.loads(inside)))
    for wrong in (twice, list_text, b'{"messages":' + list_text[:-1] + b",]}", b'{"messages":' + list_text[:-1] + b",1}", b'["messages":' + list_text):
        assert verdict(wrong, ROOMY, known) == verdict(wrong, ROOMY) != ("", "")
        assert verdict(wrong, ROOMY, known)[0] == "body_invalid"


@given(st.lists(SHORT, min_size=1, max_size=2), st.lists(SHORT, max_size=2), FIELDS, FIELDS, st.integers(0, 200), st.sampled_from(list(b'[]{},:"\\mx')))
@settings(max_examples=150, deadline=None)
def test_one_wrong_byte_in_a_body_that_continues_another_changes_no_verdict(
    first: list[str], more: list[str], before: dict[str, Any], behind: dict[str, Any], where: int, byte: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(received, "LEAST_BYTES", 0)
        learning = Growth()
        asked(learning, write(said(*first)), "m")
        known = learning.known("c/r", "l", CHAT.name)
        raw = write({**before, "messages": said(*first, *more)["messages"], **behind})
        at = where % (len(raw) + 1)
        for text in (raw, raw[:at] + bytes([byte]) + raw[at + 1 :], raw[:at] + bytes([byte]) + raw[at:], raw[:at] + raw[at + 1 :]):
            assert verdict(text, ROOMY, known) == slowly(text, ROOMY)


def test_known_messages_are_parsed_only_for_who_asks_for_them(growth: Growth, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(growth, write(said("a", "b")), "m")
    parsed: list[object] = []
    monkeypatch.setattr(received, "_parsed", lambda raw, span: parsed.append(span) or orjson.loads(raw[slice(*span)]))
    found, request, *_ = asked(growth, write(said("a", "b", "c")), "m")
    assert parsed == [] and len(request.body["messages"]) == 3
    with pytest.raises(TypeError):
        orjson.dumps(request.body)
    assert whole(request.body) == said("a", "b", "c") and write(request.body) == write(said("a", "b", "c"))
    assert request.body["messages"][0] == said("a")["messages"][0] and len(parsed) == 1
    assert found.value["messages"][2:] == said("c")["messages"]


def test_tools_that_stay_the_same_are_not_looked_at_again(growth: Growth) -> None:
    def body(*texts: str, tools: object = TOOLS[1], **more: object) -> bytes:
        return write({**said(*texts), "tools": tools, **more})

    asked(growth, body("a"), "m")
    _, request, _, details = asked(growth, body("a", "b"), "m")
    expected = CHAT.read_request(orjson.loads(body("a", "b")))
    assert request.known_tools is not None and request.other_parts == () and request.tool_names == ("f", "g")
    assert (shape_of(request), [*request.rendered_parts]) == (shape_of(expected), [*expected.rendered_parts])
    plain_details = body_record(body("a", "b"), orjson.loads(body("a", "b")), CHAT.settings, ("f", "g"))
    assert {name: details[name] for name in plain_details} == plain_details
    talk = "a", "b"
    for other in (body(*talk, tools=TOOLS[0]), body(*talk, functions=[]), body(*talk, functions=[{"name": "old"}]), write(said(*talk))):
        asked(growth, body(*talk), "m")
        found, request, *_ = asked(growth, other, "m")
        assert found.known is not None and request.known_tools is None


def test_where_a_policy_takes_tools_out_only_the_messages_are_known(growth: Growth) -> None:
    raw = write({**said("a", "b"), "tools": TOOLS[1]})
    asked(growth, raw, "m")
    found = receive(raw, ROOMY, growth.known("c/r", "l", CHAT.name))
    assert found.known is not None and found.known_of(found.value) is found.known and found.known.tools is not None
    assert found.known_of({**found.value, "messages": []}) is None
    ruled = {**found.value, "tools": TOOLS[1][:1]}
    known = found.known_of(ruled)
    assert known is not None and (known.messages, known.tools) == (2, None)
    request, expected = CHAT.read_request(ruled, known=known), CHAT.read_request({**said("a", "b"), "tools": TOOLS[1][:1]})
    assert (request.tool_names, shape_of(request), [*request.rendered_parts]) == (("f",), shape_of(expected), [*expected.rendered_parts])


def test_bounds_hold_over_known_and_new_messages_together(growth: Growth) -> None:
    asked(growth, write(said("a", "b")), "m")
    known = growth.known("c/r", "l", CHAT.name)
    raw = write(said("a", "b", "c"))
    members = receive(raw, ROOMY).structure.members
    tight = BodyBounds(max_bytes=1 << 20, max_depth=64, max_keys=members, read_seconds=60)
    assert receive(raw, tight, known).known is not None
    for keys, depth in ((members - 1, 64), (members, 2)):
        with pytest.raises(BodyRefused) as caught:
            receive(raw, BodyBounds(max_bytes=1 << 20, max_depth=depth, max_keys=keys, read_seconds=60), known)
        assert caught.value.code == "body_too_large"


def test_speakers_in_turns_under_one_key_are_each_known(growth: Growth) -> None:
    for texts in ("a", "x", "ab", "xy"):
        asked(growth, write(said(*texts)), "m")
    for texts in ("abc", "xyz"):
        found, *_ = asked(growth, write(said(*texts)), "m")
        assert found.known is not None and found.known.messages == 2


def test_text_is_kept_for_the_newest_bodies_up_to_a_ceiling_and_hashes_tell_the_others(growth: Growth, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = said("a secret that is long enough to be found"), said("another, which is longer than the first one by some words")
    monkeypatch.setattr(growing, "KEPT_BYTES_MAX", len(write(second)))
    for body in (first, second):
        asked(growth, write(body), "m")
    held = {one.list_bytes: one.text for one in growth.known("c/r", "l", CHAT.name)}
    assert [text is not None and text.messages is not None for text in held.values()] == [False, True] and len(growth._kept) == 1
    for body in (first, second):
        more = {**body, "messages": [*body["messages"], {"role": "user", "content": "more"}]}
        found, *_, details = asked(growth, write(more), "m")
        assert found.known is not None and found.known.messages == 1
        assert details["fields"]["messages"]["sha256"] == hashlib.sha256(write(more["messages"])).hexdigest()  # type: ignore[index]


def test_a_conversation_that_goes_on_holds_its_last_body_alone(growth: Growth) -> None:
    for texts in ("a", "ab", "abc", "abc"):
        asked(growth, raw := write(said(*texts)), "m")
    assert growth._kept_bytes == len(raw) and len(growth._kept) == 1


def test_of_a_body_that_would_drive_out_many_no_text_is_kept(growth: Growth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "KEPT_BODY_BYTES_MAX", len(write(said("a"))) - 1)
    asked(growth, write(said("a")), "m")
    assert growth._kept_bytes == 0
    found, *_ = asked(growth, write(said("a", "b")), "m")
    assert found.known is not None and found.known.messages == 1


def test_the_digests_are_those_of_the_bytes(growth: Growth) -> None:
    for raw in (write(said("a")), write(said("a", "b"))):
        _, _, sent, details = asked(growth, raw, "own")
        assert details["body_sha256"] == hashlib.sha256(raw).hexdigest()
        assert details["sent_sha256"] == hashlib.sha256(sent).hexdigest()
        assert details["canonical_sha256"] == hashlib.sha256(orjson.dumps(orjson.loads(raw), option=orjson.OPT_SORT_KEYS)).hexdigest()
        assert details["bytes_by_role"] == bytes_by_role(orjson.loads(raw)["messages"])


def test_a_body_that_is_read_stays_as_it_was(growth: Growth) -> None:
    raw = write(said("a"))
    found, *_ = asked(growth, raw, "m")
    before = copy.deepcopy(found.value)
    asked(growth, write(said("a", "b")), "m")
    assert found.value == before


def new_bytes(growth: Growth, *texts: str) -> object:
    return asked(growth, write(said(*texts)), "m")[3]["new_bytes"]


def size(*texts: str) -> int:
    return sum(len(write({"role": "user", "content": text})) for text in texts)


def test_growth_is_told_from_the_last_call_even_where_an_older_one_is_continued(growth: Growth) -> None:
    assert new_bytes(growth, "a") == size("a")
    assert new_bytes(growth, "x") == size("x")
    assert new_bytes(growth, "a", "b") == size("a", "b"), "as long as the last call's, and another"


def test_growth_finds_where_a_conversation_that_was_continued_changes(growth: Growth) -> None:
    assert new_bytes(growth, "a") == size("a")
    assert new_bytes(growth, "a", "b") == size("b")
    assert new_bytes(growth, "a", "b", "c") == size("c")
    assert new_bytes(growth, "a", "b", "d") == size("d")


def test_names_that_canonical_form_orders_otherwise_are_not_plain(growth: Growth) -> None:
    message = {"role": "user", "content": "a", "\U0001f600": 1, "\ue000": 2}
    raw = write({"model": "m", "messages": [message]})
    found, _, _, details = asked(growth, raw, "m")
    assert not found.structure.plain
    assert details.get("canonical_sha256") == canonical_sha256(orjson.loads(raw))


def test_the_size_of_calls_is_that_of_one_list_of_all_of_them() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "tool_calls": calls} for calls in ([call, call], [], [call])]
    shape = shape_of(CHAT.read_request({"model": "m", "messages": messages}))
    assert (shape.tool_calls, shape.call_bytes) == (3, len(orjson.dumps([call] * 3)))
