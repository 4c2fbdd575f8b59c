"""What is known of an event by its bytes is what its reader would say of it: else nothing is known."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.openai_chunks import ChunkReader
from gateway.metering.alike import ALIKE_BYTES, VAIN_TRIES, Alike
from gateway.metering.framing import Frame, FrameKind
from gateway.metering.meter import Meter
from gateway.metering.reader import Mark
from gateway.metering.sse import SseFramer

NAMES = (b'"content"', b'"reasoning"', b'"usage"')


def frame(data: bytes) -> Frame:
    return Frame(b"data: " + data + b"\n\n", FrameKind.EVENT, data)


def chunk(data: bytes) -> bytes:
    raw = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(raw), raw)


def learned(data: bytes = b'{"a":1,"content":"one","b":[]}') -> Alike:
    alike = Alike(NAMES)
    assert alike.learn(frame(data))
    return alike


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"a":1,"content":"two","b":[]}', b"two"),
        (b'{"a":1,"content":"a\\n\\"b\\\\","b":[]}', b'a\\n\\"b\\\\'),
        (b'{"a":1,"content":"\xc3\xa9","b":[]}', b"\xc3\xa9"),
        (b'{"a":1,"content":"","b":[]}', None),
        (b'{"a":2,"content":"two","b":[]}', None),
        (b'{"a":1,"content":"two","b":[1]}', None),
        (b'{"a":1,"content":null,"b":[]}', None),
        (b'{"a":1,"content":"x","usage":{},"c":"y","b":[]}', None),
        (b'{"a":1,"content":"half \\ud83d","b":[]}', None),
        (b'{"a":1,"content":"the quote is none: \\","b":[]}', None),
        (b'{"a":1,"content":"' + b"x" * ALIKE_BYTES + b'","b":[]}', None),
    ],
)
def test_an_event_that_differs_in_its_text_alone_is_known(data: bytes, text: bytes | None) -> None:
    assert learned().text_of(chunk(data)) == text


OTHER_LINES = [b"02a\r\n", b"2A\r\n", b"+2a\r\n", b" 2a\r\n", b"2a \r\n", b"2a;a=b\r\n", b"0x2a\r\n", b"2a\n", b"29\r\n", b"2b\r\n", b"2a\r", b"", b"\0"]


@pytest.mark.parametrize("line", OTHER_LINES)
def test_a_chunk_is_known_by_the_one_way_to_write_its_size(line: bytes) -> None:
    whole = chunk(b'{"a":1,"content":"seven..","b":[]}')
    assert whole.startswith(b"2a\r\n") and learned().text_of(whole) == b"seven.."
    assert learned().text_of(line + whole[4:]) is None


@pytest.mark.parametrize("more", [b"x", b"\r\n", b"0\r\n\r\n", chunk(b'{"a":1,"content":"two","b":[]}')])
def test_a_chunk_with_something_before_or_behind_it_is_not_known(more: bytes) -> None:
    whole = chunk(b'{"a":1,"content":"two","b":[]}')
    assert learned().text_of(whole + more) is None and learned().text_of(more + whole) is None
    assert learned().text_of(whole[:-1]) is None


def test_sizes_at_which_a_line_grows_by_a_digit_are_known_like_all() -> None:
    alike = learned()
    for length in range(1, 700):
        assert alike.text_of(chunk(b'{"a":1,"content":"' + b"x" * length + b'","b":[]}')) == b"x" * length


@pytest.mark.parametrize(
    "data",
    [
        b'{"content":"one","reasoning":"two"}',
        b'{"content":"one","content":"two"}',
        b'{"content":"one","x":"content"}',
        b'{"content":["one"]}',
        b'{"content":"","reasoning":null}',
        b'{"content":"o\\u006ee"}',
        b'{"content" :"one"}',
        b'{"content":"one","usage":{"completion_tokens":1}}',
        b'{"other":"one"}',
        b'["content","x"]',
        b'"content"',
    ],
)
def test_where_a_text_can_not_be_told_from_all_else_nothing_is_learned(data: bytes) -> None:
    alike = Alike(NAMES)
    assert not alike.learn(frame(data)) and alike.text_of(chunk(data)) is None


@pytest.mark.parametrize("data", [b'{"content":"one","reasoning":null}', b'{"content":"one","reasoning":""}', b'{"content": "one", "usage": null}'])
def test_keys_that_hold_nothing_are_in_nobodys_way(data: bytes) -> None:
    assert learned(data).text_of(chunk(data.replace(b"one", b"two"))) == b"two"


def test_of_another_event_another_kind_is_learned_and_the_first_forgotten() -> None:
    alike = learned()
    other = b'{"a":2,"content":"one","b":[]}'
    assert alike.learn(frame(other))
    assert alike.text_of(chunk(other)) == b"one" and alike.text_of(chunk(b'{"a":1,"content":"one","b":[]}')) is None


def test_where_no_event_is_like_another_it_is_given_up() -> None:
    alike = Alike(NAMES)
    tries = [alike.learn(frame(b'{"a":%d,"content":"one"}' % number)) for number in range(VAIN_TRIES + 3)]
    assert tries == [True] * VAIN_TRIES + [False] * 3


def test_what_was_of_use_is_not_given_up() -> None:
    alike = Alike(NAMES)
    for number in range(3 * VAIN_TRIES):
        assert alike.learn(frame(b'{"a":%d,"content":"one"}' % number))
        assert alike.events_of([b"x"])


TEXTS = st.one_of(
    st.text(min_size=1, max_size=12).map(lambda text: orjson.dumps(text.encode("utf-8", "replace").decode())[1:-1]),
    st.sampled_from([b"a", b"\\n", b"\xc3", b"\xa9", b"\x01", b"\xff", b" ", b"\xe3\x80\x80", b"\\\\"]),
)


def seen(events: list[bytes]) -> Meter:
    meter = Meter(ChunkReader(choices=1, usage_asked=False, by_choice=False), SseFramer(1 << 20))
    for data in events:
        meter.see(frame(data))
    return meter


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8), first=st.sampled_from([b"one", b"\xc3\xa9"]))
def test_what_was_seen_late_was_seen_as_if_at_once(texts: list[bytes], first: bytes) -> None:
    def event(text: bytes) -> bytes:
        return b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"' + text + b'"},"finish_reason":null}]}'

    meter = seen([event(first)])
    late = []
    for text in texts:
        assert meter.alike is not None and meter.learn(frame(event(first)))
        if meter.alike.text_of(chunk(event(text))) == text:
            meter.late.append(text)
            late.append(text)
        else:
            assert meter.see(frame(event(text))) in (Mark.CONTENT, Mark.PASS)
    plain = seen([event(first), *map(event, texts)])
    assert meter.delivered_bytes() == plain.delivered_bytes() and meter.delivered_text() == plain.delivered_text()
    assert meter.reading(200, truncated=False) == plain.reading(200, truncated=False)
    assert not meter.late


@pytest.mark.parametrize("ask", ["reading", "running_output", "delivered_bytes", "delivered_text", "passed", "see", "see_late"])
def test_whatever_is_asked_of_a_meter_it_has_seen_all(ask: str) -> None:
    event = b'{"choices":[{"index":0,"delta":{"content":"one"}}]}'
    meter = seen([event])
    assert meter.learn(frame(event))
    meter.late += [b"two", b"three"]
    arguments: dict[str, tuple[object, ...]] = {"reading": (200, False), "passed": (1, 10.0), "see": (Frame(b"", FrameKind.COMMENT),)}
    said = getattr(meter, ask)(*arguments.get(ask, ()))
    assert not meter.late
    assert {"delivered_bytes": 11, "delivered_text": "onetwothree", "passed": True, "see_late": 2}.get(ask, said) == said
    assert meter.delivered_text() == "onetwothree"
