"""What an agent and its driver can ask and are told, as a black box: budget, preflight, warnings, what is left, why a call went as it did, policies anew."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.root import root
from gateway.ledger.reading import LedgerReader
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.processes import ROOT
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

BUDGET, PREFLIGHT = "/gateway/v1/budget", "/gateway/v1/preflight"
LANES: Tables = {"lanes": {"foreground": {}, "background": {}}}
POLICIES: dict[str, Tables] = {
    "told": {
        **LANES,
        "timezone": "Asia/Shanghai",
        "call": {"output_tokens": 32},
        "run": {"requests": 10, "output_tokens": 400, "wall_seconds": 900, "foreground": {"requests": 5}},
        "campaign": {"background": {"day": {"requests": 30}}, "span_seconds": 9000},
    },
    "silent": {"agent": {"tell_agent": False, "warn_at": 0.1}, "run": {"requests": 10}},
    "checked": {**LANES, "agent": {"require_preflight": True}, "run": {"requests": 3}},
    "warned": {"agent": {"warn_at": 0.7}, "run": {"requests": 10, "concurrent": 2, "model": {"mock": {"requests": 3}}}},
    "left": {"run": {"requests": 1000, "output_tokens": 100_000}},
    "clamped": {"run": {"output_tokens": 30}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1}},
    "one-at-a-time": {"run": {"concurrent": 1}, "admission": {"queue_seconds": 20}},
    "short": {"run": {"wall_seconds": 1}},
}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess(script={"output_tokens": 4}) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    whole = {name: merged(POLICY, tables) for name, tables in POLICIES.items()}
    settings: Tables = {"limits": {"requests": 100_000}}
    with GatewayProcess(tmp_path_factory.mktemp("telling"), mock.url, policies=whole, slots=16, settings=settings) as process:
        yield process


@pytest.fixture(autouse=True)
def plain(mock: MockProcess) -> Iterator[None]:
    yield
    mock.script({"output_tokens": 4})


def ask(gateway: GatewayProcess, key: str, method: str, path: str, body: object = None) -> RawAnswer:
    with RawClient(gateway.port) as client:
        data = b"" if body is None else json.dumps(body).encode()
        client.request(method, path, headers={"Authorization": f"Bearer {key}", "Connection": "close"}, body=data)
        return client.answer()


def budget(gateway: GatewayProcess, key: str) -> Any:
    answer = ask(gateway, key, "GET", BUDGET)
    assert answer.status == 200, answer.body
    return answer.json()


def limit(told: Any, name: str) -> Any:
    [found] = [each for each in told["limits"] if each["name"] == name]
    return found


def typed(gateway: GatewayProcess, *words: str) -> Result:
    return CliRunner().invoke(root, list(words), env={"GATEWAY_SOCKET": gateway.process.ready["control"].removeprefix("unix:")})


def line_of(gateway: GatewayProcess, policy: str, table: str, key: str) -> int:
    lines = (gateway.folder / "policies" / f"{policy}.toml").read_text().splitlines()
    start = lines.index(f"[{table}]")
    return next(at for at in range(start, len(lines)) if lines[at].startswith(f"{key} =")) + 1


# -- the budget


def test_a_key_hears_the_effective_limits_of_its_run_and_lane_and_where_each_was_set(gateway: GatewayProcess) -> None:
    run = gateway.opened("told-1", "r1", policy="told")
    assert chat_once(gateway.port, run.keys["foreground"], max_tokens=4).status == 200
    told = budget(gateway, run.keys["foreground"])
    assert (told["campaign"], told["run"], told["lane"], told["live"]) == ("told-1", "r1", "foreground", True)
    assert [each["name"] for each in told["limits"]] == ["run.foreground.requests", "run.requests", "run.output_tokens", "gateway.requests"]
    own = limit(told, "run.foreground.requests")
    assert (own["ceiling"], own["settled"], own["reserved"], own["left"]) == (5, 1, 0, 4)
    assert own["origin"] == f"told.toml:{line_of(gateway, 'told', 'run.foreground', 'requests')}"
    assert limit(told, "run.output_tokens")["left"] == 396
    assert limit(told, "gateway.requests")["origin"].startswith("gateway.toml:")
    assert [each["name"] for each in told["call"]] == ["call.output_tokens"]
    assert {each["name"]: each["ceiling"] for each in told["deadlines"]} == {"run.wall_seconds": 900, "campaign.span_seconds": 9000}
    assert all("ends_at" in each for each in told["deadlines"])
    campaign = gateway.control.get("/v1/campaigns/told-1")
    assert (told["policy_hash"], told["limits_hash"]) == (campaign["policy_hash"], campaign["limits_hash"])
    assert str(gateway.folder) not in json.dumps(told)

    other = budget(gateway, run.keys["background"])
    day = limit(other, "campaign.background.day.requests")
    assert (day["left"], day["resets_at"][-10:]) == (30, "T16:00:00Z")  # midnight in Shanghai
    assert "run.foreground.requests" not in {each["name"] for each in other["limits"]}


def test_a_revoked_key_and_a_closed_run_still_hear_their_budget(gateway: GatewayProcess) -> None:
    run = gateway.opened("told-2", "r1", policy="told")
    [key] = [each for each in gateway.control.get("/v1/keys?campaign=told-2&run=r1")["keys"] if each["lane"] == "background"]
    gateway.control.post(f"/v1/keys/{key['key_id']}/revoke")
    assert budget(gateway, run.keys["background"])["live"] is False
    gateway.control.close_run(run)
    told = budget(gateway, run.keys["foreground"])
    assert (told["state"], told["live"]) == ("closed", False)
    assert ask(gateway, run.keys["foreground"], "POST", PREFLIGHT, {"expect": {"run.requests": 10}}).json()["error"]["code"] == "run_closed"


def test_where_agents_may_not_know_neither_path_exists(gateway: GatewayProcess) -> None:
    run = gateway.opened("silent-1", "r1", policy="silent")
    undeclared = ask(gateway, run.key, "GET", "/gateway/v1/nothing")
    for method, path in (("GET", BUDGET), ("POST", PREFLIGHT)):
        answer = ask(gateway, run.key, method, path, {"expect": {"run.requests": 10}} if method == "POST" else None)
        assert (answer.status, answer.body) == (undeclared.status, undeclared.body) == (404, undeclared.body)
    answers = [chat_once(gateway.port, run.key, max_tokens=4) for _ in range(2)]
    assert [name for answer in answers for name in answer.headers if name.startswith("x-gateway-")] == []
    assert gateway.control.post("/v1/campaigns/silent-1/runs/r1/preflight", {"expect": {"run.requests": 10}})["passed"]  # the driver may


@pytest.mark.parametrize(
    ("method", "path"), [("POST", BUDGET), ("GET", PREFLIGHT), ("GET", BUDGET + "/"), ("GET", "/gateway/v1//budget"), ("GET", "/Gateway/v1/budget")]
)
def test_only_these_methods_and_spellings_are_heard(gateway: GatewayProcess, method: str, path: str) -> None:
    run = gateway.opened("told-3", policy="told")
    assert ask(gateway, run.key, method, path).status == 404
    assert ask(gateway, "gw-nobody", method, path).status == 401


def test_a_person_sees_the_budget_of_all_lanes_or_one(gateway: GatewayProcess) -> None:
    gateway.opened("told-4", "r1", policy="told")
    everything = typed(gateway, "run", "budget", "told-4/r1")
    assert everything.exit_code == 0, everything.stderr
    for name in ("run.foreground.requests", "campaign.background.day.requests", "call.output_tokens", "run.wall_seconds", "gateway.requests"):
        assert name in everything.stdout
    assert "told.toml:" in everything.stdout and "gateway.toml:" in everything.stdout
    assert "run.foreground.requests" not in typed(gateway, "run", "budget", "told-4/r1", "--lane", "background").stdout
    assert typed(gateway, "run", "budget", "told-4/r1", "--lane", "sideways").exit_code == 2


# -- preflight


def test_a_preflight_tells_each_difference_and_takes_any_ending_that_fits_exactly_one(gateway: GatewayProcess) -> None:
    run = gateway.opened("told-5", "r1", policy="told")
    key = run.keys["background"]
    policy_hash = budget(gateway, key)["policy_hash"]
    right = {"policy": policy_hash, "run.requests": 10, "background.day.requests": 30, "wall_seconds": 900, "run.foreground.requests": 5}
    assert ask(gateway, key, "POST", PREFLIGHT, {"expect": right}).json() == {"passed": True, "differences": []}
    answer = ask(gateway, key, "POST", PREFLIGHT, {"expect": {"policy": "0" * 64, "day.requests": 31, "requests": 10, "run.request": 10, "wall_seconds": 900}})
    assert (answer.status, answer.headers["x-should-retry"], answer.json()["error"]["code"]) == (409, "false", "preflight_failed")
    found = {each["name"]: each for each in answer.json()["differences"]}
    assert {name: each["why"] for name, each in found.items()} == {
        "policy": "differs",
        "day.requests": "differs",
        "requests": "ambiguous",
        "run.request": "unknown",
    }
    assert (found["policy"]["found"], found["day.requests"]["found"]) == (policy_hash, 30)
    assert found["day.requests"]["limit"] == "campaign.background.day.requests"
    assert set(found["requests"]["fits"]) == {"run.requests", "campaign.background.day.requests", "gateway.requests"}
    assert found["run.request"]["fits"] == ["run.requests"]


@pytest.mark.parametrize(
    "body", [None, [], {}, {"expect": {}}, {"expect": {"run.requests": True}}, {"expect": {"run.requests": 1.5}}, {"expect": 1}, {"expect": {"a": 1}, "b": 1}]
)
def test_a_preflight_that_is_none_is_an_error_and_passes_nothing(gateway: GatewayProcess, body: object) -> None:
    run = gateway.opened("checked-1", policy="checked")
    answer = ask(gateway, run.key, "POST", PREFLIGHT, body)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "body_invalid")
    assert chat_once(gateway.port, run.key).status == 404


def test_no_call_goes_before_a_preflight_has_passed_where_the_policy_requires_one_and_a_restart_does_not_undo_it(tmp_path: Path, mock: MockProcess) -> None:
    with GatewayProcess(tmp_path, mock.url, policies={"checked": merged(POLICY, POLICIES["checked"])}) as gateway:
        run, other = gateway.opened("c1", "r1", policy="checked"), gateway.opened("c1", "r2")
        refused = chat_once(gateway.port, run.key)
        assert (refused.status, refused.json()["error"]["code"]) == (404, "preflight_required")
        assert refused.headers["x-should-retry"] == "false" and "retry-after" not in refused.headers
        assert ask(gateway, run.key, "POST", PREFLIGHT, {"expect": {"run.requests": 4}}).status == 409
        assert chat_once(gateway.port, run.key).status == 404
        assert ask(gateway, run.keys["background"], "POST", PREFLIGHT, {"expect": {"run.requests": 3}}).status == 200
        assert chat_once(gateway.port, run.key).status == 200  # any lane's preflight serves the whole run
        gateway.kill()
        gateway.start()
        assert budget(gateway, run.key)["preflight"] == {"required": True, "passed": True}
        assert chat_once(gateway.port, run.key).status == 200
        assert chat_once(gateway.port, other.key).json()["error"]["code"] == "preflight_required"
        assert gateway.control.post("/v1/campaigns/c1/runs/r2/preflight", {"expect": {"requests": 3}})["passed"]
        assert chat_once(gateway.port, other.key).status == 200
        for _ in range(3):
            ask(gateway, run.key, "POST", PREFLIGHT, {"expect": {"run.requests": 3}})
        assert limit(budget(gateway, run.key), "run.requests")["origin"].startswith("checked.toml:")  # known after a restart too
        assert gateway.stop() == 0
        with LedgerReader(gateway.ledger) as reader:
            assert [event["name"] for event in events(reader, "preflight")] == ["preflight"] * 2
            assert reader.verify().fits


def events(reader: LedgerReader, name: str) -> list[Any]:
    bodies = [json.loads(str(row["body"])) for row in reader.query("SELECT body FROM entries WHERE kind = 'event' ORDER BY number")]
    return [body for body in bodies if body["name"] == name]


def test_a_driver_checks_its_beliefs_from_the_command_line(gateway: GatewayProcess) -> None:
    gateway.opened("told-6", "r1", policy="told")
    policy_hash = gateway.control.get("/v1/campaigns/told-6")["policy_hash"]
    right = typed(gateway, "preflight", "told-6/r1", "--expect", "campaign.background.day.requests=30", "--expect", f"policy={policy_hash}")
    assert (right.exit_code, right.stdout) == (0, "Run told-6/r1: 2 as expected.\n")
    wrong = typed(gateway, "preflight", "--run", "told-6/r1", "--expect", "day.requests=31", "--expect", "requests=5", "--expect", "policy=abc")
    assert wrong.exit_code == 1
    assert len(wrong.stdout.splitlines()) == 3
    assert "day.requests (campaign.background.day.requests) is 30, not 31" in wrong.stdout
    lane = typed(gateway, "preflight", "told-6/r1", "--lane", "foreground", "--expect", "foreground.requests=5", "--json")
    assert json.loads(lane.stdout) == {"passed": True, "differences": []}
    assert typed(gateway, "preflight", "told-6/r1", "--expect", "requests").exit_code == 2
    assert typed(gateway, "preflight", "--expect", "requests=1").exit_code == 2


# -- warnings


def test_a_limit_of_which_little_is_left_is_told_once_and_is_on_record(tmp_path: Path, mock: MockProcess) -> None:
    with GatewayProcess(tmp_path, mock.url, policies={"warned": merged(POLICY, POLICIES["warned"])}) as gateway:
        run = gateway.opened("c1", "r1", policy="warned")
        told = [chat_once(gateway.port, run.key).headers.get("x-gateway-warning") for _ in range(3)]
        assert told == [None, None, 'run.model."mock".requests']  # seven tenths of three is more than two
        gateway.kill()
        gateway.start()
        assert chat_once(gateway.port, run.key).status == 404
        assert gateway.stop() == 0
        with LedgerReader(gateway.ledger) as reader:
            [event] = events(reader, "warn_at")
    assert event["details"] == {
        "limit": 'run.model."mock".requests',
        "account": "run|c1/r1||mock|requests|",
        "ceiling": 3,
        "settled": 2,
        "reserved": 1,
    }


def test_a_warning_comes_with_the_call_that_brings_the_limit_there_and_not_again_after_a_restart(tmp_path: Path, mock: MockProcess) -> None:
    policy = merged(POLICY, {"agent": {"warn_at": 0.7}, "run": {"requests": 10}})
    with GatewayProcess(tmp_path, mock.url, policies={"warned": policy}) as gateway:
        run = gateway.opened("c1", "r1", policy="warned")
        told = [chat_once(gateway.port, run.key).headers.get("x-gateway-warning") for _ in range(8)]
        assert told == [None] * 6 + ["run.requests", None]
        gateway.kill()
        gateway.start()
        assert "x-gateway-warning" not in chat_once(gateway.port, run.key).headers
        assert gateway.control.metric("gateway_warnings_total") == 0  # of this process


def test_of_many_calls_at_once_one_bears_the_warning(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("left-warned", "r1", policy="warned")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: chat_once(gateway.port, run.key), range(10)))
    assert [answer.headers["x-gateway-warning"] for answer in answers if "x-gateway-warning" in answer.headers] == ['run.model."mock".requests']


# -- what is left


def test_what_is_left_never_rises_where_calls_overlap(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("left-1", "r1", policy="left")
    # The engine answers the first at once and says nothing for long: its numbers are those of its beginning, and it is told them last.
    mock.script([{"prefill_ms": 1500, "ping_ms": 1200, "output_tokens": 4}, *[{"output_tokens": 4}] * 40])
    with RawClient(gateway.port) as slow:
        slow.chat(run.key, stream=True, max_tokens=4)
        eventually(lambda: gateway.control.run(run)["in_flight"] == 1, "the slow call is sent")
        meanwhile = [chat_once(gateway.port, run.key, max_tokens=4, stream=bool(number % 2)) for number in range(6)]
        last = slow.answer()
    for name in ("x-gateway-left-requests", "x-gateway-left-output"):
        told = [int(answer.headers[name]) for answer in (*meanwhile, last)]
        assert told == sorted(told, reverse=True), name
        assert told[0] >= told[-2] > 0


def test_what_is_left_never_rises_under_many_callers(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("left-2", "r1", policy="left")
    mock.script({"output_tokens": 4, "gap_ms": 2})
    lock, told = threading.Lock(), []

    def one(number: int) -> None:
        answer = chat_once(gateway.port, run.key, max_tokens=4, stream=bool(number % 2))
        with lock:
            told.append(int(answer.headers["x-gateway-left-output"]))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(120)))
    after = int(chat_once(gateway.port, run.key, max_tokens=4).headers["x-gateway-left-output"])
    assert after <= min(told)
    assert after == 100_000 - 4 * 120


# -- why


def explained(gateway: GatewayProcess, call: str) -> Any:
    done = typed(gateway, "explain", call, "--json")
    assert done.exit_code == 0, done.stderr
    from_file = CliRunner().invoke(root, ["explain", call, "--ledger", str(gateway.ledger), "--json"])
    assert json.loads(from_file.stdout) == json.loads(done.stdout)
    return json.loads(done.stdout)


def test_it_is_explained_why_a_call_was_clamped_and_why_one_was_refused(gateway: GatewayProcess) -> None:
    run = gateway.opened("clamped-1", "r1", policy="clamped")
    answers = [first := chat_once(gateway.port, run.key, max_tokens=20)]
    while answers[-1].status == 200:
        answers.append(chat_once(gateway.port, run.key, max_tokens=20))
    by = next(answer for answer in answers if "x-gateway-clamped" in answer.headers)
    output = int(by.headers["x-gateway-clamped"].split()[0])
    why = explained(gateway, by.headers["x-request-id"])
    assert why["clamped_by"] == {"name": "run.output_tokens", "ceiling": 30, "settled": 30 - output, "reserved": 0, "asked": 20}
    assert f"clamped to {output} output tokens of the 20 that it wanted" in " ".join(why["why"])
    why = explained(gateway, answers[-1].headers["x-request-id"])
    assert (why["status"], why["code"], why["final"]) == ("refused", "run_budget_reached", True)
    assert why["limit"] == {"name": "run.output_tokens", "ceiling": 30, "settled": 30, "reserved": 0, "asked": 20}
    shown = typed(gateway, "explain", answers[-1].headers["x-request-id"]).stdout
    assert "refused it" in shown and "run.output_tokens = 30, settled 30, reserved 0, asked 20" in shown
    why = explained(gateway, first.headers["x-request-id"])
    assert (why["status"], why["outcome"]) == ("settled", "completed")
    assert "clamped_by" not in why and "waited_on" not in why


def test_it_is_explained_what_a_call_waited_for_and_the_status_shows_who_waits(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("one-1", "r1", policy="one-at-a-time")
    mock.script({"prefill_ms": 900, "output_tokens": 4})
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(chat_once, gateway.port, run.key) for _ in range(3)]
        waiting = eventually_two_wait(gateway)
        answers = [call.result() for call in calls]
    assert sorted(each["position"] for each in waiting) == [0, 1]
    head = next(each for each in waiting if each["position"] == 0)
    assert (head["campaign"], head["run"], head["lane"], head["reason"]) == ("one-1", "r1", "foreground", "limit")
    assert (head["limit"]["name"], head["limit"]["ceiling"], head["limit"]["reserved"]) == ("run.concurrent", 1, 1)
    assert head["waited_ms"] >= 0
    waited = [answer for answer in answers if int(answer.headers.get("x-gateway-waited-ms", 0)) > 500]  # a count alone is shorter
    assert len(waited) == 2
    for answer in waited:
        why = explained(gateway, answer.headers["x-request-id"])
        waited_ms = why["waited_on"].pop("ms")
        assert why["waited_on"] == {"name": "run.concurrent", "ceiling": 1, "settled": 0, "reserved": 1, "asked": 1}
        assert 500 < waited_ms <= int(answer.headers["x-gateway-waited-ms"]) and "then_waited_on" not in why
        assert any("ms for run.concurrent = 1, settled 0, reserved 1, asked 1" in line for line in why["why"])


def eventually_two_wait(gateway: GatewayProcess) -> list[dict[str, Any]]:
    """Once the first of them has been counted."""
    seen: list[dict[str, Any]] = []

    def look() -> bool:
        seen[:] = gateway.control.get("/v1/status")["waiting"]["calls"]
        return len(seen) == 2 and any(each["reason"] == "limit" for each in seen)

    eventually(look, "two calls wait")
    return seen


def test_it_is_explained_what_cut_a_call(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("short-1", "r1", policy="short")
    mock.script({"gap_ms": 100, "output_tokens": 60})
    answer = chat_once(gateway.port, run.key, stream=True)
    why = explained(gateway, answer.headers["x-request-id"])
    assert why["outcome"] == "deadline_cut"
    assert (why["cut_by"]["name"], why["cut_by"]["ceiling"]) == ("run.wall_seconds", 1)
    refused = chat_once(gateway.port, run.key)
    assert explained(gateway, refused.headers["x-request-id"])["limit"]["name"] == "run.wall_seconds"


def test_a_call_that_nobody_made_is_not_explained(gateway: GatewayProcess) -> None:
    assert typed(gateway, "explain", "call-nobody").exit_code == 5
    with pytest.raises(ControlAnswered) as caught:
        gateway.control.get("/v1/calls/call-nobody")
    assert (caught.value.status, caught.value.code) == (404, "not_found")


# -- policies anew


def opened_hash(gateway: GatewayProcess, campaign: str) -> Any:
    return gateway.control.open_campaign(campaign, "moving")


def test_policies_are_read_anew_when_it_is_asked_for_all_or_none_and_open_campaigns_keep_theirs(tmp_path: Path, mock: MockProcess) -> None:
    def moving(requests: int) -> Tables:
        return merged(POLICY, {"run": {"requests": requests}})

    with GatewayProcess(tmp_path, mock.url, policies={"moving": moving(1)}) as gateway:
        first = opened_hash(gateway, "one")
        gateway.write_policy("moving", moving(2))
        unread = opened_hash(gateway, "still-one")
        assert unread["policy_hash"] == first["policy_hash"] and "gateway policy reload" in unread["note"]
        assert "note" not in first

        gateway.write_policy("wrong", {"apis": ["openai.chat"], "daily_call_budget": 3})
        refused = typed(gateway, "policy", "reload")
        assert refused.exit_code == 2
        assert "wrong.toml:" in refused.stderr and "daily_call_budget" in refused.stderr
        assert opened_hash(gateway, "one-too")["policy_hash"] == first["policy_hash"]

        (gateway.folder / "policies" / "wrong.toml").unlink()
        done = typed(gateway, "policy", "reload", "--json")
        assert {each["policy"]: each["change"] for each in json.loads(done.stdout)["policies"]} == {"moving": "changed", "test": "same"}
        second = opened_hash(gateway, "two")
        assert second["policy_hash"] != first["policy_hash"] and "note" not in second

        runs = {name: gateway.control.open_run(name, "r1") for name in ("one", "two")}
        assert {name: sent(gateway, run) for name, run in runs.items()} == {"one": 1, "two": 2}  # side by side

        gateway.write_policy("fresh", moving(4))
        assert "note" not in gateway.control.open_campaign("fresh", "fresh")  # a name that was not there is looked for
        with pytest.raises(ControlAnswered) as caught:
            gateway.control.open_campaign("none", "nowhere")
        assert caught.value.code == "not_found"


def sent(gateway: GatewayProcess, run: OpenedRun) -> int:
    return sum(chat_once(gateway.port, run.key).status == 200 for _ in range(3))


def test_a_hangup_reads_the_policies_anew_and_ends_nothing(tmp_path: Path, mock: MockProcess) -> None:
    with GatewayProcess(tmp_path, mock.url, policies={"moving": merged(POLICY, {"run": {"requests": 1}})}) as gateway:
        first = opened_hash(gateway, "one")
        gateway.write_policy("moving", merged(POLICY, {"run": {"requests": 2}}))
        gateway.write_policy("wrong", {"apis": []})
        gateway.process.signal(signal.SIGHUP)
        eventually(lambda: "policies were not reloaded" in gateway.process.output, "the log says why")
        assert "wrong.toml:" in gateway.process.output
        assert opened_hash(gateway, "still-one")["policy_hash"] == first["policy_hash"]
        (gateway.folder / "policies" / "wrong.toml").unlink()
        gateway.process.signal(signal.SIGHUP)
        eventually(lambda: "policies were reloaded" in gateway.process.output, "the log says so")
        assert opened_hash(gateway, "two")["policy_hash"] != first["policy_hash"]
        assert gateway.stop() == 0


def test_a_wrong_policy_in_the_folder_keeps_no_gateway_from_serving(tmp_path: Path, mock: MockProcess) -> None:
    gateway = GatewayProcess(tmp_path, mock.url)
    gateway.write_policy("wrong", {"apis": []})
    with gateway:
        assert chat_once(gateway.port, gateway.opened().key).status == 200
        assert "wrong.toml:" in gateway.process.output
        with pytest.raises(ControlAnswered) as caught:
            gateway.control.open_campaign("c2", "wrong")
        assert (caught.value.status, caught.value.code) == (400, "invalid")


def test_a_terminal_that_is_closed_ends_the_gateway_in_order(tmp_path: Path, mock: MockProcess) -> None:
    """With it goes the person who would have ended it."""
    gateway = GatewayProcess(tmp_path, mock.url)
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(gateway.config)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)})
    seen = b""
    while b"ready data=" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gateway.close()
    with LedgerReader(gateway.ledger) as reader:
        assert reader.verify().fits
