"""A trial as a fixture: what went over the wire, the agent's own record and the ledger, small and without secrets.

`tests/fixtures/agents/SETUP/SCENARIO/` holds `requests.jsonl` (as received, and how each was answered), `record.*` (the agent's own), `ledger.sqlite` (a copy
of the gateway's) and `meta.json`. Strings of requests and records are cut short; digests in the ledger are of what really came.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import sqlite3
from pathlib import Path
from typing import Any

from tests.agents.recorder import Heard
from tests.agents.scenarios import playbook
from tests.agents.shortening import shortened, shortened_record
from tests.agents.trial import Trial

FOLDER = Path(__file__).parents[1] / "fixtures" / "agents"
MADE_UP_KEY = "gw-made-up-key-0123456789abcdef"
SECRET_HEADERS = ("authorization", "x-api-key")


def keep(trial: Trial, folder: Path = FOLDER) -> Path:
    """In place of what was kept before."""
    target = folder / trial.setup.name / trial.scenario.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, data in trial.setup.records(trial.ran).items():
        (target / name).write_bytes(_without_host(shortened_record(name, data)))
    (target / "requests.jsonl").write_text(
        "".join(json.dumps(_request(one, bodies=trial.scenario.limit != "wall"), ensure_ascii=False) + "\n" for one in trial.heard)
    )
    (target / "meta.json").write_text(json.dumps(_meta(trial), indent=1, ensure_ascii=False) + "\n")
    connection = sqlite3.connect(trial.ledger)
    connection.execute("PRAGMA page_size = 512")
    connection.execute("VACUUM INTO ?", (str(target / "ledger.sqlite"),))
    connection.close()
    return target


def _request(heard: Heard, *, bodies: bool) -> dict[str, Any]:
    """Up to its cut an agent sends what it sends when all goes well: of these the bodies are left out."""
    headers = [[name, _made_up(value) if name.lower() in SECRET_HEADERS else value] for name, value in heard.headers]
    kept: dict[str, Any] = {"at_ms": heard.at_ms, "method": heard.method, "target": heard.target, "headers": headers}
    if heard.body:
        kept |= {"body_bytes": len(heard.body), "body_sha256": hashlib.sha256(heard.body).hexdigest()}
        if bodies:
            kept["body"] = shortened(json.loads(heard.body))
    return kept | {"status": heard.status, "code": heard.code}


def _made_up(value: str) -> str:
    return f"Bearer {MADE_UP_KEY}" if value.startswith("Bearer ") else MADE_UP_KEY


def _meta(trial: Trial) -> dict[str, Any]:
    setup = trial.setup
    return {
        "agent": setup.agent,
        "version": setup.version,
        "setup": setup.name,
        "scenario": trial.scenario.name,
        "dialect": setup.dialect,
        "command": setup.shown,
        "campaign": "agents",
        "run": "r1",
        "exit": trial.ran.exit,
        "finished": trial.wrote,
        "record_ends": trial.ending.words,
        "outcomes": trial.outcomes,
        "refused": trial.refused,
        "policy": trial.rules,
        "playbook": shortened(playbook(setup, trial.scenario)) if trial.scenario.limit == "wall" else playbook(setup, trial.scenario),
    }


def _without_host(data: bytes) -> bytes:
    name = socket.gethostname().encode()
    return data if len(name) < 4 else data.replace(name, b"host")
