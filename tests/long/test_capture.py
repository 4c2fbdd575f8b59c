"""`capture = true`: what the agent sent, what the engine was sent and what the agent got, byte for byte; and only where the policy says so."""

import json
import subprocess
import sys
from pathlib import Path

from gateway.capture.store import bodies_folder
from gateway.ledger.reading import LedgerReader
from gateway.pack.packing import write_pack
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once
from tests.support.toml import merged

PROMPT = "a prompt worth keeping"


def typed(gateway: GatewayProcess, *words: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "gateway", *map(str, words), "--ledger", str(gateway.ledger)], capture_output=True, timeout=60)


def call(gateway: GatewayProcess, key: str, *, stream: bool, content: str = PROMPT) -> RawAnswer:
    return chat_once(gateway.port, key, max_tokens=5, stream=stream, messages=[{"role": "user", "content": content}])


def test_bodies_are_kept_byte_for_byte_exported_and_pruned(tmp_path: Path) -> None:
    policies = {"keeps": merged(POLICY, {"capture": True}), "plain": POLICY}
    with MockProcess() as mock, GatewayProcess(tmp_path, mock.url, policies=policies) as gateway:
        kept = gateway.opened("training", "r1", policy="keeps")
        other = gateway.opened("other", "r1", policy="keeps")
        plain = gateway.opened("plain", "r1", policy="plain")
        whole, stream = call(gateway, kept.key, stream=False), call(gateway, kept.key, stream=True)
        call(gateway, other.key, stream=True)
        call(gateway, plain.key, stream=False, content="a prompt nobody keeps")
        sent = [record["raw_body"] for record in mock.calls()] if "raw_body" in mock.calls()[0] else []
        assert gateway.stop() == 0

        for answer in (whole, stream):
            name = answer.headers["x-request-id"]
            received = typed(gateway, "capture", "show", name)
            assert json.loads(received.stdout)["messages"][0]["content"] == PROMPT
            assert typed(gateway, "capture", "show", name, "--role", "answer").stdout == answer.body
            forwarded = typed(gateway, "capture", "show", name, "--role", "sent").stdout
            assert json.loads(forwarded)["max_tokens"] == 5
            assert not sent or forwarded.decode() in sent
            told = json.loads(typed(gateway, "explain", name, "--json").stdout)
            tmp_path.joinpath("body").write_bytes(forwarded)
            assert typed(gateway, "explain", name, "--body", tmp_path / "body").returncode == 0, told

        everything = b"".join(path.read_bytes() for path in [gateway.ledger])
        assert PROMPT.encode() not in everything

        with LedgerReader(gateway.ledger) as reader:
            write_pack(reader, "training", tmp_path / "pack")
        packed = b"".join(path.read_bytes() for path in (tmp_path / "pack").rglob("*") if path.is_file())
        assert whole.headers["x-request-id"].encode() in packed and PROMPT.encode() not in packed

        out = tmp_path / "training.jsonl"
        assert typed(gateway, "capture", "export", "training", "--out", out).returncode == 0
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert [(line["run"], line["outcome"], line["request"]["messages"][0]["content"]) for line in lines] == [("r1", "length", PROMPT)] * 2
        assert lines[0]["answer"]["choices"][0]["message"]["content"]
        assert lines[1]["answer"].startswith("data: ")
        assert typed(gateway, "capture", "export", "training", "--out", out).returncode == 2

        held = len(list(bodies_folder(gateway.ledger).glob("[0-9a-f][0-9a-f]/*")))
        dry = json.loads(typed(gateway, "capture", "prune", "--campaign", "training", "--dry-run", "--json").stdout)
        assert (len(list(bodies_folder(gateway.ledger).glob("[0-9a-f][0-9a-f]/*"))), dry["removed"]) == (held, False)
        typed(gateway, "capture", "prune", "--campaign", "training")
        assert typed(gateway, "capture", "show", whole.headers["x-request-id"]).returncode == 2
        assert len(list(bodies_folder(gateway.ledger).glob("[0-9a-f][0-9a-f]/*"))) == held - dry["bodies"] > 0
        assert typed(gateway, "capture", "prune").returncode == 2
        assert json.loads(typed(gateway, "capture", "prune", "--all", "--json").stdout)["bodies"] == held - dry["bodies"]
        assert typed(gateway, "capture", "show", "call-nobody").returncode == 2
