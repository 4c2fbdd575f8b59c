"""The status page's surface over real sockets: its files and headers, its snapshots and their stream, a run's history, the way to a browser."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounting.commands import Refuse
from gateway.accounting.limit import Shortfall
from gateway.cli.page import Forwarder, forwarder
from gateway.control import live
from gateway.control.api import control_application
from gateway.control.pages import files
from tests.integration.control_plane import ControlPlane

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    started = await ControlPlane(tmp_path).start()
    yield started
    await started.stop()


@pytest.fixture
async def http(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession("http://localhost", connector=aiohttp.UnixConnector(str(plane.socket))) as session:
        yield session


async def snapshot(stream: aiohttp.ClientResponse) -> Any:
    async with asyncio.timeout(5):
        line = await stream.content.readline()
        assert await stream.content.readline() == b"\n"
    return json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html"), ("/runs/a/b", "text/html"), ("/calls/c", "text/html"), ("/page/overview.js", "text/javascript")]
)
async def test_a_page_may_load_and_reach_nothing_but_where_it_comes_from(http: aiohttp.ClientSession, path: str, kind: str) -> None:
    async with http.get(path) as answer:
        assert (answer.status, answer.content_type) == (200, kind)
        policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
        assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Referrer-Policy"] == "no-referrer"


async def test_there_is_no_way_out_of_the_pages_folder(http: aiohttp.ClientSession) -> None:
    for name in ("..%2Fapi.py", "nothing.js", "%2Fetc%2Fpasswd"):
        async with http.get(f"/page/{name}") as answer:
            assert answer.status == 404


def test_no_file_of_the_page_holds_a_script_a_style_or_an_address_of_elsewhere() -> None:
    assert {"overview.html", "run.html", "call.html", "page.css", "dom.js"} <= set(files())
    for name, body in files().items():
        text = body.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", text), name
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", text), name
            assert '<html lang="en">' in text and "<title>" in text and 'name="viewport"' in text


async def test_the_overview_tells_runs_with_their_limits_and_who_was_refused_and_why(plane: ControlPlane, http: aiohttp.ClientSession) -> None:
    await plane.opened("r1", "r2")
    handle = await plane.call("call-1", "r1")
    shortfall = Shortfall(name="run.requests", ceiling=10, settled=9, reserved=1, asked=1)
    told = {"at_ms": plane.ledger.now_ms(), "campaign": "pilot", "run": "r2", "lane": "foreground", "model": "small"}
    await plane.ledger.post(Refuse(call_id="call-2", code="run_budget_reached", final=True, limit=shortfall, **told))  # type: ignore[arg-type]
    async with http.get("/v1/overview") as answer:
        seen = await answer.json()
    requests = {run["run"]: next(limit for limit in run["limits"] if limit["name"] == "run.requests") for run in seen["runs"]}
    assert {name: (one["settled"], one["reserved"], one["left"], one["scope"]) for name, one in requests.items()} == {
        "r1": (0, 1, 9, "run"),
        "r2": (0, 0, 10, "run"),
    }
    assert [limit["name"] for limit in seen["campaigns"][0]["limits"]] == ["campaign.runs"]
    assert [lane["lane"] for lane in seen["campaigns"][0]["lanes"]] == ["foreground", "background"]
    (refusal,) = seen["refusals"]
    assert (refusal["call"], refusal["code"], refusal["limit"]["settled"]) == ("call-2", "run_budget_reached", 9) and refusal["why"]
    await plane.settle(handle)


async def test_a_stream_gives_a_snapshot_at_once_and_what_changed_within_a_second_or_two(plane: ControlPlane, http: aiohttp.ClientSession) -> None:
    await plane.opened("r1")
    async with http.get("/v1/events?campaign=pilot&run=r1") as stream:
        assert stream.content_type == "text/event-stream"
        assert (await snapshot(stream))["in_flight"] == 0
        handle = await plane.call("call-1", "r1")
        assert (await snapshot(stream))["in_flight"] == 1
        await plane.settle(handle)
        last = await snapshot(stream)
        assert last["in_flight"] == 0 and next(limit["settled"] for limit in last["limits"] if limit["name"] == "run.requests") == 1


async def test_all_who_look_get_the_same_snapshot_and_while_nobody_looks_none_is_made(
    plane: ControlPlane, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    real = live.overview

    async def counted(services: live.ControlServices) -> live.View:
        nonlocal made
        made += 1
        return await real(services)

    monkeypatch.setattr(live, "overview", counted)
    streams = [await http.get("/v1/events") for _ in range(4)]
    first = [await snapshot(stream) for stream in streams]
    assert made == 1 and all(one == first[0] for one in first)
    for stream in streams:
        stream.close()
    await asyncio.sleep(2.2)  # each finds out with its next snapshot, at the latest
    before = made
    await asyncio.sleep(1.5)
    assert made == before <= 5


async def test_only_so_many_may_look_at_once_and_who_comes_later_is_told_to_ask(plane: ControlPlane, http: aiohttp.ClientSession) -> None:
    streams = [await http.get("/v1/events") for _ in range(live.LOOKING_MAX)]
    async with http.get("/v1/events") as answer:
        assert answer.status == 503 and (await answer.json())["error"]["code"] == "too_many_looking"
    async with http.get("/v1/overview") as answer:
        assert answer.status == 200
    for stream in streams:
        stream.close()


async def test_a_gateway_that_stops_ends_its_streams_and_does_not_wait_for_who_looks(plane: ControlPlane, http: aiohttp.ClientSession) -> None:
    stream = await http.get("/v1/events")
    await snapshot(stream)
    began = asyncio.get_running_loop().time()
    await plane.listener.stop()
    assert asyncio.get_running_loop().time() - began < 4
    assert await asyncio.wait_for(stream.content.read(), 5) is not None


async def test_a_runs_history_has_its_calls_refusals_and_how_each_account_rose(plane: ControlPlane, http: aiohttp.ClientSession) -> None:
    await plane.opened("r1")
    for name in ("call-1", "call-2"):
        await plane.settle(await plane.call(name, "r1"))
    open_call = await plane.call("call-3", "r1")
    async with http.get("/v1/campaigns/pilot/runs/r1/history") as answer:
        told = await answer.json()
    calls = [(call["call"], call["status"], call["row"]) for call in told["calls"]]
    assert calls == [("call-1", "settled", 0), ("call-2", "settled", 0), ("call-3", "reserved", 0)]
    assert told["calls"][0]["usage"] == {"input_tokens": 11, "output_tokens": 7} and "asked" not in told["calls"][0]
    (series,) = [one for one in told["series"] if one["name"] == "run.requests"]
    assert [point[1:] for point in series["points"]] == [[0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    await plane.settle(open_call)


async def test_what_was_never_there_is_said_and_not_drawn(http: aiohttp.ClientSession) -> None:
    for path in ("/v1/campaigns/no/runs/no/history", "/v1/events?campaign=no&run=no", "/v1/overview?campaign=no&run=no"):
        async with http.get(path) as answer:
            assert answer.status == 404 and (await answer.json())["error"]["code"] == "not_found"


# -- the way to a browser


@contextmanager
def serving(plane: ControlPlane) -> Iterator[Forwarder]:
    with forwarder(plane.client) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(url: str, method: str = "GET") -> tuple[int, str, str]:
    try:
        with DIRECT.open(urllib.request.Request(url, method=method), timeout=5) as answer:
            return answer.status, answer.headers.get("Content-Security-Policy", ""), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, "", error.read().decode()


async def test_a_browser_gets_the_page_behind_an_address_that_nobody_can_guess_and_can_only_look(plane: ControlPlane) -> None:
    await plane.opened("r1")
    with serving(plane) as server:
        status, policy, text = await asyncio.to_thread(asked, server.address)
        assert status == 200 and "default-src 'none'" in policy and "overview.js" in text
        status, _, text = await asyncio.to_thread(asked, server.address + "v1/overview")
        assert status == 200 and json.loads(text)["runs"][0]["run"] == "r1"
        root = f"http://127.0.0.1:{server.server_address[1]}"
        for path in ("/", "/v1/overview", "/x/v1/overview", server.prefix):
            assert (await asyncio.to_thread(asked, root + path))[0] == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert (await asyncio.to_thread(asked, f"{server.address}v1/campaigns/pilot/halt", method))[0] == 501
        assert plane.runs.campaign("pilot").state == "open"


async def test_a_gateway_that_is_gone_is_told_to_the_browser(plane: ControlPlane) -> None:
    with serving(plane) as server:
        await plane.listener.stop()
        status, _, text = await asyncio.to_thread(asked, server.address)
        assert status == 502 and "does not run" in text


def test_every_application_of_the_control_plane_has_its_own_count_of_who_looks(plane: ControlPlane) -> None:
    assert control_application(plane.services)[live.LOOKING] is not control_application(plane.services)[live.LOOKING]
