"""The shipped policies as they are shipped, each driven by a scripted engine to each of its limits: the last call goes, the next is refused with its numbers.

A faked system clock carries a gateway to where hours and days end; the policies themselves are not touched.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.tokens import count, render
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.faked_time import FakedTime
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.processes import ROOT
from tests.support.raw_http import RawAnswer, chat_once

STUDENT, TEACHER = "qwen3.6:35b", "large"
SHIPPED = ("pilot", "production", "tuning")
CONTEXT_TOKENS = 262_144
"""The engine's own: wider than any policy's."""
TOOL = {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}}
BEGIN = datetime(2026, 10, 3, 12, 0, 0, tzinfo=UTC)
NEAR_S = 4
"""How far before an end the clock is set: enough for a call on a busy machine."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        plays(engine, output_tokens=2)
        yield engine


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> None:
    plays(mock, output_tokens=2)
    mock.clear()


def shipped(folder: Path, mock: MockProcess, **more: Any) -> GatewayProcess:
    process = GatewayProcess(folder, mock.url, models={STUDENT: "s", TEACHER: "t", "mock": "mock"}, slots=16, **more)
    for name in SHIPPED:
        (folder / "policies" / f"{name}.toml").write_bytes((ROOT / "policies" / f"{name}.toml").read_bytes())
    return process


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with shipped(tmp_path_factory.mktemp("policies"), mock) as process:
        yield process
        assert process.stop() == 0
        with LedgerReader(process.ledger) as reader:
            assert reader.verify().fits


class Later:
    """A gateway whose clock is set forward, as a person sets one and says so."""

    def __init__(self, folder: Path, mock: MockProcess) -> None:
        self._clock = FakedTime(folder / "clock")
        self._clock.set(BEGIN)
        self.gateway = shipped(folder / "gateway", mock, env=self._clock.env)

    @property
    def now_ms(self) -> int:
        told: int = self.gateway.control.get("/v1/ledger/clock")["now_ms"]
        return told

    def set(self, at_ms: int) -> None:
        self._clock.set(datetime.fromtimestamp(at_ms / 1000, UTC))
        self.gateway.control.post("/v1/ledger/clock/accept")
        assert abs(self.now_ms - at_ms) < 2_000

    def until(self, at_ms: int) -> None:
        while (left_ms := at_ms - self.now_ms) > 0:
            time.sleep(left_ms / 1000 + 0.005)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[Later]:
    place = Later(tmp_path_factory.mktemp("later"), mock)
    with place.gateway:
        yield place


def plays(mock: MockProcess, **script: object) -> None:
    mock.script({"context_tokens": CONTEXT_TOKENS, "default": script})


def call(gateway: GatewayProcess, key: str, model: str = STUDENT, /, **body: Any) -> RawAnswer:
    return chat_once(gateway.port, key, model=model, **body)


def many(gateway: GatewayProcess, key: str, number: int, model: str = STUDENT, *, at_once: int = 8, **body: Any) -> None:
    """So many calls, all of which must go."""
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda _: call(gateway, key, model, **body), range(number)))
    assert [answer.status for answer in answers] == [200] * number, next(answer for answer in answers if answer.status != 200).body


def is_refused(answer: RawAnswer, limit: str, *, ceiling: int, settled: int | None = None, asked: int | None = None, code: str = "run_budget_reached") -> bool:
    assert (answer.status, answer.json()["error"]["code"]) == (404, code), answer.body
    told = answer.headers
    assert (told["x-gateway-limit"], told["x-gateway-ceiling"], told["x-should-retry"]) == (limit, str(ceiling), "false")
    assert (told["x-gateway-settled"], told["x-gateway-reserved"]) == (str(ceiling if settled is None else settled), "0")
    assert asked is None or told["x-gateway-asked"] == str(asked)
    assert "retry-after" not in told
    return True


def sent(mock: MockProcess, answer: RawAnswer) -> dict[str, Any]:
    """The body with which the engine was asked."""
    [record] = [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]
    body: dict[str, Any] = json.loads(record["body"])
    return body


def reached(mock: MockProcess) -> int:
    return len(mock.calls())


def prompt_of(tokens: int, **body: object) -> dict[str, Any]:
    """A body whose prompt is rendered to exactly so many tokens, template and tools included."""
    whole: dict[str, Any] = {**body, "messages": [{"role": "user", "content": ""}]}
    text = "word " * (tokens // 2 + 1)
    missing = tokens - count(render({**whole, "messages": [{"role": "user", "content": ""}]}))
    whole["messages"] = [{"role": "user", "content": text[: 5 * (missing // 2)] + ("word" if missing % 2 else "")}]
    assert count(render(whole)) == tokens
    return whole


def declined(gateway: GatewayProcess, campaign: str, **more: Any) -> ControlAnswered:
    with pytest.raises(ControlAnswered) as caught:
        gateway.control.open_run(campaign, **more)
    return caught.value


def details(gateway: GatewayProcess, campaign: str) -> dict[str, Any]:
    """What stands on record of the campaign's last call."""
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT body FROM journal WHERE kind = 'reserve' AND json_extract(body, '$.campaign') = :campaign", campaign=campaign)
    found: dict[str, Any] = json.loads(str(rows[-1]["body"]))["details"]
    return found


# -- pilot.toml


def test_pilot_a_run_has_fifty_requests_in_its_foreground(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("pilot-foreground", "r1", policy="pilot")
    many(gateway, run.keys["foreground"], 50)
    assert is_refused(call(gateway, run.keys["foreground"]), "run.foreground.requests", ceiling=50, asked=1)
    assert reached(mock) == 50
    assert call(gateway, run.keys["background"]).status == 200, "another lane is not stopped"
    assert call(gateway, gateway.opened("pilot-foreground", "r2").keys["foreground"]).status == 200, "nor another run"


def test_pilot_the_campaign_has_a_hundred_and_forty_requests_over_both_lanes(gateway: GatewayProcess, mock: MockProcess) -> None:
    runs = [gateway.opened("pilot-whole", f"r{number}", policy="pilot") for number in range(3)]
    many(gateway, runs[0].keys["foreground"], 50)
    many(gateway, runs[1].keys["foreground"], 50)
    many(gateway, runs[1].keys["background"], 29)
    refused = declined(gateway, "pilot-whole", run="r3")
    assert refused.code == "run_budget_reached" and "campaign.requests" in json.dumps(refused.body), "eleven are left, a run may need fifty: it is not begun"
    many(gateway, runs[2].keys["foreground"], 11)
    for lane in ("foreground", "background"):
        assert is_refused(call(gateway, runs[2].keys[lane]), "campaign.requests", ceiling=140, asked=1)
    assert reached(mock) == 140


def test_pilot_a_call_gets_8192_output_tokens_and_not_one_more(gateway: GatewayProcess, mock: MockProcess) -> None:
    key = gateway.opened("pilot-output", "r1", policy="pilot").keys["foreground"]
    for asked, expected in ((None, 8_192), (8_191, 8_191), (8_192, 8_192), (8_193, 8_192), (10**12, 8_192)):
        answer = call(gateway, key, **({} if asked is None else {"max_tokens": asked}))
        assert answer.status == 200
        assert sent(mock, answer)["max_tokens"] == expected, asked


def test_pilot_prompt_and_output_share_a_context_of_65536(gateway: GatewayProcess, mock: MockProcess) -> None:
    key = gateway.opened("pilot-context", "r1", policy="pilot").keys["foreground"]
    fits = call(gateway, key, **prompt_of(65_536 - 8_192))
    assert sent(mock, fits)["max_tokens"] == 8_192
    narrow = call(gateway, key, **prompt_of(65_536 - 8_191))
    assert sent(mock, narrow)["max_tokens"] == 8_191
    above = call(gateway, key, **prompt_of(65_536))
    assert (above.status, above.json()["error"]["type"]) == (400, "exceed_context_size_error"), "the engine's own words, on which agents compact"
    assert reached(mock) == 2


def test_pilot_the_background_has_thirty_requests_a_day_in_shanghai_over_all_runs(later: Later, mock: MockProcess) -> None:
    gateway = later.gateway
    runs = [gateway.opened("pilot-day", f"r{number}", policy="pilot") for number in range(2)]
    many(gateway, runs[0].keys["background"], 17, at_once=1)  # a faked clock makes threads wait for each other
    many(gateway, runs[1].keys["background"], 13, at_once=1)
    refused = call(gateway, runs[0].keys["background"])
    assert is_refused(refused, "campaign.background.day.requests", ceiling=30, asked=1)
    midnight = datetime.fromisoformat(refused.headers["x-gateway-resets-at"])
    assert (midnight.hour, midnight.minute, midnight.second) == (16, 0, 0), "midnight in Shanghai"
    assert timedelta(0) < midnight - datetime.fromtimestamp(later.now_ms / 1000, UTC) <= timedelta(days=1)
    assert call(gateway, runs[0].keys["foreground"]).status == 200
    later.set(round(midnight.timestamp() * 1000))
    many(gateway, runs[0].keys["background"], 30, at_once=1)
    next_day = call(gateway, runs[1].keys["background"])
    assert is_refused(next_day, "campaign.background.day.requests", ceiling=30)
    assert datetime.fromisoformat(next_day.headers["x-gateway-resets-at"]) == midnight + timedelta(days=1)


# -- times: a clock that is set to just before the end


def is_over(later: Later, run: OpenedRun, lane: str, limit: str, seconds: int, *, ends_at_ms: int, code: str = "run_budget_reached") -> bool:
    """Just before the moment a call goes, from the moment on none does."""
    later.set(ends_at_ms - NEAR_S * 1_000)
    assert call(later.gateway, run.keys[lane]).status == 200
    assert later.now_ms < ends_at_ms, "that was before"
    later.until(ends_at_ms)
    refused = call(later.gateway, run.keys[lane])
    elapsed_s = int(refused.headers.get("x-gateway-settled", "-1"))
    assert seconds <= elapsed_s <= seconds + 2
    return is_refused(refused, limit, ceiling=seconds, settled=elapsed_s, code=code)


def ends_at(later: Later, run: OpenedRun, name: str) -> int:
    [ends_at_ms] = [each["ends_at_ms"] for each in later.gateway.control.run(run)["deadlines"] if each["name"] == name]
    return int(ends_at_ms)


def first_call_ms(later: Later, run: OpenedRun) -> int:
    chain = f"run:{run.campaign}/{run.run}"
    with LedgerReader(later.gateway.ledger) as reader:
        return min(int(str(row["at_ms"])) for row in reader.query("SELECT at_ms FROM entries WHERE kind = 'reserve' AND chain = :chain", chain=chain))


def test_pilot_the_foreground_of_a_run_has_twenty_minutes_from_its_first_call(later: Later) -> None:
    run = later.gateway.opened("pilot-wall", "r1", policy="pilot")
    assert call(later.gateway, run.keys["foreground"]).status == 200
    ends_at_ms = ends_at(later, run, "run.foreground.wall_seconds")
    assert ends_at_ms - first_call_ms(later, run) == 1_200_000
    assert is_over(later, run, "foreground", "run.foreground.wall_seconds", 1_200, ends_at_ms=ends_at_ms)
    assert call(later.gateway, run.keys["background"]).status == 200, "the other lane has no such end"


@pytest.mark.parametrize(("policy", "lane"), [("production", "student"), ("tuning", "foreground")])
def test_a_run_has_half_an_hour_from_its_first_call(later: Later, policy: str, lane: str) -> None:
    run = later.gateway.opened(f"{policy}-wall", "r1", policy=policy, task="t1")
    assert call(later.gateway, run.keys[lane]).status == 200
    ends_at_ms = ends_at(later, run, "run.wall_seconds")
    assert ends_at_ms - first_call_ms(later, run) == 1_800_000
    assert is_over(later, run, lane, "run.wall_seconds", 1_800, ends_at_ms=ends_at_ms)


def test_production_the_campaign_admits_for_four_hours(later: Later) -> None:
    gateway = later.gateway
    gateway.control.open_campaign("production-span", "production")
    opened_ms = later.now_ms
    later.set(opened_ms + 14_000_000)
    run = gateway.control.open_run("production-span", "r1", task="t1")
    assert call(gateway, run.keys["student"]).status == 200
    ends_at_ms = ends_at(later, run, "campaign.span_seconds")
    assert 14_399_000 <= ends_at_ms - opened_ms <= 14_400_000
    assert is_over(later, run, "student", "campaign.span_seconds", 14_400, ends_at_ms=ends_at_ms, code="window_over")
    assert declined(gateway, "production-span", run="r2", task="t2").code == "window_over"


# -- production.toml


def test_production_a_run_has_sixty_requests_over_both_lanes(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("production-requests", "r1", policy="production", task="t1")
    many(gateway, run.keys["student"], 40)
    many(gateway, run.keys["teacher"], 20, TEACHER)
    assert is_refused(call(gateway, run.keys["student"]), "run.requests", ceiling=60, asked=1)
    assert is_refused(call(gateway, run.keys["teacher"], TEACHER), "run.requests", ceiling=60, asked=1)
    assert reached(mock) == 60


def test_production_a_run_has_65536_output_tokens_to_the_last_one(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("production-output", "r1", policy="production", task="t1")
    plays(mock, chunk_tokens=1_000)
    for _ in range(7):
        assert call(gateway, run.keys["teacher"], TEACHER).status == 200
    assert call(gateway, run.keys["student"], max_tokens=7_168).status == 200
    last = call(gateway, run.keys["teacher"], TEACHER)
    assert sent(mock, last)["max_tokens"] == 1_024, "all that is left"
    assert last.headers["x-gateway-clamped"] == "1024 run.output_tokens"
    assert is_refused(call(gateway, run.keys["student"]), "run.output_tokens", ceiling=65_536, asked=8_192)
    assert sum(record["output_tokens"] for record in mock.calls()) == 65_536


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["no tools", "tools"])
def test_production_the_teacher_takes_over_where_the_students_prompt_is_one_token_too_long(
    gateway: GatewayProcess, mock: MockProcess, tools: list[object]
) -> None:
    run = gateway.opened(f"production-prompt-{len(tools)}", "r1", policy="production", task="t1")
    body: dict[str, Any] = {"tools": tools} if tools else {}
    assert call(gateway, run.keys["student"], **prompt_of(15_000, **body)).status == 200
    above = prompt_of(15_001, **body)
    for _ in range(2):
        refused = call(gateway, run.keys["student"], **above)
        assert is_refused(refused, "call.student.prompt_tokens", ceiling=15_000, settled=0, asked=15_001, code="prompt_above_cap")
    assert call(gateway, run.keys["teacher"], TEACHER, **above).status == 200, "in the same run, another model, without that cap"
    assert call(gateway, run.keys["student"], TEACHER).status == 404, "the student may not use it"
    assert [json.loads(record["body"])["model"] for record in mock.calls()] == ["s", "t"]
    receipt = gateway.control.close_run(run)["receipt"]
    assert receipt["seen"].get("stopped_by") is None, "a call was sent after the refusal"
    assert receipt["totals"]["refused"]["prompt_above_cap"] == 2


def test_production_twenty_runs_are_opened_whatever_became_of_them(gateway: GatewayProcess) -> None:
    runs = [gateway.opened("production-runs", f"r{number}", policy="production", task=f"t{number}") for number in range(20)]
    assert call(gateway, runs[1].keys["student"]).status == 200
    for run in (runs[0], runs[1]):
        gateway.control.close_run(run)
    refused = declined(gateway, "production-runs", run="r20", task="t20")
    assert (refused.status, refused.code) == (409, "run_budget_reached")
    assert "campaign.runs is 20" in json.dumps(refused.body)
    gateway.opened("production-runs-2", "r0", policy="production", task="t0")  # another campaign has runs of its own


def test_production_a_task_is_attempted_once(gateway: GatewayProcess) -> None:
    run = gateway.opened("production-tasks", "r1", policy="production", task="t1")
    assert declined(gateway, "production-tasks", run="r2", task="t1").status == 409
    gateway.control.close_run(run)
    refused = declined(gateway, "production-tasks", run="r3", task="t1")
    assert refused.status == 409 and "run.attempts_per_task" in json.dumps(refused.body)
    gateway.control.open_run("production-tasks", "r4", task="t2")
    assert declined(gateway, "production-tasks", run="r5").code == "invalid", "what names no task could be any task"


def test_production_labels_are_never_added_up_unawares(gateway: GatewayProcess) -> None:
    for number, label in enumerate(("engineering", "production", "production")):
        run = gateway.opened("production-labels", f"r{number}", policy="production", task=f"t{number}", label=label)
        assert call(gateway, run.keys["student"], max_tokens=4).status == 200
        gateway.control.close_run(run)
    path = "/v1/usage?campaign=production-labels"
    with pytest.raises(ControlAnswered) as caught:
        gateway.control.get(f"{path}&by=campaign")
    assert (caught.value.status, caught.value.code) == (400, "mixed_labels")
    by_label = gateway.control.get(f"{path}&by=label")
    assert {group["label"]: group["calls"] for group in by_label["groups"]} == {"engineering": 1, "production": 2}
    assert by_label["total"] is None
    assert gateway.control.get(f"{path}&by=campaign&across_labels=1")["total"]["calls"] == 3
    receipt = gateway.control.post("/v1/campaigns/production-labels/close")["receipt"]
    assert "totals" not in receipt
    assert {each["label"]: each["totals"]["calls"] for each in receipt["labels"]} == {"engineering": 1, "production": 2}


# -- tuning.toml


def test_tuning_a_call_gets_32768_output_tokens_and_not_one_more(gateway: GatewayProcess, mock: MockProcess) -> None:
    key = gateway.opened("tuning-output", "r1", policy="tuning").key
    for asked, expected in ((None, 32_768), (32_767, 32_767), (32_768, 32_768), (32_769, 32_768)):
        assert sent(mock, call(gateway, key, **({} if asked is None else {"max_tokens": asked})))["max_tokens"] == expected, asked


def test_tuning_prompt_and_output_of_a_call_share_131072(gateway: GatewayProcess, mock: MockProcess) -> None:
    key = gateway.opened("tuning-context", "r1", policy="tuning").key
    fits = call(gateway, key, **prompt_of(131_072 - 32_768))
    assert sent(mock, fits)["max_tokens"] == 32_768
    narrow = call(gateway, key, **prompt_of(131_072 - 1))
    assert sent(mock, narrow)["max_tokens"] == 1
    with LedgerReader(gateway.ledger) as reader:
        assert [row["ceiling_from"] for row in reader.calls(campaign="tuning-context")] == ["call.output_tokens", "call.context_tokens"]
    above = call(gateway, key, **prompt_of(131_072))
    assert is_refused(above, "call.context_tokens", ceiling=131_072, settled=0, asked=131_073, code="prompt_above_cap")
    beyond = call(gateway, key, **prompt_of(CONTEXT_TOKENS + 1))
    assert is_refused(beyond, "call.context_tokens", ceiling=131_072, settled=0, code="prompt_above_cap"), "the policy's stop goes before the engine's overflow"
    assert reached(mock) == 2


def test_tuning_a_run_has_65536_generated_tokens_reasoning_included(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("tuning-generated", "r1", policy="tuning")
    plays(mock, chunk_tokens=1_000, reasoning_tokens=30_000)
    assert call(gateway, run.key).status == 200
    assert call(gateway, run.key, max_tokens=32_767).status == 200
    one_left = call(gateway, run.key, max_tokens=1)
    assert sent(mock, one_left)["max_tokens"] == 1
    assert is_refused(call(gateway, run.key, max_tokens=1), "run.output_tokens", ceiling=65_536, asked=1)
    assert sum(record["output_tokens"] for record in mock.calls()) == 65_536


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_tuning_a_run_has_a_hundred_and_twenty_tool_calls_and_what_crosses_is_delivered(
    gateway: GatewayProcess, mock: MockProcess, stream: bool, last: int
) -> None:
    run = gateway.opened(f"tuning-tools-{last}-{'stream' if stream else 'whole'}", "r1", policy="tuning")
    plays(mock, tool_calls=17)
    for _ in range(7):
        assert call(gateway, run.key, stream=stream, tools=[TOOL]).status == 200
    plays(mock, tool_calls=last)
    crossing = call(gateway, run.key, stream=stream, tools=[TOOL])
    assert crossing.status == 200, "a hundred and nineteen: one is left"
    assert crossing.body.count(b'"id":"call_') == last, "the answer is whole"
    assert is_refused(call(gateway, run.key, stream=stream), "run.tool_calls", ceiling=120, settled=119 + last)
    assert gateway.control.close_run(run)["receipt"]["seen"]["stopped_by"] == "run.tool_calls"


def test_tuning_sampling_and_template_are_pinned_and_both_sides_stand_on_record(gateway: GatewayProcess, mock: MockProcess) -> None:
    key = gateway.opened("tuning-sampling", "r1", policy="tuning").key
    asked = {"temperature": 1.9, "reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False, "other": [1]}, "top_k": 5}
    answer = call(gateway, key, **asked)
    forwarded = sent(mock, answer)
    pinned = {"temperature": 0.6, "top_p": 0.95, "reasoning_effort": "medium", "seed": 7, "top_k": 5}
    assert {name: forwarded[name] for name in pinned} == pinned
    assert forwarded["chat_template_kwargs"] == {"enable_thinking": True, "reasoning_effort": "medium", "other": [1]}
    record = details(gateway, "tuning-sampling")
    names = (*pinned, "chat_template_kwargs")
    as_asked, as_sent = ({name: json.loads(text) for name, text in record[side].items() if name in names} for side in ("settings_asked", "settings_sent"))
    assert as_asked == asked
    assert as_sent == {name: forwarded[name] for name in names}


def test_tuning_a_default_gives_way_to_what_the_agent_names(gateway: GatewayProcess, mock: MockProcess) -> None:
    key = gateway.opened("tuning-default", "r1", policy="tuning").key
    assert [sent(mock, call(gateway, key, **body))["seed"] for body in ({}, {"seed": None}, {"seed": 8}, {"seed": 0})] == [7, 7, 8, 0]


@pytest.mark.parametrize("field", ["logit_bias", "thinking"])
def test_tuning_what_is_forbidden_is_refused_and_never_changed_in_silence(gateway: GatewayProcess, mock: MockProcess, field: str) -> None:
    key = gateway.opened("tuning-forbidden", policy="tuning").key
    answer = call(gateway, key, **{field: {"a": 1}})
    assert (answer.status, answer.json()["error"]["code"], answer.headers["x-should-retry"]) == (400, "not_allowed", "false")
    assert field in answer.json()["error"]["message"] and "body.forbid" in answer.json()["error"]["message"]
    assert reached(mock) == 0
