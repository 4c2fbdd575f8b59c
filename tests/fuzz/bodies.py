"""One request body through all that reads, strips, refuses, forwards and records it. The rule that is tried: nothing is forwarded that was not checked.

What holds is said here a second time, in its own words and with a parser of its own, as naively as can be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from gateway.dialects import DIALECTS, UTILITIES
from gateway.dialects.barred import BARRED, GUARDED, HOLDERS, THING_OF, Allowed
from gateway.dialects.body_record import body_record, canonical_sha256, conversation, sent_record
from gateway.dialects.dialect import BodyError, CallRequest, ForwardFacts
from gateway.dialects.field_spans import field_spans
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA
from gateway.dialects.received import Received
from gateway.dialects.stripping import strip
from gateway.engines import ENGINES
from gateway.engines.engine import Engine
from gateway.policy.body_rules import BodyRules, apply
from gateway.policy.guard_rules import GuardRules
from gateway.proxy.body import BodyBounds, BodyRefused, receive
from tests.fuzz.mutating import a_value, battered, changed, written
from tests.support.cases import cases
from tests.support.every_api import PLAINEST, UTILITY_BODIES

BOUNDS: Final = BodyBounds(max_bytes=65_536, max_depth=24, max_keys=4_000, read_seconds=60)
INLINE: Final = 4_000
SALT: Final = "5a17"
ALLOWABLE: Final = tuple(name for name, thing in BARRED.items() if not thing.never)
STRIPPABLE: Final = tuple(name for name, thing in BARRED.items() if not thing.stays)
NOBODYS: Final = BodyRules()
POLICIES: Final = (
    (GuardRules(), NOBODYS),
    (GuardRules(), NOBODYS),
    (GuardRules(strip=STRIPPABLE), NOBODYS),
    (GuardRules(allow=ALLOWABLE), NOBODYS),
    (GuardRules(strip=("hosted_tools", "keep_alive", "store"), allow=("mcp", "remote_images", "lora")), NOBODYS),
    (GuardRules(strip=("web_search",)), BodyRules(force={"temperature": 0.5, "options": {"seed": 1}}, default={"top_p": 0.9}, forbid=("logit_bias",))),
)
CEILING: Final = 7
KNOWN: Final = frozenset({*CAPS, *GUARDED, "model", "messages", "options", "stream", "n", "input", "prompt", "tools"})
_WRITTEN: Final = {"lmstudio.chat": ("store",)}
"""What a format always writes: nothing is kept."""
FETCHED: Final = re.compile(r"\s*(?:https?|file|ftp)://", re.IGNORECASE)
WORDS_ONLY: Final = frozenset({"type", "text", "refusal", "thinking", "reasoning", "detail", "format", "filename", "media_type"})
GUARDED_EXTRAS: Final[tuple[dict[str, Any], ...]] = (
    {"tools": [{"type": "function", "name": "f", "function": {"name": "f"}}, {"type": "web_search", "name": "w"}], "tool_choice": "auto"},
    {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp", "server_url": "http://e"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://e/x.png"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}]},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}, {"type": "item_reference", "id": "x"}]},
    {"store": True, "keep_alive": 5, "cache_salt": "x", "id_slot": 1, "options": {"num_gpu": 1, "n": 2}, "sampling_params": {"n": 3}},
    {"parameters": {"best_of": 2, "adapter_id": "x"}, "options": {"seed": 1}, "sampling_params": {"temperature": 0}},
    {"max_tokens": 99, "max_completion_tokens": 98, "n_predict": -1, "min_tokens": 50, "thinking": {"type": "enabled", "budget_tokens": 5_000}},
)  # fmt: skip


def seeds() -> dict[str, list[dict[str, Any]]]:
    """Good bodies of each format, from what agents and fixtures sent."""
    found = {name: [dict(body), *({**body, **more} for more in GUARDED_EXTRAS)] for name, body in (PLAINEST | UTILITY_BODIES).items()}
    for name in DIALECTS:
        found[name] += [case.body for case in cases(name) if case.body]
    return found


SEEDS: Final = seeds()
NAMES: Final = tuple(SEEDS)
ALL: Final = [body for bodies in SEEDS.values() for body in bodies]
RAWS: Final = [json.dumps(body).encode() for body in ALL]


def make(rng: Random) -> bytes:
    """The first byte says how it is taken; the rest is the body."""
    name = rng.randrange(len(NAMES))
    value: Any = rng.choice(SEEDS[NAMES[name]])
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 8))):
        value = changed(rng, value, ALL)
    if rng.random() < 0.02:
        value = a_value(rng)
    raw = written(rng, value)
    if rng.random() < 0.35:
        raw = battered(rng, raw, RAWS)
    return bytes((name, rng.randrange(256))) + raw


def check(data: bytes) -> str:
    """How it went, in one word. Raises whatever is wrong."""
    if len(data) < 2:
        return "empty"
    name, (guard, rules) = NAMES[data[0] % len(NAMES)], POLICIES[data[1] % len(POLICIES)]
    raw = data[2:]
    try:
        received = receive(raw, BOUNDS)
    except BodyRefused as refused:
        assert refused.code in ("body_invalid", "body_too_large")
        assert not any(letter.isdigit() for letter in str(refused)), "no refusal holds a digit"
        return "unreadable"
    assert read_again(raw) == received.value, "both parsers read the same"
    try:
        return _utility(name, received, guard) if name in UTILITIES else _call(name, data[1], received, guard, rules)
    except BodyError as refused:
        assert refused.code in ("body_invalid", "not_allowed", "model_not_found", "body_too_large"), refused.code
        return "refused"


def _utility(name: str, received: Received, guard: GuardRules) -> str:
    utility, engine = UTILITIES[name], ENGINES["llama.cpp"]
    body, _ = strip(received.value, utility.form, guard.stripped, guard.allowed)
    utility.read(body, Allowed(guard.allowed, INLINE))
    sent = utility.forward(body, "own", engine.strip_fields - guard.allowed_fields)
    assert sent["model"] == "own" and sent.keys() - {"model"} <= received.value.keys()
    assert all(same(value, received.value[name]) for name, value in sent.items() if name not in ("model", "tools"))
    return "forwarded"


def _call(name: str, choice: int, received: Received, guard: GuardRules, rules: BodyRules) -> str:
    dialect, engine = DIALECTS[name], _engine(name, choice)
    before = json.dumps(received.value)
    kept, removed = strip(received.value, name, guard.stripped, guard.allowed)
    request = dialect.read_request(apply(kept, rules), Allowed(guard.allowed, INLINE))
    salted = {engine.salt_field: json.dumps(SALT)} if engine.salts(name) else {}
    facts = ForwardFacts(
        model="own",
        cap_name=engine.cap_names.get(name, ""),
        strip_fields=engine.strip_fields - guard.allowed_fields,
        pin_fields={**engine.pin_fields, **salted},
        asks_usage=engine.asks_usage,
        request_id_field=engine.request_id_field,
    )
    forwarded = dialect.forward_body(request, facts, ceiling_per_choice=CEILING, call_id="call-1")
    sent, _ = received.forwarded(forwarded)
    assert json.dumps(received.value) == before, "what came in is not changed"
    told = read_again(sent)
    assert isinstance(told, dict) and same(told, forwarded), "the bytes say what was made"
    _check_sent(name, received.value, told, facts, rules, removed, guard)
    _check_request(request)
    _check_record(received, forwarded, sent, request, dialect.settings)
    return "forwarded"


def _engine(name: str, choice: int) -> Engine:
    speaking = [engine for engine in ENGINES.values() if name in engine.paths]
    return speaking[choice // len(POLICIES) % len(speaking)]


def _check_sent(
    name: str, asked: Mapping[str, Any], sent: Mapping[str, Any], facts: ForwardFacts, rules: BodyRules, removed: tuple[str, ...], guard: GuardRules
) -> None:
    holder = HOLDERS.get(name, "")
    ours = {"model", "stream_options", facts.request_id_field, *facts.pin_fields, *rules.force, *rules.default, *_WRITTEN.get(name, ())}
    for field, value in sent.items():
        if field in ours or field == holder != "" or field in _lowered(value, asked.get(field)):
            continue
        if field == "tools" and any(path.startswith("tools.") for path in removed):
            assert all(any(same(tool, other) or (isinstance(tool, dict) and "tools" in tool) for other in asked["tools"]) for tool in value)
            continue
        if facts.cap_name and field == facts.cap_name:
            assert value == CEILING
            continue
        assert field in asked and same(value, asked[field]), f"{field} is not as it was asked"
    inner = (sent.get(holder) or {}) if holder else {}
    _check_holder(inner, asked.get(holder) or {}, facts, rules)
    for place in (sent, inner):
        caps = {field for field in CAPS if field in place}
        assert caps <= {facts.cap_name}, f"an alias of the cap went on: {caps}"
        twins = [field for field in place if field not in KNOWN and field.casefold() in KNOWN]
        assert not twins, f"read in any case, these are others: {twins}"
        for field in GUARDED.keys() & place.keys():
            asks = place[field] is not None and not any(place[field] == fine and type(place[field]) is type(fine) for fine in GUARDED[field])
            assert not asks or field in facts.pin_fields or THING_OF[field] in guard.allowed or _is_asked_as_n(field, sent), f"{field} went on"
    assert (inner if holder and facts.cap_name else sent).get(facts.cap_name or "model") == (CEILING if facts.cap_name else sent.get("model"))
    if "remote_images" not in guard.allowed:
        for text in _media(sent.get("messages")) + _media(sent.get("input")):
            assert not FETCHED.match(text), f"an address went on: {text}"


def _is_asked_as_n(field: str, sent: Mapping[str, Any]) -> bool:
    return field == "best_of" and sent.get("n", 1) == sent["best_of"]


def _check_holder(inner: Mapping[str, Any], asked: Mapping[str, Any], facts: ForwardFacts, rules: BodyRules) -> None:
    """The object of sampling parameters is as it was asked, but for the cap and what is lowered with it."""
    forced = {name for table in rules.force.values() if isinstance(table, dict) for name in table}
    for field, value in inner.items():
        fine = field in (facts.cap_name, "details") or field in forced or field in _lowered(value, asked.get(field))
        assert fine or (field in asked and same(value, asked[field])), f"{field} is not as it was asked"


def _lowered(value: Any, asked: Any) -> frozenset[str]:
    """Minima and budgets may only have been lowered, to the ceiling."""
    fields = frozenset((*MINIMA, *BUDGETS))
    if isinstance(value, dict) and isinstance(asked, dict):
        fields = frozenset({"reasoning", "thinking", "chat_template_kwargs"})
        unlike = {name for name in value if not same(value[name], asked.get(name))}
        return fields if value.keys() == asked.keys() and all(value[name] == CEILING and asked[name] > CEILING for name in unlike) else frozenset()
    return fields if value == CEILING and isinstance(asked, int | float) and asked > CEILING else frozenset()


def _media(messages: Any) -> list[str]:
    """Every text in a part of a message that is neither its words nor its kind."""
    found: list[str] = []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in ("image_url", "input_image", "image_url", "audio_url", "video_url"):
                for name, value in part.items():
                    if name not in WORDS_ONLY:
                        _texts(value, found)
    return found


def _texts(value: Any, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, list):
        for inner in value:
            _texts(inner, found)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in WORDS_ONLY:
                _texts(inner, found)


def _check_request(request: CallRequest) -> None:
    assert request.choices >= 1 and request.prompts >= 1 and request.pictures >= 0 and request.prompt_ids >= 0
    assert request.asked_output is None or request.asked_output >= 0
    assert all(isinstance(part, str) for part in request.rendered_parts)
    assert all(isinstance(name, str) for name in request.tool_names)


def _check_record(received: Received, forwarded: Mapping[str, Any], sent: bytes, request: CallRequest, settings: frozenset[str]) -> None:
    spans = received.spans()
    assert list(spans) == list(received.value)
    for name, (begin, end) in spans.items():
        assert same(json.loads(received.raw[begin:end]), received.value[name]), f"{name} does not stand there"
    assert field_spans(received.raw, received.value) == dict(spans)
    record = body_record(received.raw, received.value, settings, request.tool_names, spans) | sent_record(forwarded, settings, sent)
    json.dumps(record).encode()
    conversation(received.value)
    plain = canonical_sha256(received.value)
    assert not received.structure.plain or canonical_sha256(received.value, plain=True) == plain


def same(one: Any, other: Any) -> bool:
    """The same JSON: `1`, `1.0` and `true` are three things, and the order of members is one of them."""
    return json.dumps(one) == json.dumps(other)


def read_again(raw: bytes) -> Any:
    """Strictly, and not as the gateway does it."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs), "a key stands twice"
        return dict(pairs)

    def constant(text: str) -> Any:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
