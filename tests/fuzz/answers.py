"""One engine's answer through a meter, in pieces. The rule that is tried: bytes pass unchanged, and whatever comes, the reading is one that can be settled."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any, Final

from gateway.accounting.settling import ChargeRules, Ending, Held, How, OwnCount, settle_terms
from gateway.accounting.usage import MeterSource, Outcome, Reading, Source, Usage
from gateway.dialects import DIALECTS
from gateway.dialects.dialect import CallRequest, Dialect
from gateway.metering.decoding import BadEncoding
from gateway.metering.framing import BadAnswer, FrameKind
from gateway.metering.meter import Meter, meter_of
from gateway.metering.reader import Mark
from tests.fuzz.mutating import battered, changed
from tests.support.cases import Case, cases

CUTS: Final = (Outcome.CAP_CUT, Outcome.DEADLINE_CUT, Outcome.CLOSED_CUT, Outcome.SHUTDOWN_CUT)
FAILURES: Final = ("closed", "died", "timeout", "unreachable")
LONGEST: Final = 1 << 20
LONGEST_CODED: Final = 1 << 15
"""What is damaged on its way can become anything, up to sixteen times as much."""
KINDS: Final = ("text/event-stream", "application/x-ndjson", "application/json", "text/html", "")
ENGINES: Final = ("llama.cpp", "vllm", "sglang", "ollama", "generic")
CODINGS: Final = ("", "", "", "", "", "", "gzip", "deflate")
STATUSES: Final = (200, 200, 200, 200, 200, 201, 302, 400, 429, 500, 503, 0)
HEADERS: Final[tuple[dict[str, str], ...]] = (
    {}, {}, {"x-prompt-tokens": "12", "x-generated-tokens": "3"}, {"x-prompt-tokens": "-1"}, {"x-generated-tokens": "9" * 40}, {"x-prompt-tokens": "\u0661"},
)  # fmt: skip
NAMES: Final = tuple(DIALECTS)


def _seeds() -> dict[str, list[Case]]:
    found = {name: list(cases(name)) for name in NAMES}
    found["tgi.generate_stream"] += found["tgi.generate"]
    return found


SEEDS: Final = _seeds()
ALL: Final = [case for cases_ in SEEDS.values() for case in cases_]
RAWS: Final = [case.answer for case in ALL]
VALUES: Final[list[Any]] = [{"usage": {"prompt_tokens": 3, "completion_tokens": 2}}, {"error": {"message": "x"}}, {"choices": []}, [], {"done": True}]


def make(rng: Random) -> bytes:
    """Six bytes say how it is taken, the rest is the body."""
    name = rng.randrange(len(NAMES))
    case = rng.choice(SEEDS[NAMES[name]] or ALL) if rng.random() < 0.9 else rng.choice(ALL)
    kind = _kind_of(case) if rng.random() < 0.9 else rng.randrange(len(KINDS))
    raw = case.answer
    how = rng.random()
    if how < 0.55:
        raw = _other_values(rng, raw)
    if how > 0.35:
        raw = battered(rng, raw, RAWS)
    return bytes((name, kind, rng.randrange(256), rng.randrange(256), rng.randrange(256), rng.randrange(256))) + raw


def _kind_of(case: Case) -> int:
    kind = case.headers.get("content-type", "application/json").partition(";")[0]
    return KINDS.index(kind) if kind in KINDS else 2


def _other_values(rng: Random, raw: bytes) -> bytes:
    """Some events with a value changed, so that it stays JSON."""
    lines = raw.split(b"\n")
    for at in rng.sample(range(len(lines)), min(len(lines), rng.choice((1, 1, 2, 4)))):
        head, brace, rest = lines[at].partition(b"{")
        try:
            value = json.loads(brace + rest)
        except ValueError:
            continue
        lines[at] = head + json.dumps(changed(rng, value, VALUES)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def check(data: bytes) -> str:
    """How it went, in one word. Raises whatever is wrong."""
    if len(data) < 7:
        return "empty"
    dialect, kind = DIALECTS[NAMES[data[0] % len(NAMES)]], KINDS[data[1] % len(KINDS)]
    coding, status, headers = CODINGS[data[2] % len(CODINGS)], STATUSES[data[3] % len(STATUSES)], HEADERS[data[4] % len(HEADERS)]
    engine, request = ENGINES[data[5] % len(ENGINES)], _request(data[5] // len(ENGINES), data[6:])
    plain = data[6:]
    raw = {"gzip": gzip.compress, "deflate": zlib.compress}[coding](plain) if coding else plain
    if coding and data[4] % 3 == 0:
        raw = raw[: len(raw) // 2] + plain  # damaged
    cuts = [0, *sorted({place % (len(raw) + 1) for place in data[:24]}), len(raw)]
    try:
        whole, passed = _read(_meter(dialect, request, engine, status, kind, coding), [raw], status, headers)
    except (BadAnswer, BadEncoding):
        return "bad"
    pieces = [raw[one:two] for one, two in pairwise(cuts)]
    meter = _meter(dialect, request, engine, status, kind, coding)
    cut, passed_cut = _read(meter, pieces, status, headers)
    if not coding:
        assert passed == passed_cut == plain, "bytes pass unchanged"
    assert cut == whole, "where it is cut tells nothing"
    if not coding and kind == "text/event-stream":
        _check_alike(lambda: _meter(dialect, request, engine, status, kind, coding), raw, status, headers)
    _check_reading(whole)
    _check_terms(whole, data)
    output, text = meter.running_output(), meter.delivered_text()
    assert output is None or output >= 0
    assert meter.delivered_bytes() >= 0
    text.encode("utf-8")
    ending = dialect.length_end(whole, request, Usage(input_tokens=3, output_tokens=2) if data[5] % 2 else None)
    assert isinstance(ending, bytes)
    return str(whole.source)


def _request(flags: int, raw: bytes) -> CallRequest:
    several = flags % 5 == 0
    return CallRequest(
        model="m", stream=True, asked_output=None, min_output=None, choices=2 if several else 1, prompts=2 if flags % 7 == 0 else 1,
        usage_asked=bool(flags % 2), rendered_parts=(), pictures=0, has_tools=False, tool_names=(), body={"model": "m"},
    )  # fmt: skip


def _meter(dialect: Dialect, request: CallRequest, engine: str, status: int, kind: str, coding: str) -> Meter:
    reader = dialect.reader(request, engine)
    longest = LONGEST_CODED if coding else LONGEST
    return meter_of(reader, status=status, content_type=kind, content_encoding=coding, max_event_bytes=longest, max_response_bytes=longest)


def _read(meter: Meter, pieces: list[bytes], status: int, headers: dict[str, str]) -> tuple[Reading, bytes]:
    meter.see_head(headers)
    passed = []
    for piece in pieces:
        passed += meter.feed(piece)
    passed += meter.end()
    truncated = len(pieces[0]) % 3 == 0 if len(pieces) == 1 else sum(map(len, pieces)) % 3 == 0
    return meter.reading(status, truncated), b"".join(frame.raw for frame, _ in passed if frame.kind is not FrameKind.PIECE)


def _check_alike(new_meter: Callable[[], Meter], raw: bytes, status: int, headers: dict[str, str]) -> None:
    """Blocks that came three times, each in a chunk: what is known by its bytes and read late is read as all of them one by one."""
    pieces = [block + b"\n\n" for block in raw.split(b"\n\n") for _ in range(3)]
    plain, late = new_meter(), new_meter()
    try:
        reading = _read(plain, pieces, status, headers)[0]
    except BadAnswer:
        return
    late.see_head(headers)
    known = False
    for piece in pieces:
        text = late.alike.text_of(b"%x\r\n%b\r\n" % (len(piece), piece)) if known and late.alike is not None else None
        if text is not None:
            late.late.append(text)
            continue
        marked = late.feed(piece)
        known = len(marked) == 1 and marked[0][1] is Mark.CONTENT and marked[0][0].kind is FrameKind.EVENT and late.learn(marked[0][0])
    late.end()
    assert late.reading(status, sum(map(len, pieces)) % 3 == 0) == reading, "what was read late was read as if at once"
    assert late.delivered_text() == plain.delivered_text()


def _check_terms(reading: Reading, data: bytes) -> None:
    """It can be settled, however the call ended, and nothing is charged that is below nothing."""
    how = tuple(How)[data[4] % len(How)]
    cut = CUTS[data[3] % len(CUTS)] if how is How.CUT else None
    ending = Ending(how=how, cut=cut, failure=FAILURES[data[2] % len(FAILURES)] if how is How.FAILED else "", drained=bool(data[5] % 2))
    own = OwnCount(output_tokens=data[2], counted_by="o200k_base") if data[4] % 2 else None
    held = Held(prompt_tokens=12, prompt_exact=bool(data[3] % 2), ceiling=40, context_tokens=100 if data[2] % 3 else None)
    terms = settle_terms(reading, ending, stream=bool(data[2] % 2), held=held, rules=ChargeRules(), own=own)
    assert isinstance(terms.outcome, Outcome) and isinstance(terms.source, Source)
    charge = terms.charge
    assert charge.requests == 1
    for count in (charge.input_tokens, charge.output_tokens, charge.tool_calls):
        assert type(count) is int and 0 <= count < 2**53, count


def _check_reading(reading: Reading) -> None:
    choked = [anomaly for anomaly in reading.anomalies if anomaly.startswith("reader_choked")]
    assert not choked, choked
    usage = reading.usage
    for count in (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens, usage.tool_calls, reading.running_output):
        assert count is None or (type(count) is int and 0 <= count < 2**53), count
    assert usage.cached_tokens is None or usage.input_tokens is None or usage.cached_tokens <= usage.input_tokens, "a part larger than its whole"
    assert usage.reasoning_tokens is None or usage.output_tokens is None or usage.reasoning_tokens <= usage.output_tokens, "a part larger than its whole"
    assert reading.source is not MeterSource.REPORTED or usage.input_tokens is not None or usage.output_tokens is not None
    assert not (reading.completed and reading.error_class), "both well and not"
    assert reading.response_id is None or isinstance(reading.response_id, str)
    assert all(isinstance(word, str) for word in (*reading.tool_call_ids, *reading.item_ids))
    assert all(size >= 0 for size in (reading.text_bytes, reading.reasoning_bytes, reading.tool_argument_bytes))
