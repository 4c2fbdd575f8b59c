"""What a policy lets through and what it drops, end to end: the engine's own log says what arrived, the ledger what was asked and what was sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.dialects.barred import BARRED, GUARDED, THING_OF
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.every_api import APIS, PATHS, ask, body_of, error_of, gateway_of_all
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer

ALLOWABLE = sorted(name for name, thing in BARRED.items() if not thing.never and name != "cache_salt")
STRIPPABLE = sorted(name for name, thing in BARRED.items() if not thing.stays)
POLICIES: Any = {
    "allowing": {"guard": {"allow": ALLOWABLE}},
    "stripping": {"guard": {"strip": STRIPPABLE}},
    "codex": {"guard": {"strip": ["web_search"]}},
    "ollama": {"guard": {"strip": ["keep_alive"]}},
    "shared": {"cache_sharing": "all", "guard": {"allow": ["cache_salt"]}},
    "alone": {"cache_sharing": "run", "guard": {"strip": ["cache_salt"]}},
}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with gateway_of_all(tmp_path_factory.mktemp("policies"), mock.url, policies=POLICIES) as process:
        yield process
        assert process.stop() == 0


def opened(gateway: GatewayProcess, policy: str, run: str = "r1", campaign: str = "") -> OpenedRun:
    return gateway.opened(campaign or policy, run, policy=policy)


@pytest.fixture(scope="module")
def runs(gateway: GatewayProcess) -> dict[str, OpenedRun]:
    return {policy: opened(gateway, policy) for policy in ("test", *POLICIES)}


def arrived(mock: MockProcess, path: str) -> bytes:
    """The body of the one call on this path."""
    (record,) = [record for record in mock.log() if record["path"] == path]
    return str(record["body"]).encode()


def details(gateway: GatewayProcess, answer: RawAnswer) -> dict[str, Any]:
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT body FROM journal WHERE call_id = :call AND kind = 'reserve'", call=answer.headers["x-request-id"])
        body: dict[str, Any] = json.loads(str(next(iter(rows))["body"]))
    return body


def value_of(name: str) -> Any:
    return {"store": True, "background": True, "echo": True, "priority": 5, "id_slot": 3, "slot_id": 3, "best_of": 3, "n_cmpl": 3}.get(name, "x")


FIELDS = sorted(GUARDED)


@pytest.mark.parametrize("field", FIELDS)
def test_the_key_that_a_refusal_names_makes_the_call_pass(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], field: str) -> None:
    thing, body = THING_OF[field], body_of("openai.chat", **{field: value_of(field)})
    refused = ask(gateway, runs["test"].key, "openai.chat", body)
    assert (refused.status, refused.json()["error"]["param"]) == (400, field)
    keys = re.findall(r'guard\.(allow|strip) = \["(\w+)"\]', error_of(refused)[2])
    assert keys and {name for _, name in keys} == {thing}
    for table, name in keys:
        policy = "shared" if name == "cache_salt" and table == "allow" else {"allow": "allowing", "strip": "stripping"}[table]
        mock.clear()
        answer = ask(gateway, runs[policy].key, "openai.chat", body)
        assert answer.status == 200, answer.body
        got = json.loads(arrived(mock, PATHS["openai.chat"]))
        if table == "allow":
            assert got[field] == value_of(field)
        else:
            assert field not in got or thing == "cache_salt"
            assert details(gateway, answer)["details"]["stripped"] == [field]


HEADERS = {"X-Conversation-Id": "c1", "X-Data-Parallel-Rank": "1", "X-SGLExt-Ids": "1", "X-Portkey-Custom-Host": "http://h", "X-Session-Params": "1"}


@pytest.mark.parametrize("api", [api for api in PATHS if api != "tgi.generate"])
def test_headers_that_steer_never_reach_an_engine_whatever_the_policy_says(
    gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str
) -> None:
    mock.clear()
    for policy in ("test", "allowing"):
        for name, value in HEADERS.items():
            assert ask(gateway, runs[policy].key, api, body_of(api), {name: value}).status == 400
    assert not [record for record in mock.log() if record["path"] == APIS[api]]
    ask(gateway, runs["stripping"].key, api, body_of(api), HEADERS)
    (record,) = [record for record in mock.log() if record["path"] == APIS[api]]
    assert not {name.lower() for name in HEADERS} & {name.lower() for name in dict(record["headers"])}


FUNCTION = {"type": "function", "name": "exec_command", "description": "Runs it.", "strict": False, "parameters": {"type": "object", "properties": {}}}
NAMESPACE = {"type": "namespace", "name": "multi_agent", "description": "Others.", "tools": [{"type": "function", "name": "spawn_agent", "parameters": {}}]}
CODEX: dict[str, Any] = {
    "model": "vllm",
    "instructions": "You are a coding agent \u2013 be brief.",
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "say \u00bbhi\u00ab, 1.50 and 1e3"}]}],
    "tools": [FUNCTION, NAMESPACE, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a22b44",
    "client_metadata": {"x": "y"},
}


def test_codex_declares_a_search_of_the_web_and_works_all_the_same(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun]) -> None:
    refused = ask(gateway, runs["test"].key, "openai.responses", CODEX)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "tools")
    assert 'guard.strip = ["web_search"]' in error_of(refused)[2]
    mock.clear()
    answer = ask(gateway, runs["codex"].key, "openai.responses", CODEX)
    assert answer.status == 200 and answer.body.rpartition(b"event: ")[2].startswith((b"response.completed", b"response.incomplete")), answer.body
    sent = arrived(mock, PATHS["openai.responses"])
    assert json.loads(sent)["tools"] == [FUNCTION, NAMESPACE]
    written = json.dumps(CODEX, separators=(",", ":"), ensure_ascii=False).encode()
    for name in ("instructions", "input", "reasoning", "store", "include", "prompt_cache_key", "client_metadata", "tool_choice"):
        member = json.dumps({name: CODEX[name]}, separators=(",", ":"), ensure_ascii=False).encode()[1:-1]
        assert member in written and member in sent, "byte for byte"
    tools = json.dumps([FUNCTION, NAMESPACE], separators=(",", ":"), ensure_ascii=False).encode()
    assert b'"tools":' + tools in sent
    record = details(gateway, answer)["details"]
    assert record["stripped"] == ["tools.web_search"]
    assert record["tools"] == ["exec_command", "spawn_agent"]
    assert record["fields"]["tools"]["bytes"] > len(tools), "what was asked"
    assert record["sent_bytes"] == len(sent)


@pytest.mark.parametrize("api", ["ollama.chat", "ollama.generate", "ollama.embed"])
def test_a_client_of_ollama_that_keeps_the_model_loaded_works_all_the_same(
    gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str
) -> None:
    body = body_of(api, keep_alive="30m")
    refused = ask(gateway, runs["test"].key, api, body)
    assert (refused.status, error_of(refused)[:2]) == (400, ("native", "not_allowed"))
    assert 'guard.strip = ["keep_alive"]' in error_of(refused)[2]
    mock.clear()
    ask(gateway, runs["ollama"].key, api, body)
    assert "keep_alive" not in json.loads(arrived(mock, PATHS[api]))
    with LedgerReader(gateway.ledger) as reader:
        rows = list(reader.query("SELECT body FROM journal WHERE kind = 'reserve' ORDER BY number DESC LIMIT 1"))
    record = json.loads(str(rows[0]["body"]))["details"]
    assert (record["stripped"], record["settings_asked"]["keep_alive"]) == (["keep_alive"], '"30m"')
    assert "keep_alive" not in record["settings_sent"]


def test_what_is_allowed_is_forwarded_in_every_format_that_has_it(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun]) -> None:
    remote = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://pictures.example/x.png"}}]}]}
    for api, fields in {
        "openai.chat": remote,
        "openai.responses": {"previous_response_id": "resp_1", "tools": [{"type": "web_search"}]},
        "anthropic.messages": {"mcp_servers": [{"name": "x"}], "tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]},
        "ollama.chat": {"options": {"num_gpu": 1}, "keep_alive": "5m"},
        "llamacpp.completion": {"id_slot": 2, "lora": [{"id": 0, "scale": 1.0}]},
        "lmstudio.chat": {"integrations": ["mcp/x"]},
    }.items():
        mock.clear()
        ask(gateway, runs["allowing"].key, api, body_of(api, **fields))
        got = json.loads(arrived(mock, PATHS[api]))
        for name, value in fields.items():
            held = {**got[name], **value} if isinstance(value, dict) else value
            assert got[name] == held, (api, name)


# -- prompt caches


def salt(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, api: str = "openai.chat", field: str = "cache_salt", **fields: Any) -> Any:
    mock.clear()
    answer = ask(gateway, run.key, api, body_of(api, **fields))
    assert b"cache_salt" not in answer.body
    return json.loads(arrived(mock, PATHS[api])).get(field)


@pytest.mark.parametrize("api", ["openai.chat", "openai.completions", "openai.responses"])
def test_on_vllm_runs_of_a_campaign_share_a_cache_and_nobody_else_does(gateway: GatewayProcess, mock: MockProcess, api: str) -> None:
    of = api.partition(".")[2]
    one, two, other = (opened(gateway, "test", run, campaign) for campaign, run in ((f"salty-{of}", "r1"), (f"salty-{of}", "r2"), (f"sweet-{of}", "r1")))
    salts = [salt(gateway, mock, run, api) for run in (one, one, two, other)]
    assert re.fullmatch("[0-9a-f]{64}", salts[0])
    assert salts[0] == salts[1] == salts[2] != salts[3]


def test_on_vllm_a_run_may_have_a_cache_of_its_own(gateway: GatewayProcess, mock: MockProcess) -> None:
    one, two = opened(gateway, "alone", "own-1"), opened(gateway, "alone", "own-2")
    salts = [salt(gateway, mock, run) for run in (one, one, two)]
    assert salts[0] == salts[1] != salts[2]
    assert salt(gateway, mock, one, cache_salt=salts[2]) == salts[0], "an agent's own is dropped, the gateway's written"


def test_where_all_share_there_is_no_salt_but_one_that_is_allowed(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun]) -> None:
    assert salt(gateway, mock, runs["shared"]) is None
    assert salt(gateway, mock, runs["shared"], cache_salt="mine") == "mine"


def test_on_sglang_the_salt_has_its_own_name(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun]) -> None:
    assert re.fullmatch("[0-9a-f]{64}", salt(gateway, mock, runs["test"], "sglang.generate", "extra_key"))


@pytest.mark.parametrize("api", ["llamacpp.completion", "ollama.chat", "lmstudio.chat", "anthropic.messages"])
def test_where_nothing_reads_a_salt_none_is_sent(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    ask(gateway, runs["test"].key, api, body_of(api))
    assert not {"cache_salt", "extra_key"} & json.loads(arrived(mock, PATHS[api])).keys()


def test_no_agent_learns_a_salt(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun]) -> None:
    secret = salt(gateway, mock, runs["test"])
    with LedgerReader(gateway.ledger) as reader:
        written = "".join(str(row["body"]) for row in reader.query("SELECT body FROM journal"))
    assert secret not in written and secret not in gateway.process.output


def test_what_each_engine_can_keep_apart_is_said_at_start(gateway: GatewayProcess) -> None:
    lines = [line for line in gateway.process.output.splitlines() if "prompt caches" in line]
    assert len(lines) == 5
    assert sum("it can't keep prompt caches apart" in line for line in lines) == 3
    assert sum("it keeps prompt caches apart (cache_sharing of the policy), but not in" in line for line in lines) == 2


def test_salts_are_the_same_after_a_restart(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> None:
    with gateway_of_all(tmp_path_factory.mktemp("again"), mock.url) as process:
        run = opened(process, "test")
        before = salt(process, mock, run)
        assert process.stop() == 0
        process.start()
        assert salt(process, mock, run) == before
        with gateway_of_all(tmp_path_factory.mktemp("another"), mock.url) as other:
            assert salt(other, mock, opened(other, "test")) != before, "another ledger, another secret"
