"""One load on one target: what the client saw, what CPU and memory the target took, and how much of the machine others took meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from bodies import body
from processes import cpu_s, family, machine_busy_s, placed, rss_mb
from scenarios import Scenario
from targets import HERE, Place, Target

CLIENT_CPU = 0
IDLE_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    target: str
    scenario: str
    others: float
    """Share of the machine's CPUs that neither the load, the engine nor the target took."""
    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""
    round: int = 0


def build(folder: Path) -> None:
    for name in ("engine", "streams"):
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")], check=True)


def body_file(folder: Path, scenario: Scenario) -> Path:
    path = folder / f"{scenario.size}-{scenario.model}.json"
    if not path.exists():
        path.write_bytes(body(scenario.size, scenario.model, stream=scenario.streams))
    return path


def measure(target: Target, scenario: Scenario, place: Place, engine_pid: int, seconds: int) -> Measurement:
    seconds = max(seconds, scenario.seconds or 0)
    pids = family(target.process.pid) if target.process else []
    own_before, engine_before, busy_before, load_before = cpu_s(pids), cpu_s([engine_pid]), machine_busy_s(), _children_cpu_s()
    begin = time.monotonic()
    client = _client(target, scenario, place, seconds)
    time.sleep(scenario.skip_s)
    skipped = cpu_s(pids) - own_before
    values = {}
    if scenario.weighs:
        time.sleep(seconds - 1)
        values["rss_mb"] = rss_mb(pids)
    streamed, own = _told(client, scenario, seconds + 60), cpu_s(pids) - own_before
    said = streamed + client.communicate(timeout=seconds + 60)[0].decode(errors="replace").strip()  # which breaks its streams off
    time.sleep(0.2)  # what was begun is settled, on the same bill
    took_s = time.monotonic() - begin
    whole = cpu_s(pids) - own_before
    if not scenario.skip_s:
        own = whole
    known = whole + cpu_s([engine_pid]) - engine_before + _children_cpu_s() - load_before
    others = max(0.0, machine_busy_s() - busy_before - known) / took_s / (os.cpu_count() or 1)
    try:
        told = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        return Measurement(target=target.name, scenario=scenario.name, others=others, problem=f"the client said {said[-200:]!r}")
    own -= skipped
    values |= _stream_values(told, own) if scenario.streams else _call_values(told, own)
    if target.process is None:
        for key in ("cpu_us", "rss_mb"):
            values.pop(key, None)
    return Measurement(target=target.name, scenario=scenario.name, others=others, values=values, problem=_problem(told))


def _told(client: subprocess.Popen[bytes], scenario: Scenario, within_s: int) -> str:
    """What a client of streams says while it still reads them; nothing of others, which end by themselves."""
    if not scenario.streams:
        return ""
    assert client.stdout is not None
    late = threading.Timer(within_s, client.kill)
    late.start()
    try:
        return client.stdout.readline().decode(errors="replace").strip()
    finally:
        late.cancel()


def _client(target: Target, scenario: Scenario, place: Place, seconds: int) -> subprocess.Popen[bytes]:
    headers, path = target.headers, body_file(place.folder, scenario)
    if scenario.streams:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        amounts = [str(scenario.callers), str(seconds), str(scenario.ramp_s), str(scenario.skip_s)]
        load = [str(place.folder / "streams"), str(target.port), "/v1/chat/completions", str(path), *amounts, *lines]
        env = {}
    else:
        url = f"http://127.0.0.1:{target.port}/v1/chat/completions"
        load = [shutil.which("wrk") or "wrk", "-t1", f"-c{scenario.callers}", f"-d{seconds}s", "--timeout", "30s", "-s", str(HERE / "whole.lua"), url]
        env = {"BODY_FILE": str(path), "HEADERS": "\n".join(f"{name}: {value}" for name, value in headers.items())}
    pinned = placed(load, CLIENT_CPU if place.pinned else None)
    return subprocess.Popen(pinned, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env={**os.environ, **env})


def _call_values(told: dict[str, float], cpu: float) -> dict[str, float]:
    calls = max(1, told["answers"])
    good = told["answers"] - told["refused"]
    return {"calls_per_s": good / told["seconds"], "p50_ms": told["p50_ms"], "p99_ms": told["p99_ms"], "cpu_us": cpu / calls * 1e6}


def _stream_values(told: dict[str, float], cpu: float) -> dict[str, float]:
    values = {key: told[key] for key in ("open", "delay_p50_ms", "delay_p99_ms", "first_p50_ms", "first_p99_ms") if told[key] >= 0}
    values["chunks_per_s"] = told["events"] / told["seconds"]
    if told["events"]:
        values["cpu_us"] = cpu / told["events"] * 1e6
    return values


def _problem(told: dict[str, object]) -> str:
    if told.get("failed"):
        return f"{told['failed']} streams failed; the first: {told['failure']}"
    if told.get("refused") or told.get("broken"):
        return f"{told.get('refused')} calls refused, {told.get('broken')} broken"
    return ""


def _children_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def wait_for_no_streams(engine_port: int) -> None:
    """What the last load left open at the engine must not be on the next one's bill."""
    end = time.monotonic() + IDLE_S
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://127.0.0.1:{engine_port}/streams", timeout=10) as answer:
            if json.load(answer)["open"] == 0:
                return
        time.sleep(0.1)
