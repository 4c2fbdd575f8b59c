"""What a counter's errors lead to, what is tokenised at all, pictures, and prompts that nobody can measure: as a black box, on the scripted engine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.tokens import count, render
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

CONTEXT_TOKENS = 100_000
WANTS_ALL = 200_000
"""More than the context leaves, so that a call is counted before it is decided."""
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
POLICIES: dict[str, Tables] = {
    "counted": {"models": {"mock": {"context_tokens": CONTEXT_TOKENS}}},
    "capped": {"run": {"input_tokens": 1_000}},
    "pictures": {"models": {"mock": {"image_tokens_max": 300}}, "run": {"input_tokens": 1_640}},
    "estimating": {"models": {"mock": {"counter": "tiktoken:qwen", "context_tokens": CONTEXT_TOKENS}}},
    "bytes": {"models": {"mock": {"counter": "bytes"}}, "run": {"input_tokens": 5_000}},
    "bytes-open": {"models": {"mock": {"counter": "bytes"}}},
    "open": {},
}
LANES: Tables = {"lanes": {"foreground": {}, "background": {}}}
CAPPED: dict[str, Tables] = {
    "total-of-a-run": {"run": {"total_tokens": 9_000}},
    "day-of-a-lane": {**LANES, "campaign": {"background": {"day": {"input_tokens": 9_000, "timezone": "UTC"}}}},
    "prompt-of-a-call": {"call": {"prompt_tokens": 9_000}},
    "context-of-a-call": {"call": {"context_tokens": 9_000}},
    "context-of-a-model": {"models": {"mock": {"context_tokens": 9_000}}},
}
POLICIES |= CAPPED


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    whole = {name: merged(POLICY, tables) for name, tables in POLICIES.items()}
    with GatewayProcess(tmp_path_factory.mktemp("counters") / "gateway", mock.url, policies=whole, slots=8) as process:
        yield process


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> Iterator[None]:
    yield
    mock.script({})


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def entries(gateway: GatewayProcess, run: OpenedRun, kind: str) -> list[dict[str, Any]]:
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query(f"SELECT body FROM entries WHERE kind = '{kind}' AND chain = 'run:{run.campaign}/{run.run}' ORDER BY number")
        return [json.loads(str(row["body"])) for row in rows]


def events(gateway: GatewayProcess, run: OpenedRun) -> list[tuple[str, dict[str, Any]]]:
    return [(body["name"], body["details"]) for body in entries(gateway, run, "event") if body["name"] in ("count_drift", "overshoot")]


def flags(gateway: GatewayProcess, run: OpenedRun) -> list[list[str]]:
    return [body.get("flags", []) for body in entries(gateway, run, "settle")]


def fresh(tmp_path: Path, mock: MockProcess, **more: Any) -> GatewayProcess:
    """What reports teach outlives a run: a gateway of its own for those tests."""
    return GatewayProcess(tmp_path / "gateway", mock.url, policies={name: merged(POLICY, tables) for name, tables in POLICIES.items()}, **more)


# what reports teach


def test_a_drift_is_on_record_once_with_both_numbers_and_nothing_is_blocked_by_it(tmp_path: Path, mock: MockProcess) -> None:
    messages = said("hello there")
    own = count(render({"messages": messages}))
    with fresh(tmp_path, mock) as gateway:
        run = gateway.opened(policy="counted")
        mock.script({"prompt_tokens": own + 5, "output_tokens": 3})
        answers = [chat_once(gateway.port, run.key, messages=messages, max_tokens=WANTS_ALL) for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert events(gateway, run) == [("count_drift", {"reserved": own, "reported": own + 5, "counted_by": "engine"})]
        assert flags(gateway, run) == [["overshoot", "count_drift"], ["overshoot"], ["overshoot"]]
        assert [body["charge"]["input_tokens"] for body in entries(gateway, run, "settle")] == [own + 5] * 3
        assert gateway.control.metric("gateway_count_drift_total", model="mock") == 1
        assert gateway.control.metric("gateway_overshoot_total", model="mock") == 3
        assert gateway.control.metric("gateway_overshoot_tokens_total", model="mock", kind="input") == 15
        assert gateway.control.metric("gateway_overshoot_tokens_total", model="mock", kind="output") == 0
        mock.script({"prompt_tokens": own - 5, "output_tokens": 3})
        assert chat_once(gateway.port, run.key, messages=messages, max_tokens=WANTS_ALL).status == 200
        assert flags(gateway, run)[-1] == []
        totals = gateway.control.close_run(run)["receipt"]["totals"]
        assert (totals["calls"], totals["overshoot"]) == (4, {"calls": 3, "input_tokens": 15})


def test_a_report_above_a_bound_is_on_record_and_the_bound_is_used_no_more(tmp_path: Path, mock: MockProcess) -> None:
    messages = said("hello there")
    with fresh(tmp_path, mock) as gateway:
        run = gateway.opened(policy="open")
        mock.script({"prompt_tokens": 5_000, "output_tokens": 3})
        mock.clear()
        assert chat_once(gateway.port, run.key, messages=messages, max_tokens=8).status == 200
        [(name, numbers)] = events(gateway, run)
        assert (name, numbers["counted_by"], numbers["reported"]) == ("overshoot", "bound", 5_000)
        assert 0 < numbers["reserved"] < 5_000
        asked = len([record for record in mock.log() if record["path"] == "/tokenize"])
        assert chat_once(gateway.port, run.key, messages=messages, max_tokens=8).status == 200
        assert len([record for record in mock.log() if record["path"] == "/tokenize"]) == asked + 1  # counted now, though the bound alone would do
        assert [body["prompt_source"] for body in entries(gateway, run, "reserve")] == ["bound", "engine"]
        assert [("overshoot" in one) for one in flags(gateway, run)] == [True, True]


def test_an_estimate_is_charged_as_reported_flagged_where_it_was_short_and_never_called_a_drift(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("estimating", policy="estimating")
    for reported in (1, 40, 400):
        mock.script({"prompt_tokens": reported, "output_tokens": 3})
        assert chat_once(gateway.port, run.key, max_tokens=WANTS_ALL).status == 200
    assert [body["prompt_source"] for body in entries(gateway, run, "reserve")] == ["tiktoken:qwen"] * 3
    assert [body["charge"]["input_tokens"] for body in entries(gateway, run, "settle")] == [1, 40, 400]
    assert flags(gateway, run)[0] == []
    assert flags(gateway, run)[2] == ["overshoot"]
    assert events(gateway, run) == []


# what is tokenised


def test_a_call_that_its_bound_admits_is_not_counted(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("lazy", policy="capped")
    chat_once(gateway.port, run.key, max_tokens=8)
    mock.clear()
    assert chat_once(gateway.port, run.key, max_tokens=8).status == 200
    assert [record["path"] for record in mock.log()] == ["/v1/chat/completions"]


def test_the_second_call_of_a_conversation_tokenises_only_what_is_new(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("growing", policy="counted")
    mock.script({"output_tokens": 3})
    texts = ["word " * 8_000]
    sizes = []
    for turn in range(5):
        mock.clear()
        assert chat_once(gateway.port, run.key, messages=said(*texts), max_tokens=WANTS_ALL).status == 200
        [rendered, tokenised] = [record for record in mock.log() if record["path"] in ("/apply-template", "/tokenize")][-2:]
        assert (rendered["path"], tokenised["path"]) == ("/apply-template", "/tokenize")
        sizes.append(len(json.loads(tokenised["body"])["content"]))
        texts += [f"answer {turn}", f"and then? {turn}"]
    assert sizes[0] > 40_000
    assert max(sizes[1:]) < 200
    calls = entries(gateway, run, "settle")
    assert [body.get("flags", []) for body in calls] == [[]] * 5
    assert [body["reserved"]["input_tokens"] for body in entries(gateway, run, "reserve")] == [body["usage"]["input_tokens"] for body in calls]


@pytest.mark.parametrize(
    "text",
    [" " * 1_000_000, "a" * 10_000_000, "<|im_start|><|im_end|>" * 20_000, "漢\u0301😀ß\n" * 60_000],
    ids=["a million blanks", "10 MB of one letter", "names of special tokens", "mixed scripts"],
)
@pytest.mark.parametrize("policy", ["counted", "estimating"])
def test_a_hostile_prompt_is_answered_and_holds_up_nobody(gateway: GatewayProcess, mock: MockProcess, policy: str, text: str) -> None:
    run = gateway.opened(f"hostile-{policy}", policy=policy)
    begun = time.monotonic()
    answer = chat_once(gateway.port, run.key, messages=said(text), max_tokens=WANTS_ALL, timeout_s=90)
    assert answer.status in (200, 400), answer.body[:300]
    if answer.status == 400:
        assert answer.json()["error"]["code"] == "context_length_exceeded" or "context" in answer.json()["error"]["message"]
    assert time.monotonic() - begun < 60
    assert memory_bytes(gateway.process.pid) < 900_000_000
    assert chat_once(gateway.port, run.key, max_tokens=8).status == 200


def test_a_prompt_with_lone_surrogates_is_counted_or_refused_as_the_engine_would(gateway: GatewayProcess, mock: MockProcess) -> None:
    for policy in ("counted", "estimating"):
        run = gateway.opened(f"surrogates-{policy}", policy=policy)
        assert chat_once(gateway.port, run.key, messages=said("\ud800 x \udfff"), max_tokens=WANTS_ALL).status in (200, 400)


def memory_bytes(pid: int) -> int:
    """The most that the process held at once."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


# pictures


def pictured(number: int = 1) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, *[PICTURE] * number]}]


@pytest.mark.parametrize("policy", ["capped", *CAPPED])
def test_a_picture_is_refused_under_any_cap_on_input_where_nobody_said_how_long_it_is(gateway: GatewayProcess, mock: MockProcess, policy: str) -> None:
    run = gateway.opened(f"at-{policy}", policy=policy)
    mock.clear()
    answer = chat_once(gateway.port, run.keys.get("background") or run.key, messages=pictured(), max_tokens=8)
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "not_allowed", "messages")
    assert 'models."mock".image_tokens_max' in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert not mock.calls()
    eventually(lambda: [body["code"] for body in entries(gateway, run, "refuse")] == ["not_allowed"], "the refusal is on record")


def test_a_picture_passes_where_no_limit_rests_on_the_prompt(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("free", policy="open")
    assert chat_once(gateway.port, run.key, messages=pictured(), max_tokens=8).status == 200
    lanes = gateway.opened("other-lane", policy="day-of-a-lane")
    assert chat_once(gateway.port, lanes.keys["foreground"], messages=pictured(), max_tokens=8).status == 200


def test_a_picture_counts_as_declared_in_bound_and_count_and_is_never_a_drift(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("pictures", policy="pictures")
    mock.script({"output_tokens": 1, "prompt_tokens": 350})
    own = count(render({"messages": pictured()}))
    # by the bound, by the bound, then by the count: 700 are spent then, and three pictures fit only when they are counted
    for number, least in ((1, 300), (1, 300), (3, 900)):
        assert chat_once(gateway.port, run.key, messages=pictured(number), max_tokens=1).status == 200
        assert entries(gateway, run, "reserve")[-1]["reserved"]["input_tokens"] >= least + own
    assert entries(gateway, run, "reserve")[-1]["reserved"]["input_tokens"] == own + 900
    refused = chat_once(gateway.port, run.key, messages=pictured(2), max_tokens=1)
    assert (refused.status, refused.headers["x-gateway-limit"], refused.headers["x-gateway-asked"]) == (404, "run.input_tokens", str(own + 600))
    assert events(gateway, run) == []


# nobody can measure


def test_a_model_with_neither_overhead_nor_counter_is_refused_under_an_input_cap_when_its_campaign_is_opened(tmp_path: Path, mock: MockProcess) -> None:
    with fresh(tmp_path, mock, engine="generic") as gateway:
        with pytest.raises(ControlAnswered, match="overhead_tokens"):
            gateway.control.open_campaign("c1", "bytes")
        gateway.control.open_campaign("c2", "bytes-open")


def test_it_is_refused_at_its_call_where_the_engine_became_another_since_then(tmp_path: Path, mock: MockProcess) -> None:
    with fresh(tmp_path, mock) as gateway:
        run, free = gateway.opened("c1", policy="bytes"), gateway.opened("c2", policy="bytes-open")
        assert chat_once(gateway.port, run.key, max_tokens=8).status == 200
        gateway.stop()
        gateway.config.write_text(gateway.config.read_text().replace('"llama.cpp"', '"generic"'))
        gateway.start()
        refused: RawAnswer = chat_once(gateway.port, run.key, max_tokens=8)
        assert (refused.status, refused.json()["error"]["code"]) == (503, "engine_unavailable")
        assert chat_once(gateway.port, free.key, max_tokens=8).status == 200
