"""What stands between the client and the engine: nothing, a bare proxy, peers, and this gateway as it is used: guarded, limited, its ledger durable."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bodies import body
from processes import started
from scenarios import MODELS, WHOLE

from gateway.client.control import ControlClient

HERE = Path(__file__).parent
PEERS = Path(os.environ.get("GATEWAY_BENCH_PEERS") or Path(tempfile.gettempdir()) / "gateway-bench-peers")
KEY = "sk-bench-5d3b0c9e7f1a4826"
GATEWAY_CPU = 1
READY_S = 120


class NotHere(Exception):
    """It is not installed."""


@dataclass(slots=True, kw_only=True)
class Target:
    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None
    """None: the engine itself."""
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where targets are started."""

    folder: Path
    engine_port: int
    pinned: bool
    undo: list[Callable[[], object]] = field(default_factory=list)

    def start(self, name: str, command: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        return started(command, cpu=GATEWAY_CPU if self.pinned else None, log=self.folder / f"{name}.log", env=env)

    def filled(self, name: str, port: int, more: str = "") -> Path:
        """A peer's configuration with its ports."""
        text = (HERE / "peers" / name).read_text()
        for word, value in {"PORT": port, "ENGINE_PORT": self.engine_port, "KEY": KEY, "FOLDER": self.folder}.items():
            text = text.replace(f"@{word}@", str(value))
        path = self.folder / name
        path.write_text(text + more)
        return path


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def direct(place: Place) -> Target:
    return Target(name="direct", port=place.engine_port)


def nginx(place: Place) -> Target:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise NotHere("nginx")
    port = free_port()
    config = place.filled("nginx.conf", port)
    process = place.start("nginx", [program, "-p", str(place.folder), "-e", str(place.folder / "nginx-errors.log"), "-c", str(config)])
    return Target(name="nginx", port=port, process=process)


def litellm(place: Place) -> Target:
    program, port = _peer("litellm"), free_port()
    config = place.filled("litellm.yaml", port)
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return Target(name="litellm", port=port, process=place.start("litellm", command, env), key=KEY)


def rolter(place: Place) -> Target:
    program, port = _peer("rolter"), free_port()
    routes = "".join(f'\n[[routes]]\nmodel = "{model}"\n[[routes.targets]]\nprovider = "engine"\nmodel = "{model}"\n' for model in MODELS)
    config = place.filled("rolter.toml", port, routes)
    env = {"RUST_LOG": "error", "TOKIO_WORKER_THREADS": "1"}
    return Target(name="rolter", port=port, process=place.start("rolter", [str(program), "gateway", "--config", str(config)], env), key=KEY)


def _peer(name: str) -> Path:
    program = PEERS / name / "bin" / name
    if not program.exists():
        raise NotHere(f"{name} (bench/peers.sh installs it)")
    return program


AMPLE = {"requests": 10**9, "input_tokens": 10**12, "output_tokens": 10**12, "total_tokens": 2 * 10**12}
SHARES = {"run": 2, "run.foreground": 1, "campaign": 8}
"""A broader scope holds more, else a narrower limit could never bind."""


def policy_text(counter: str) -> str:
    """Every limit of a run, a lane and a campaign that a call may be held to; none of them is ever reached."""
    models = "".join(f'\n[models."{model}"]\ncounter = "{counter}"\ncontext_tokens = 1_000_000\noverhead_tokens = 64\n' for model in MODELS)
    limits = "".join(_limits(scope, share) for scope, share in SHARES.items())
    day = f"\n[campaign.day]\nrequests = {4 * AMPLE['requests']}\noutput_tokens = {4 * AMPLE['output_tokens']}\n"
    call = "\n[call]\nprompt_tokens = 800_000\noutput_tokens = 100_000\n"
    head = 'schema = 1\napis = ["openai.chat", "openai.models"]\ntimezone = "Europe/Berlin"\n\n[lanes.foreground]\n[lanes.background]\n'
    return head + models + call + limits + day


def _limits(scope: str, share: int) -> str:
    lines = "".join(f"{quantity} = {amount * share}\n" for quantity, amount in AMPLE.items())
    return f"\n[{scope}]\n{lines}concurrent = {5_000 * share}\n"


def settings_text(folder: Path, socket_path: Path, engine_port: int) -> str:
    models = "".join(f'"{model}" = "{model}"\n' for model in MODELS)
    return (
        f'policies = "{folder}/policies"\n\n[data]\nlisten = "127.0.0.1:0"\n\n[control]\nsocket = "{socket_path}"\n\n'
        f'[ledger]\npath = "{folder}/gateway.ledger"\n\n'
        f'[upstreams.engine]\naddress = "http://127.0.0.1:{engine_port}"\nengine = "generic"\nslots = 5_000\n\n[upstreams.engine.models]\n{models}'
    )


def gateway(place: Place, counter: str = "bytes") -> Target:
    name = f"gateway-{counter.partition(':')[0]}"
    folder = place.folder / name
    sockets = Path(tempfile.mkdtemp(prefix="gw-"))  # a Unix socket's path must be short
    place.undo.append(lambda: shutil.rmtree(sockets, ignore_errors=True))
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "bench.toml").write_text(policy_text(counter))
    config = folder / "gateway.toml"
    config.write_text(settings_text(folder, sockets / "control", place.engine_port))
    process = place.start(name, [str(Path(sys.executable).parent / "gateway"), "serve", "--config", str(config)])
    address = _ready_line(place.folder / f"{name}.log", process)
    control = ControlClient(sockets / "control")
    control.open_campaign("bench", "bench")
    keys = control.open_run("bench", "run-1")["keys"]
    return Target(name=name, port=int(address.rpartition(":")[2]), process=process, key=keys["foreground"])


def _ready_line(log: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("ready "):
                return dict(word.split("=", 1) for word in line.split()[1:])["data"]
        time.sleep(0.1)
    raise RuntimeError(f"the gateway has not started; its log: {log.read_text(errors='replace')[-2000:]}")


TARGETS: dict[str, Callable[[Place], Target]] = {
    "direct": direct,
    "nginx": nginx,
    "litellm": litellm,
    "rolter": rolter,
    "gateway-bytes": gateway,
    "gateway-tiktoken": lambda place: gateway(place, "tiktoken:o200k_base"),
}


def wait_ready(target: Target) -> None:
    """Until a whole call passes. Raises RuntimeError with what it said last."""
    end, said = time.monotonic() + READY_S, "nothing"
    while time.monotonic() < end and (target.process is None or target.process.poll() is None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{target.port}/v1/chat/completions",
            data=body("2kB", WHOLE, stream=False),
            headers={"Content-Type": "application/json", **target.headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                if json.load(answer)["usage"]["total_tokens"] > 0:
                    return
        except urllib.error.HTTPError as error:
            said = f"{error.code} {error.read()[:300]!r}"
        except (OSError, ValueError, KeyError) as error:
            said = str(error)
        time.sleep(0.3)
    raise RuntimeError(f"{target.name} does not answer: {said}")
