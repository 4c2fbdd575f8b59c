"""The control API over a real Unix socket with the real ledger."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import stat
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import pytest

from gateway.accounting.commands import Void
from gateway.client.control import ControlClient, ControlError
from gateway.control.api import metrics_application
from gateway.control.listening import ControlListener, TcpListener
from gateway.errors import ConfigurationError
from tests.integration.control_plane import POLICY, ControlPlane
from tests.support.waiting import eventually_async

Query = dict[str, str] | list[tuple[str, str]]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    started = await ControlPlane(tmp_path).start()
    yield started
    await started.stop()


async def declined(plane: ControlPlane, question) -> ControlError:  # type: ignore[no-untyped-def]
    with pytest.raises(ControlError) as caught:
        await plane.ask(question)
    return caught.value


async def test_the_socket_is_its_owners_alone(plane: ControlPlane) -> None:
    assert stat.S_IMODE(plane.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(plane.socket.parent.stat().st_mode) == 0o700


async def test_a_socket_that_a_dead_gateway_left_is_taken_over_and_one_that_is_heard_is_not(plane: ControlPlane, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="another gateway listens"):
        await ControlListener(metrics_application(plane.services), plane.socket).start()
    assert (await plane.ask(lambda client: client.status()))["ready"]

    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    second = ControlListener(metrics_application(plane.services), left)
    await second.start()
    assert await asyncio.to_thread(ControlClient(left).live)
    await second.stop()
    assert not left.exists()


@pytest.mark.parametrize("kind", ["file", "long", "folder"])
async def test_a_socket_that_cant_be_made_is_an_error_that_says_what_to_do(plane: ControlPlane, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "here" / ("x" * 120 if kind == "long" else "g.sock")
    path.parent.mkdir()
    if kind == "file":
        path.write_text("precious")
    if kind == "folder":
        path.parent.chmod(0o777)
    with pytest.raises(ConfigurationError, match="choose"):
        await ControlListener(metrics_application(plane.services), path).start()
    assert kind != "file" or path.read_text() == "precious"


async def test_a_gateway_that_does_not_run_is_an_error_with_problem_cause_and_mend(tmp_path: Path) -> None:
    with pytest.raises(ControlError) as caught:
        ControlClient(tmp_path / "none.sock").status()
    error = caught.value
    assert error.problem == "The gateway does not run."
    assert "none.sock" in error.cause
    assert "gateway serve" in error.mend
    assert error.status == 0
    assert not ControlClient(tmp_path / "none.sock").live()


async def test_a_campaign_is_opened_shown_halted_resumed_and_listed(plane: ControlPlane) -> None:
    opened = await plane.ask(lambda client: client.open_campaign("pilot", "small", planned=3))
    again = await plane.ask(lambda client: client.open_campaign("pilot", "small", planned=3))
    assert (opened["created"], again["created"]) == (True, False)
    halted = await plane.ask(lambda client: client.halt("pilot", "lunch"))
    assert (halted["state"], halted["reason"], halted["planned"]) == ("halted", "lunch", 3)
    assert (await plane.ask(lambda client: client.resume("pilot")))["state"] == "open"
    shown = await plane.ask(lambda client: client.campaign("pilot"))
    assert [(limit["name"], limit["left"]) for limit in shown["limits"]] == [("campaign.runs", 7)]
    assert [campaign["campaign"] for campaign in await plane.ask(lambda client: client.campaigns())] == ["pilot"]


async def test_a_policy_is_named_not_pathed_and_one_that_is_wrong_says_why(plane: ControlPlane) -> None:
    (plane.policies / "bad.toml").write_text(POLICY + "\n[compaign]\nruns = 3\n")
    for name in ("nobody", "../small", "/etc/passwd", ""):
        assert (await declined(plane, lambda client, name=name: client.open_campaign("pilot", name))).status == 404
    wrong = await declined(plane, lambda client: client.open_campaign("pilot", "bad"))
    assert (wrong.status, wrong.code) == (400, "invalid")
    assert "bad.toml" in wrong.cause
    assert "compaign" in wrong.cause
    assert (await plane.ask(lambda client: client.open_campaign("pilot", "small.toml")))["created"]


async def test_an_opening_whose_reply_was_lost_is_asked_for_again(plane: ControlPlane) -> None:
    await plane.opened()
    first = await plane.ask(lambda client: client.open_run("pilot", task="t", idempotency_key="i"))
    second = await plane.ask(lambda client: client.open_run("pilot", task="t", idempotency_key="i"))
    assert (first["run"], first["created"], second["created"]) == (second["run"], True, False)
    assert plane.runs.identify(first["keys"]["foreground"]).revoked  # type: ignore[union-attr]
    assert plane.runs.identify(second["keys"]["foreground"]).live  # type: ignore[union-attr]
    await plane.settle(await plane.call("c1", first["run"]))
    third = await plane.ask(lambda client: client.open_run("pilot", task="t", idempotency_key="i"))
    assert third["keys"] == {"foreground": None, "background": None}
    assert "Calls were made" in third["note"]
    other = await declined(plane, lambda client: client.open_run("pilot", task="u", idempotency_key="i"))
    assert (other.status, other.code) == (409, "conflict")


async def test_fifty_openings_at_once_against_campaign_runs_7_give_exactly_seven(plane: ControlPlane) -> None:
    await plane.opened()

    def one(number: int) -> ControlError | str:
        try:
            return str(plane.client.open_run("pilot", f"r{number}")["run"])
        except ControlError as error:
            return error

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(50) as pool:
        answers = await asyncio.gather(*(loop.run_in_executor(pool, one, number) for number in range(50)))
    opened = [answer for answer in answers if isinstance(answer, str)]
    refused = [answer for answer in answers if isinstance(answer, ControlError)]
    assert (len(opened), len(refused)) == (7, 43)
    assert {(error.status, error.code) for error in refused} == {(409, "run_budget_reached")}
    limit = refused[0].details["limit"]
    assert limit.pop("origin").endswith("small.toml:19")
    assert limit == {"name": "campaign.runs", "ceiling": 7, "settled": 7, "reserved": 0, "asked": 1}
    assert len(await plane.ask(lambda client: client.runs("pilot"))) == 7
    assert len(plane.ledger.state().runs) == 7


async def test_a_run_closes_by_cutting_what_runs_and_returns_its_receipt(plane: ControlPlane) -> None:
    await plane.opened("r1", "r2")
    call, other = await plane.call("c1", "r1"), await plane.call("c2", "r2")
    plane.settle_when_cut(call)
    closed = await plane.ask(lambda client: client.close_run("pilot", "r1", results={"exit": 0, "turn_end": "completed"}))
    assert closed["receipt"]["receipt"] == 1
    assert closed["receipt"]["seen"]["outcomes"] == {"closed_cut": 1}
    assert closed["conflicts"] == ["declared completed, but its last sent call is closed_cut"]
    assert other.cut is None
    assert await plane.ask(lambda client: client.close_run("pilot", "r1")) == closed
    shown = await plane.ask(lambda client: client.run_receipt("pilot", "r1"))
    assert shown["receipt"]["hash"] == closed["receipt"]["hash"]
    assert shown["conflicts"] == closed["conflicts"]
    await plane.settle(other)


async def test_a_run_that_drains_ends_with_its_calls_own_outcome(plane: ControlPlane) -> None:
    await plane.opened("r1")
    call = await plane.call("c1", "r1")
    closing = asyncio.create_task(plane.ask(lambda client: client.close_run("pilot", "r1", drain_seconds=30)))
    await eventually_async(lambda: plane.runs.run("pilot", "r1").state == "closing", "the run is closing")
    assert call.cut is None
    assert not closing.done()
    await plane.settle(call)
    closed = await asyncio.wait_for(closing, 10)
    assert closed["receipt"]["seen"]["outcomes"] == {"completed": 1}
    assert closed["conflicts"] == []


async def test_results_declared_later_give_the_next_receipt(plane: ControlPlane) -> None:
    await plane.opened("r1")
    first = await plane.ask(lambda client: client.close_run("pilot", "r1", results={"exit": 1}))
    second = await plane.ask(lambda client: client.close_run("pilot", "r1", results={"judge": "fail", "outcomes": {"score": "3"}}))
    assert (first["receipt"]["receipt"], second["receipt"]["receipt"]) == (1, 2)
    assert second["receipt"]["results"] == {"exit": 1, "judge": "fail", "outcomes": {"score": "3"}}
    assert second["receipt"]["replaces"]["hash"] == first["receipt"]["hash"]
    assert (await declined(plane, lambda client: client.close_run("pilot", "r1", results={"exit": 0}))).status == 409


async def test_the_receipt_of_a_correction_is_there_when_the_correction_is(plane: ControlPlane) -> None:
    await plane.opened("r1")
    await plane.settle(await plane.call("call-a", "r1"))
    void = await plane.call("call-b", "r1")
    await plane.ledger.post(Void(call_id="call-b", at_ms=plane.ledger.now_ms(), reason="connect failed"))
    void.end()
    first = (await plane.ask(lambda client: client.close_run("pilot", "r1")))["receipt"]
    for number, receipt in ((8, 2), (9, 3)):
        corrected, then = await plane.ask(
            lambda client, number=number: (
                client.correct_call("call-a", {"output_tokens": number}, "the log", "line 3"),
                client.run_receipt("pilot", "r1")["receipt"],
            )
        )
        assert corrected["after"]["output_tokens"] == number
        assert (then["receipt"], then["totals"]["usage"]["output_tokens"]["sum"], then["replaces"]["receipt"]) == (receipt, number, receipt - 1)
    assert first["receipt"] == 1
    refused = await declined(plane, lambda client: client.correct_call("call-b", {"output_tokens": 1}, "the log", "line 3"))
    assert (refused.status, refused.cause) == (409, "Nothing of it was sent.")


async def test_closing_a_campaign_closes_its_runs_and_writes_its_receipt_after_theirs(plane: ControlPlane) -> None:
    await plane.opened("r1", "r2")
    plane.settle_when_cut(await plane.call("c1", "r1"))
    closed = await plane.ask(lambda client: client.close_campaign("pilot", close_seconds=10))
    assert closed["receipt"]["unsettled"] == []
    assert [line["run"] for line in closed["receipt"]["runs"]] == ["r1", "r2"]
    assert {run["state"] for run in await plane.ask(lambda client: client.runs("pilot"))} == {"closed"}
    shown = await plane.ask(lambda client: client.campaign_receipt("pilot"))
    assert shown["receipt"]["hash"] == closed["receipt"]["hash"]
    assert (await declined(plane, lambda client: client.open_run("pilot"))).status == 409


async def test_a_key_is_issued_listed_and_revoked_and_its_calls_are_cut(plane: ControlPlane) -> None:
    opened = (await plane.opened("r1"))["r1"]
    issued = await plane.ask(lambda client: client.issue_key("pilot", "r1", "background"))
    call = await plane.call("c1", "r1", issued["key_id"])
    plane.settle_when_cut(call)
    assert plane.runs.identify(issued["key"]).live  # type: ignore[union-attr]
    revoked = await plane.ask(lambda client: client.revoke_key(issued["key_id"], "lost"))
    assert (revoked["revoked"], revoked["live"]) == (True, False)
    assert call.cut is not None
    await plane.in_flight.drained()
    listed = await plane.ask(lambda client: client.keys("pilot", "r1"))
    assert [(key["lane"], key["live"]) for key in listed] == [("foreground", True), ("background", True), ("background", False)]
    assert opened["keys"]["foreground"] not in json.dumps(listed)  # type: ignore[index]
    assert (await declined(plane, lambda client: client.revoke_key("key-nobody"))).status == 404


async def test_a_restart_knows_the_same_campaigns_runs_and_keys(plane: ControlPlane, tmp_path: Path) -> None:
    opened = await plane.opened("r1", "r2", "r3")
    lost = await plane.call("c1", "r1")
    await plane.ask(lambda client: client.close_run("pilot", "r2", results={"judge": "pass"}))
    await plane.ask(lambda client: client.revoke_key(opened["r3"]["key_ids"]["foreground"]))  # type: ignore[index]
    await plane.ask(lambda client: client.halt("pilot", "night"))
    before = {run: await plane.ask(lambda client, run=run: client.run("pilot", run)) for run in opened}  # type: ignore[misc]
    await plane.stop()
    lost.end()

    await plane.start()
    campaign = await plane.ask(lambda client: client.campaign("pilot"))
    assert (campaign["state"], campaign["reason"]) == ("halted", "night")
    for run in ("r2", "r3"):
        after = await plane.ask(lambda client, run=run: client.run("pilot", run))
        assert after["limits"][0]["origin"].endswith("small.toml:16")  # as the file stood when the campaign was opened
        assert after == before[run]
    for run, live in (("r1", True), ("r2", False), ("r3", False)):
        identity = plane.runs.identify(opened[run]["keys"]["foreground"])  # type: ignore[index]
        assert identity is not None
        assert (identity.run.run, identity.live) == (run, live)
    closed = await plane.ask(lambda client: client.close_run("pilot", "r1"))
    assert closed["receipt"]["seen"]["outcomes"] == {"lost": 1}


async def test_an_opening_may_be_asked_for_again_after_a_restart(plane: ControlPlane) -> None:
    await plane.opened()
    fresh = await plane.ask(lambda client: client.open_run("pilot", "fresh", idempotency_key="f"))
    used = await plane.ask(lambda client: client.open_run("pilot", "used", idempotency_key="u"))
    await plane.settle(await plane.call("c1", "used"))
    await plane.stop()
    await plane.start()
    again = await plane.ask(lambda client: client.open_run("pilot", "fresh", idempotency_key="f"))
    assert not again["created"]
    assert again["keys"]["foreground"] not in (None, fresh["keys"]["foreground"])
    again = await plane.ask(lambda client: client.open_run("pilot", "used", idempotency_key="u"))
    assert set(again["keys"].values()) == {None}
    assert plane.runs.identify(used["keys"]["foreground"]).live  # type: ignore[union-attr]
    assert (await declined(plane, lambda client: client.open_run("pilot", "used", task="other", idempotency_key="u"))).status == 409


async def test_a_call_that_is_settled_after_it_was_lost_makes_the_next_receipt(plane: ControlPlane) -> None:
    await plane.opened("r1")
    call = await plane.call("c1", "r1")
    await plane.stop()
    call.end()
    await plane.start()
    closed = await plane.ask(lambda client: client.close_campaign("pilot"))
    await plane.settle(plane.in_flight.enter("c1", "pilot", "r1", "key-x"))
    plane.runs.receipt_due("pilot", "r1")
    await plane.runs.finish()
    run = await plane.ask(lambda client: client.close_run("pilot", "r1"))
    campaign = await plane.ask(lambda client: client.close_campaign("pilot"))
    assert (run["receipt"]["receipt"], campaign["receipt"]["receipt"]) == (2, 2)
    assert campaign["receipt"]["replaces"]["hash"] == closed["receipt"]["hash"]


async def test_what_was_closing_when_the_process_ended_is_closed_at_the_next_start(plane: ControlPlane) -> None:
    await plane.opened("r1", "r2")
    call = await plane.call("c1", "r1")
    closing = asyncio.create_task(plane.runs.close_campaign("pilot", close_s=600))
    await eventually_async(lambda: call.cut, "the call is cut")
    closing.cancel()
    for task in plane.runs._tasks:
        task.cancel()
    await plane.stop()

    await plane.start()
    await plane.runs.finish()
    campaign = await plane.ask(lambda client: client.campaign("pilot"))
    assert (campaign["state"], campaign["runs"]) == ("closed", {"open": 0, "closing": 0, "closed": 2})


async def test_usage_is_summed_by_what_is_asked_and_by_nothing_else(plane: ControlPlane) -> None:
    await plane.opened("r1")
    await plane.settle(await plane.call("c1", "r1"))
    found = json.dumps(await plane.ask(lambda client: client.usage("run", campaign="pilot")))
    assert '"r1"' in found
    assert (await declined(plane, lambda client: client.usage("moon"))).status == 400
    before = await plane.ask(lambda client: client.usage("run", campaign="pilot", as_of=2))
    assert before["groups"] == []
    assert (await declined(plane, lambda client: client._get("/v1/usage", {"as_of": "soon"}))).status == 400
    assert (await plane.ask(lambda client: client.usage("day", zone="UTC")))["zone"] == "UTC"
    for by, zone, code in (("day", "Moon/Sea", "zone"), ("day", "", "zone"), ("run", "UTC", "invalid")):
        refused = await declined(plane, lambda client, by=by, zone=zone: client.usage(by, zone=zone))  # type: ignore[misc]
        assert (refused.status, refused.code) == (400, code)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/usage", {"campain": "pilot"}),
        ("/v1/usage", {"by": "run", "across_labels": "perhaps"}),
        ("/v1/usage", [("campaign", "pilot"), ("campaign", "other")]),
        ("/v1/keys", {"lane": "foreground"}),
        ("/v1/campaigns", {"state": "open"}),
        ("/v1/campaigns/pilot/runs/r1/budget", {"lanes": "foreground"}),
        ("/v1/overview", {"campaign": "pilot"}),
    ],
)
async def test_a_parameter_that_is_misspelt_or_said_twice_is_an_error_and_no_answer_to_another_question(plane: ControlPlane, path: str, query: Query) -> None:
    await plane.opened("r1")
    refused = await declined(plane, lambda client: client._get(f"{path}?{urlencode(query)}"))
    assert (refused.status, refused.code) == (400, "invalid")
    assert refused.problem and refused.cause and refused.mend


async def test_what_a_probe_hangs_on_to_a_health_path_does_not_matter(plane: ControlPlane) -> None:
    assert (await plane.ask(lambda client: client._get("/livez", {"probe": "7"})))["live"]


async def test_what_is_put_on_record_of_a_reconciliation_is_of_what_was_opened(plane: ControlPlane) -> None:
    await plane.opened("r1")
    counts = {"as_of": 1, "classes": {"equal": 1}, "unexplained": 0, "sha256": "a" * 64}
    for campaign, run in (("pilto", ""), ("pilot", "r2")):
        refused = await declined(plane, lambda client, campaign=campaign, run=run: client.note_reconciled(campaign, run, counts))  # type: ignore[misc]
        assert (refused.status, refused.code) == (404, "not_found")
    assert (await declined(plane, lambda client: client.note_reconciled("pilot", "r1", {**counts, "as_of": 10**9}))).status == 404
    assert (await plane.ask(lambda client: client.note_reconciled("pilot", "r1", counts)))["entry"]


async def test_an_upstream_that_is_none_is_told_which_there_are(plane: ControlPlane) -> None:
    refused = await declined(plane, lambda client: client.drain("far"))
    assert (refused.status, refused.cause) == (404, "There are: local.")


async def test_a_plan_and_a_number_that_contradict_each_other_open_nothing(plane: ControlPlane) -> None:
    assert (await declined(plane, lambda client: client.open_campaign("c", "small", planned=5, plan=[{"run": "a"}]))).code == "invalid"
    assert await plane.ask(lambda client: client.campaigns()) == []
    assert (await plane.ask(lambda client: client.open_campaign("c", "small", planned=1, plan=[{"run": "a"}])))["planned"] == 1


@pytest.mark.parametrize("named", [{"campaign": "pilto"}, {"campaign": "pilot", "run": "r2"}, {"run": "r2"}])
async def test_what_was_never_opened_has_no_usage_and_not_one_of_nothing(plane: ControlPlane, named: dict[str, str]) -> None:
    await plane.opened("r1")
    assert (await declined(plane, lambda client: client.usage("run", **named))).status == 404
    if "campaign" in named:
        assert (await declined(plane, lambda client: client.keys(**named))).status == 404
    assert (await plane.ask(lambda client: client.usage("run", campaign="pilot", run="r1")))["groups"] == []


async def test_the_clock_is_shown_and_accepted(plane: ControlPlane) -> None:
    shown = await plane.ask(lambda client: client.clock())
    assert shown["certain"]
    accepted = await plane.ask(lambda client: client.accept_clock("looked at it"))
    assert accepted["now_ms"] >= shown["now_ms"]


async def test_status_health_and_metrics(plane: ControlPlane) -> None:
    await plane.opened("r1")
    call = await plane.call("c1", "r1")
    status = await plane.ask(lambda client: client.status())
    assert status["ready"]
    assert status["in_flight"] == 1
    assert status["calls"][0]["call"] == "c1"
    assert status["waiting"] == {"waiting": 2}
    assert status["upstreams"] == [{"upstream": "local", "healthy": True}]
    assert "gateway_calls" in await plane.ask(lambda client: client.metrics())
    assert (await plane.ask(lambda client: client.ready()))["ready"]
    plane.why_not_ready = ["no upstream is healthy"]
    assert await plane.ask(lambda client: client.ready()) == {"ready": False, "not_ready": ["no upstream is healthy"]}
    assert await plane.ask(lambda client: client.live())
    await plane.settle(call)


async def test_the_metrics_listener_tells_and_does_nothing_else(plane: ControlPlane) -> None:
    listener = TcpListener(metrics_application(plane.services), "127.0.0.1:0", "control.metrics_listen")
    await listener.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as session:
            for path, status in (("/metrics", 200), ("/livez", 200), ("/readyz", 200), ("/v1/campaigns", 404), ("/v1/keys", 404), ("/v1/status", 404)):
                async with session.get(path) as answer:
                    assert (path, answer.status) == (path, status)
            async with session.post("/v1/campaigns", json={"campaign": "pilot", "policy": "small"}) as answer:
                assert answer.status == 404
            async with session.post("/metrics") as answer:
                assert answer.status == 405
    finally:
        await listener.stop()
    assert plane.runs.campaigns() == ()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/campaigns", b'{"campaign": "pilot", "policy": "small", "plan": 3}'),
        ("/v1/campaigns", b'{"campaign": "pilot"}'),
        ("/v1/campaigns", b'{"campaign": "pilot", "policy": "small", "planned": "3"}'),
        ("/v1/campaigns", b"{"),
        ("/v1/campaigns", b"[]"),
        ("/v1/campaigns/pilot/runs/r1/close", b'{"results": {"judge": "perhaps"}}'),
        ("/v1/campaigns/pilot/runs/r1/close", b'{"exit": 0}'),
        ("/v1/campaigns/pilot/runs/r1/close", b'{"drain_seconds": -1}'),
    ],
)
async def test_a_body_that_says_anything_undeclared_is_an_error_that_names_it_and_changes_nothing(plane: ControlPlane, path: str, body: bytes) -> None:
    await plane.opened("r1")
    status, answer = await plane.ask(lambda _client: _post(plane.socket, path, body))
    error = answer["error"]
    assert (status, error["code"]) == (400, "invalid")
    assert error["problem"] and error["cause"] and error["mend"]
    assert error["message"].startswith(error["problem"])
    assert plane.runs.run("pilot", "r1").state == "open"


async def test_a_route_that_is_not_there_is_answered_in_the_same_form(plane: ControlPlane) -> None:
    status, answer = await plane.ask(lambda _client: _post(plane.socket, "/v1/nothing", b"{}"))
    assert (status, answer["error"]["code"]) == (404, "not_found")
    status, answer = await plane.ask(lambda _client: _post(plane.socket, "/v1/status", b"{}"))
    assert status == 405
    status, answer = await plane.ask(lambda _client: _post(plane.socket, "/v1/campaigns", b" " * 3_000_000))
    assert status == 413


async def test_a_failure_of_the_gateway_itself_says_nothing_of_its_insides(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane.runs, "campaigns", lambda: 1 / 0)
    error = await declined(plane, lambda client: client.campaigns())
    assert (error.status, error.code) == (500, "internal")
    assert "division" not in str(error)


def _post(path: Path, route: str, body: bytes) -> tuple[int, dict]:  # type: ignore[type-arg]
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    try:
        connection.request("POST", route, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
