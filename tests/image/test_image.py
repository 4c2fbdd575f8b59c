"""The image is really built and runs as compose.yaml says: without root, capability, shell or writable root, on three networks, and closed to the sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.policy.loading import load_policy
from gateway.settings import load_settings
from tests.image.building import ROOT, Built, built, remove_containers
from tests.image.composed import Composed
from tests.support.processes import ReadyProcess
from tests.support.skips import skip

pytestmark = pytest.mark.timeout(1_500)
GATEWAY = "/opt/gateway/bin/gateway"
DATA, METRICS, ENGINE = "http://172.30.10.2:8080", "http://172.30.20.2:9464", "172.30.30.3:8080"
CALL = """
import json, sys, urllib.request
body = json.dumps({"model": "local", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}).encode()
asked = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", body, {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(asked, timeout=20))["usage"]["completion_tokens"])
"""


@dataclass(slots=True)
class Running:
    composed: Composed
    image: Built
    gateway: ReadyProcess
    volume: Path

    def gateway_says(self, *words: str) -> Any:
        """`docker compose exec gateway gateway …`"""
        done = self.composed.executed(self.gateway.pid, "gateway", self.image.config, [GATEWAY, *words, "--json"])
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def from_(self, service: str, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ip", "netns", "exec", self.composed.names[service], "/usr/bin/python3", "-c", code, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"})


@pytest.fixture(scope="module")
def image(containers: None) -> Iterator[Built]:
    begun = time.monotonic()
    try:
        made = built()
        print(f"built in {time.monotonic() - begun:.0f} s")
        yield made
    finally:
        remove_containers()


@pytest.fixture(scope="module")
def running(image: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("volumes")
    (folder / "engine.json").write_text(json.dumps({"served": ["local"], "context_tokens": 8_192}))
    started: list[ReadyProcess] = []
    with Composed(folder) as composed:
        try:
            with composed.inside("llama"):
                engine = [sys.executable, "-m", "gateway", "mock-engine", "--listen", ENGINE, "--script", str(folder / "engine.json")]
                started.append(ReadyProcess(engine))
            gateway = ReadyProcess(composed.command("gateway", image.root, image.config, without_shell=True))
            started.append(gateway)
            yield Running(composed, image, gateway, folder / "ledger")
        finally:
            for process in reversed(started):
                process.kill()


def test_the_images_configuration_is_as_it_is_said(image: Built) -> None:
    config = image.config
    assert config["User"] == "10001:10001" and config["Entrypoint"] == [GATEWAY]
    assert config["Cmd"] == ["serve", "--config", "/etc/gateway/gateway.toml"]
    told = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["gateway"]["healthcheck"]["test"]
    assert config["Healthcheck"]["Test"] == told
    assert not (image.root / "opt/gateway/bin/pip").exists()


def test_it_is_ready_as_its_user_without_capability_shell_or_writable_root(running: Running) -> None:
    """The process is the command itself: nothing of a shell is there to start it."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{running.gateway.pid}/status").read_text().splitlines() if ":\t" in line)
    assert status["Uid"].split() == ["10001"] * 4 and status["Gid"].split() == ["10001"] * 4 and status["Groups"].strip() == ""
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16} and status["NoNewPrivs"] == "1"
    root = Path(f"/proc/{running.gateway.pid}/root")
    assert (root / "bin/sh").read_bytes() == b"", "the shell is an empty file here"
    with pytest.raises(OSError, match="Read-only file system"):
        (root / "opt/gateway/x").touch()
    assert (running.volume / "gateway.ledger").stat().st_uid == 10001


def test_its_health_check_says_ready(running: Running) -> None:
    test = running.image.config["Healthcheck"]["Test"]
    assert test[0] == "CMD"
    done = running.composed.executed(running.gateway.pid, "gateway", running.image.config, test[1:])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_is_opened_by_exec_and_called_from_the_sandbox(running: Running) -> None:
    running.gateway_says("campaign", "open", "c1", "--policy", "default")
    opened = running.gateway_says("run", "open", "c1/r1")
    (key,) = opened["keys"].values()
    done = running.from_("sandbox", CALL, DATA, key)
    assert done.stdout.strip() == "5", done.stderr
    assert running.gateway_says("usage", "--by", "run")


def test_the_doctor_finds_nothing_wrong_there(running: Running) -> None:
    found = running.gateway_says("doctor", "--config", "/etc/gateway/gateway.toml")
    assert found["good"] and found["gateway_runs"]
    warned = {line["check"] for line in found["lines"] if line["status"] != "ok"}
    assert warned <= {"cache_separation", "disk"}, found


def test_the_sample_sandbox_reaches_the_gateway_alone(running: Running) -> None:
    """As compose.yaml starts it: over the base image, as nobody, with the one file mounted."""
    command = running.composed.command("sandbox", running.image.base, {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok     reached: gateway {DATA}" in done.stdout and "WRONG" not in done.stdout


def test_the_same_self_test_from_the_gateways_own_place_finds_what_the_sandbox_must_not(running: Running) -> None:
    """The control: engine and metrics do answer, there."""
    told = running.composed.file["services"]["sandbox"]["command"]
    command = ["ip", "netns", "exec", running.composed.names["gateway"], "/usr/bin/python3", str(ROOT / "gateway/client/selftest.py"), *told[2:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"WRONG  reached: engine {ENGINE}" in done.stdout and "WRONG  reached: outside 172.30.20.2:9464" in done.stdout


def test_prometheus_can_scrape_and_reaches_no_engine(running: Running) -> None:
    fetch = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
    done = running.from_("prometheus", fetch, METRICS + "/metrics")
    assert "gateway_" in done.stdout, done.stderr
    assert running.from_("prometheus", fetch, f"http://{ENGINE}/health").returncode != 0


def test_the_files_that_compose_mounts_are_there_and_agree_with_it() -> None:
    file = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for service in file["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or source == "./models" or (ROOT / source).exists(), source
    assert file["networks"]["agents"]["internal"] and file["networks"]["engines"]["internal"]
    assert file["services"]["sandbox"]["networks"] == ["agents"] and list(file["services"]["llama"]["networks"]) == ["engines"]
    assert not any("agents" in service["networks"] for name, service in file["services"].items() if name not in ("gateway", "sandbox"))
    assert "ports" not in file["services"]["gateway"]
    settings = load_settings(ROOT / "deploy/compose/gateway.toml")
    settings.check_policy(load_policy(ROOT / "deploy/compose/policies/default.toml"))
    given = {name: one["ipv4_address"] for name, one in file["services"]["gateway"]["networks"].items()}
    assert settings.data.listen == f"{given['agents']}:8080" and settings.control.metrics_listen == f"{given['operators']}:9464"
    assert settings.control.listen is None


def test_the_unit_for_systemd_is_one(tmp_path: Path) -> None:
    """With a program in place of the one that is not installed here."""
    if shutil.which("systemd-analyze") is None:
        skip("no-systemd", "systemd-analyze is not installed")
    unit = (ROOT / "deploy/gateway.service").read_text()
    (tmp_path / "gateway.service").write_text(unit.replace("/opt/gateway/.venv/bin/gateway", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "gateway.service")], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "gateway.service").write_text(unit.replace("/opt/gateway/.venv/bin/gateway", "/bin/true").replace("ProtectHome=yes", "ProtectHomes=yes"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "gateway.service")], capture_output=True, text=True, timeout=60, check=False)
    assert "ProtectHomes" in done.stderr, "the control: a word that is none is seen"


def test_it_ends_in_order_when_it_is_told_to(running: Running) -> None:
    """The last: it is over after it."""
    assert running.gateway.stop(timeout_s=40) == 0
