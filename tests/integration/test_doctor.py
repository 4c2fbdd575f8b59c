"""`gateway doctor` on a right set-up with a real llama.cpp, and on twelve wrong ones: each has its line, with status and mend, and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.accounting.commands import OpenCampaign
from gateway.cli.root import root
from gateway.demo.engine import EngineSpec, RealEngine
from gateway.demo.packages import smollm2_path
from gateway.doctor import trial
from gateway.ledger.clock import LedgerClock, system_ms
from gateway.ledger.ledger import Ledger
from gateway.mock_engine.threaded import MockEngineThread
from gateway.policy.loading import load_policy
from gateway.upstream.cancelling import LOOK_AFTER_S
from tests.support.fact_server import Fact, FactServer, fact
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import ROOT
from tests.support.toml import Tables, merged, to_toml


@dataclass(frozen=True)
class Found:
    exit_code: int
    document: dict[str, Any]

    def line(self, check: str) -> dict[str, str]:
        (found,) = [line for line in self.document["lines"] if line["check"] == check]
        return dict(found)

    def not_ok(self) -> dict[str, str]:
        return {line["check"]: line["status"] for line in self.document["lines"] if line["status"] != "ok"}


Examine = Callable[..., Found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    return tmp_path


@pytest.fixture
def examined(folder: Path, capsys: pytest.CaptureFixture[str]) -> Examine:
    """With settings and a policy merged over right ones."""

    def examined(address: str, *words: str, settings: Tables | None = None, policy: Tables | None = None) -> Found:
        config = write(folder, address, settings, policy)
        code = root.main(["doctor", "--config", str(config), "--json", *words], standalone_mode=False)
        return Found(code, json.loads(capsys.readouterr().out))

    return examined


def write(folder: Path, address: str, settings: Tables | None = None, policy: Tables | None = None) -> Path:
    right: Tables = {
        "ledger": {"min_free_bytes": 1_000_000},
        "bounds": {"max_connections": 64},
        "upstreams": {"engine": {"address": address, "engine": "llama.cpp", "models": {"mock": "mock"}}},
    }
    rule: Tables = {"apis": ["openai.chat"], "cache_sharing": "all", "models": {"mock": {}}}
    (folder / "policies" / "p.toml").write_text(to_toml(merged(rule, policy or {})))
    config = folder / "gateway.toml"
    config.write_text(to_toml(merged(right, settings or {})))
    return config


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock engine has stopped at once."""
    monkeypatch.setattr(trial, "LOOK_AFTER_S", 0.3)


@contextmanager
def mock(**script: Any) -> Iterator[str]:
    with MockEngineThread(script) as engine:
        yield engine.url


# -- right


def test_a_right_set_up_on_a_real_llama_cpp_is_all_ok(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LOOK_AFTER_S", LOOK_AFTER_S)
    model = smollm2_path()
    with RealEngine(EngineSpec(model=model, alias="mock", context_tokens=8_192, slots=1)) as engine:
        found = examined(engine.address, policy={"call": {"context_tokens": 8_192}})
    assert (found.exit_code, found.not_ok()) == (0, {})
    checks = [line["check"] for line in found.document["lines"]]
    assert checks == [
        *(
            "reachability",
            "credential",
            "health_path",
            "identity",
            "cache_separation",
            "usage_in_streams",
            "cap_honoured",
            "cancellation",
            "context",
            "tokenizer",
        ),
        *("policies", "gateway", "clock", "disk", "files", "permissions.ledger", "permissions.socket", "permissions.secrets", "data.listen"),
    ]


def test_the_mock_engine_is_ok_and_what_is_said_to_people_has_a_line_a_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The control of what is wrong below."""
    with mock() as url:
        code = root.main(["doctor", "--config", str(write(folder, url))], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert code == 0 and len(lines) == 19 and all(line.startswith("ok ") for line in lines), lines


def test_beside_a_gateway_that_runs_it_says_so_takes_nothing_and_leaves_the_books_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MockEngineThread({}) as engine, GatewayProcess(tmp_path, engine.url) as gateway:
        gateway.opened("c1", "r1")
        before = gateway.control.get("/v1/usage?by=campaign&campaign=c1")
        code = root.main(["doctor", "--config", str(gateway.config), "--json"], standalone_mode=False)
        found = Found(code, json.loads(capsys.readouterr().out))
        assert gateway.control.get("/v1/usage?by=campaign&campaign=c1") == before
        assert gateway.opened("c1", "r2").key
    assert found.document["gateway_runs"] and f"process {gateway.process.pid}" in found.line("gateway")["text"]
    assert "running ledger" in found.line("clock")["text"]
    assert found.line("files")["text"].startswith("the gateway that runs")
    assert found.exit_code == 0 and set(found.not_ok()) == {"cache_separation"}


def test_only_one_engine_is_asked_where_it_is_named(examined: Examine) -> None:
    with mock() as url:
        more = {"upstreams": {"far": {"address": "http://127.0.0.1:9", "engine": "llama.cpp", "models": {"mock": "mock"}}}}
        assert examined(url, "--upstream", "engine", settings=more).exit_code == 0
        assert examined(url, settings=more).not_ok() == {"reachability": "fail"}
    assert root.main(["doctor", "--config", "none.toml"], standalone_mode=False) == 2


# -- wrong: twelve


def test_1_a_wrong_port(examined: Examine) -> None:
    found = examined("http://127.0.0.1:9")
    assert (found.exit_code, found.not_ok()) == (1, {"reachability": "fail"})
    assert found.line("reachability")["mend"] == "start the engine, or correct host and port in address"


def test_2_a_wrong_health_path_is_told_with_the_one_that_answers(examined: Examine) -> None:
    with mock() as url:
        found = examined(url, settings={"upstreams": {"engine": {"health_path": "/healthz"}}})
    assert (found.exit_code, found.not_ok()) == (1, {"health_path": "fail"})
    assert found.line("health_path")["text"] == "/healthz answers 404; /health answers 200"
    assert found.line("health_path")["mend"] == 'set health_path = "/health"'


@pytest.mark.parametrize("presented", ["", "wrong"])
def test_3_a_wrong_key(examined: Examine, monkeypatch: pytest.MonkeyPatch, presented: str) -> None:
    monkeypatch.setenv("ENGINE_KEY", presented)
    more = {"upstreams": {"engine": {"credential_env": "ENGINE_KEY"}}} if presented else None
    with FactServer({"/v1/models": fact({"data": [{"id": "mock"}]}), "/health": Fact(200, b"{}")}, credential="right") as server:
        found = examined(server.url, settings=more)
    assert found.exit_code == 1 and found.line("credential")["status"] == "fail"
    assert ("ENGINE_KEY" if presented else "credential_env") in found.line("credential")["mend"]


def test_3_a_key_that_only_calls_want_or_that_is_not_set(examined: Examine) -> None:
    with mock(die="401") as url:
        found = examined(url)
        assert (found.exit_code, found.not_ok()) == (1, {"credential": "fail"})
        unset = examined(url, settings={"upstreams": {"engine": {"credential_env": "NO_SUCH_VARIABLE"}}})
    assert unset.exit_code == 1 and "NO_SUCH_VARIABLE is not set" in unset.line("credential")["text"]


def test_4_a_model_that_is_not_served(examined: Examine) -> None:
    with mock() as url:
        found = examined(url, settings={"upstreams": {"engine": {"models": {"mock": "another-7b"}}}})
    assert found.exit_code == 1 and found.line("identity")["status"] == "fail"
    assert found.line("identity")["text"] == "it does not list another-7b; it lists mock"


def test_5_a_context_smaller_than_the_policys(examined: Examine) -> None:
    with MockEngineThread({"context_tokens": 4_096}) as engine:
        found = examined(engine.url, policy={"models": {"mock": {"context_tokens": 32_768}}})
        by_call = examined(engine.url, policy={"call": {"context_tokens": 8_192}})
    assert (found.exit_code, found.not_ok()) == (1, {"context": "fail"})
    assert found.line("context")["text"] == 'it takes 4096 tokens a call, and models."mock".context_tokens of p says 32768'
    assert "call.context_tokens of p says 8192" in by_call.line("context")["text"]


def test_6_a_cap_that_is_ignored(examined: Examine) -> None:
    with mock(ignore_cap=True, output_tokens=40) as url:
        found = examined(url)
    assert (found.exit_code, found.not_ok()) == (1, {"cap_honoured": "fail"})
    assert found.line("cap_honoured")["text"].startswith("asked for 3 tokens it made 40 tokens")


def test_6_a_cap_that_is_ignored_by_an_engine_that_reports_nothing(examined: Examine) -> None:
    with mock(ignore_cap=True, output_tokens=40, usage="none") as url:
        assert examined(url).not_ok() == {"cap_honoured": "fail", "usage_in_streams": "warn"}


def test_7_no_usage_in_streams_is_a_warning(examined: Examine) -> None:
    with mock(usage="none") as url:
        found = examined(url)
    assert (found.exit_code, found.not_ok()) == (0, {"usage_in_streams": "warn"})


def test_8_a_cancellation_that_is_ignored(examined: Examine) -> None:
    with mock(ignores_leaving=True, gap_ms=50) as url:
        found = examined(url)
    assert (found.exit_code, found.not_ok()) == (1, {"cancellation": "fail"})
    assert "3 s after its client left it still works" in found.line("cancellation")["text"]


def test_9_a_control_listener_on_the_agents_network(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t" * 40)
    wrong = {"data": {"listen": "10.9.0.1:8080"}, "control": {"listen": "10.9.0.1:9465", "token_env": "TOKEN", "metrics_listen": "0.0.0.0:9464"}}
    with mock() as url:
        found = examined(url, settings=wrong)
    assert (found.exit_code, found.not_ok()) == (1, {"control.listen": "fail", "control.metrics_listen": "fail"})
    assert found.line("control.listen")["mend"].startswith("write an address of the operators' network")


def test_10_a_ledger_folder_that_is_read_only(folder: Path) -> None:
    """By its mode; where the test runs as root, whom no mode keeps out, by a read-only mount that this command alone sees."""
    books = folder / "books"
    books.mkdir()
    with mock() as url:
        config = write(folder, url, {"ledger": {"path": str(books / "gateway.ledger")}})
        mounted = f"mount --bind {books} {books} && mount -o remount,bind,ro {books} && " if os.geteuid() == 0 else f"chmod 0500 {books} && "
        found = in_a_shell(f"{mounted}exec", config, *(["unshare", "--mount"] if os.geteuid() == 0 else []))
    assert (found.exit_code, found.not_ok()) == (1, {"permissions.ledger": "fail"})
    assert f"{books} can't be written to by" in found.line("permissions.ledger")["text"]


def in_a_shell(before: str, config: Path, *wrap: str) -> Found:
    command = [*wrap, "sh", "-c", f'{before} "$0" -m gateway doctor --config "$1" --json', sys.executable, str(config)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    return Found(done.returncode, json.loads(done.stdout))


def test_11_sixty_four_file_descriptors(folder: Path) -> None:
    with mock() as url:
        config = write(folder, url)
        found = in_a_shell("ulimit -n 64; exec", config)
    assert (found.exit_code, found.not_ok()) == (1, {"files": "fail"})
    assert found.line("files")["text"].startswith("a gateway started from here may open 64 files; 64 connections and the engines' slots need ")


def test_12_a_clock_ten_minutes_off(examined: Examine, folder: Path) -> None:
    """The ledger was written by a clock that stood ten minutes ahead of this one."""

    async def written() -> None:
        ledger = Ledger.open(folder / "gateway.ledger", min_free_bytes=0, clock=LedgerClock(lambda: system_ms() + 600_000))
        loaded = load_policy(folder / "policies" / "p.toml")
        await ledger.post(OpenCampaign(campaign="c", at_ms=ledger.now_ms(), policy_name="p", policy=loaded.canonical, policy_hash=loaded.hash))
        await ledger.close()

    with mock() as url:
        write(folder, url)
        asyncio.run(written())
        found = examined(url)
    assert (found.exit_code, found.not_ok()) == (1, {"clock": "fail"})
    assert re.fullmatch(r"the system's clock stands (59\d|600) s behind the ledger's last entry: nothing would be admitted", found.line("clock")["text"])
