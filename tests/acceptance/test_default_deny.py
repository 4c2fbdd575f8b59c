"""Default deny, against a real process and by the byte: what is not declared is 404 in the same words and never reaches the engine.

What reached the engine is read from its own log: nothing may stand there but what the gateway asks for itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.support.control import OpenedRun
from tests.support.every_api import error_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer
from tests.support.wire import Wire, request

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE")
"""CONNECT names no path; it is tried by itself."""
OWN = {("GET", "/health"), ("GET", "/props"), ("GET", "/v1/models"), ("POST", "/apply-template"), ("POST", "/tokenize")}
"""What the gateway asks an engine for, besides the calls themselves."""
REFUSED: dict[str, str] = {
    "llama.cpp": """/props /slots /slots/0 /slots/0?action=save /slots/0?action=restore /slots/0?action=erase /lora-adapters /models /models/load
        /models/unload /models/sse /models?autoload=1 /tools /cors-proxy /v1/stream /v1/stream/abc /v1/streams /v1/chat/completions/control /predict /metrics
        /health /v1/health /completion /completions /infill /embedding /embeddings /rerank /reranking /v1/rerank /v1/reranking /tokenize /detokenize
        /apply-template /chat/completions /responses /v1/responses /v1/messages /v1/messages/count_tokens /v1/completions /v1/embeddings
        /v1/chat/completions/input_tokens /v1/responses/input_tokens /api/show /api/tags /api/chat""",
    "vLLM": """/v1/load_lora_adapter /v1/unload_lora_adapter /sleep /wake_up /is_sleeping /release_kv_cache_memory /reset_prefix_cache /reset_mm_cache
        /reset_encoder_cache /collective_rpc /server_info /pause /resume /abort_requests /update_weights /update_weights_from_disk /start_profile
        /stop_profile /scale_elastic_ep /is_scaling_elastic_ep /fault_tolerance/apply /inference/v1/generate /v1/chat/completions/render
        /v1/completions/render /v1/chat/completions/derender /v1/chat/completions/batch /invocations /pooling /classify /v1/realtime /metrics /load /version
        /ping /score /v1/score /v2/rerank /v1/audio/transcriptions /v1/audio/translations /tokenizer_info /docs /openapi.json /redoc""",
    "SGLang": """/generate /flush_cache /abort_request /pause_generation /continue_generation /update_weights_from_disk /update_weights_from_tensor
        /update_weights_from_distributed /init_weights_update_group /init_weights_send_group_for_remote_instance /release_memory_occupation
        /resume_memory_occupation /load_lora_adapter /unload_lora_adapter /set_internal_state /get_internal_state /configure_logging /start_profile
        /stop_profile /slow_down /open_session /close_session /get_weights_by_name /weights_checker /server_info /get_server_info /hicache/storage-backend
        /hicache/clear /pd_role_switch /dumper/start /dumper/stop /freeze_gc /set_trace_level /add_external_corpus /remove_external_corpus
        /list_external_corpus /begin_weight_update /end_weight_update /start_expert_distribution_record /stop_expert_distribution_record
        /dump_expert_distribution_record /invocations /vertex_generate /v1/realtime /health_generate /get_model_info /model_info /encode""",
    "Ollama": """/api/pull /api/push /api/create /api/copy /api/delete /api/blobs/sha256:0 /api/blobs/sha256-0 /api/me /api/signout /api/user/keys
        /api/user/keys/x /api/experimental/web_search /api/experimental/web_fetch /api/embeddings /api/embed /api/generate /api/chat /api/ps /api/version
        /api/tags /api/show""",
    "LM Studio": """/api/v1/models/load /api/v1/models/unload /api/v1/models/download /api/v1/models/download/status/1 /api/v1/models /api/v1/chat
        /api/v0/models /api/v0/chat/completions""",
    "TGI": "/ /invocations /vertex /metrics /info /generate /generate_stream /chat_tokenize",
    "llama-cpp-python": "/v1/engines/copilot-codex/completions /extras/tokenize /extras/detokenize",
    "TabbyAPI": """/v1/model/load /v1/model/unload /v1/model/embedding/load /v1/model/embedding/unload /v1/model /v1/model/list /v1/download /v1/lora
        /v1/loras /v1/lora/load /v1/lora/unload /v1/template /v1/templates /v1/template/switch /v1/template/unload /v1/sampling/overrides
        /v1/sampling/override/switch /v1/sampling/override/unload /v1/token/encode /v1/token/decode /v1/auth/permission /api/v1/generate /api/extra/version""",
    "the gateway's control plane": """/v1/campaigns /v1/campaigns/c1 /v1/campaigns/c1/halt /v1/campaigns/c1/resume /v1/campaigns/c1/close
        /v1/campaigns/c1/runs /v1/campaigns/c1/runs/r1 /v1/campaigns/c1/runs/r1/close /v1/campaigns/c1/runs/r1/receipt /v1/campaigns/c1/receipt /v1/keys
        /v1/keys/k1/revoke /v1/usage /v1/ledger/clock /v1/ledger/clock/accept /v1/status /metrics /livez /readyz""",
    "the mock engine's own": "/mock/log /mock/script",
    "near the declared ones": """/v1 /v1/ /v1/chat /v1/chat/ /v1/chat/completion /v1/chat/completionss /V1/chat/completions /v1/Chat/completions
        /v1/chat/completions/x /v1/model /v1/models/mock /v1/models/x /v2/chat/completions /favicon.ico /robots.txt /.env /.well-known/x /index.html""",
}
WORDS = "Not a declared API of this gateway."
"""The same whatever was asked; the path alone chooses the form (test_answers_before_a_call.py)."""
DECLARED = {"/v1/chat/completions": "POST", "/v1/models": "GET"}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("deny"), mock.url) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


def reached(mock: MockProcess) -> list[tuple[str, str]]:
    """What came to the engine and is none of the gateway's own requests."""
    return [asked for record in mock.log() if (asked := (record["method"], record["path"])) not in OWN]


def same_ids(answer: RawAnswer) -> bool:
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    return answer.headers["x-request-id"].startswith("call-")


def ask_all(gateway: GatewayProcess, asked: list[tuple[str, str]], headers: dict[str, str]) -> list[RawAnswer]:
    """One after another on one connection, each with a body where its method may have one."""
    answers = []
    with Wire(gateway.port) as wire:
        for method, target in asked:
            body = None if method in ("GET", "HEAD", "TRACE", "OPTIONS") else b'{"model":"mock","messages":[{"role":"user","content":"hi"}]}'
            wire.send(request(method, target, headers, body))
            answers.append(wire.answer(head=method == "HEAD"))
    return answers


@pytest.mark.parametrize("server", REFUSED)
def test_what_a_server_has_besides_is_404_by_every_method_and_never_reaches_it(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, server: str) -> None:
    mock.clear()
    asked = [(method, path) for path in REFUSED[server].split() for method in METHODS]
    answers = ask_all(gateway, asked, {"Authorization": f"Bearer {run.key}"})
    assert [pair for pair, answer in zip(asked, answers, strict=True) if answer.status != 404] == []
    assert {error_of(answer)[1:] for answer, (method, _) in zip(answers, asked, strict=True) if method != "HEAD"} == {("not_found", WORDS)}
    assert all(map(same_ids, answers))
    assert len({answer.headers["request-id"] for answer in answers}) == len(answers)
    assert reached(mock) == []


@pytest.mark.parametrize("path", DECLARED)
def test_a_declared_path_is_404_by_every_method_but_its_own(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, path: str) -> None:
    mock.clear()
    others = [(method, path) for method in METHODS if method != DECLARED[path]]
    assert {answer.status for answer in ask_all(gateway, others, {"x-api-key": run.key})} == {404}
    assert reached(mock) == []


FORMS = [
    *(form for path in (*DECLARED, "/slots", "/props", "/metrics", "/health") for form in (
        path.replace("/", "//", 1), path + "/", path + "//", "/." + path, path + "/.", "/x/.." + path, path + "/..", path + "/../../slots", path + ";x",
        path + "%00", path + "%2f", path + "%20", quote(path, safe=""), "/" + quote(path[1:], safe=""), path[:2] + f"%{ord(path[2]):02x}" + path[3:],
        path.replace("/", "%2f"), "/%2e" + path, "/%2e%2e" + path, "/x/%2e%2e" + path, path.replace("/", "\\"), path + "\\", path.upper(),
        f"http://127.0.0.1{path}", f"http://gateway{path}", f"https://gateway:443{path}", f"HTTP://GATEWAY{path}", f"//gateway{path}", f"/http://gateway{path}",
        path + "/%2e%2e/%2e%2e/slots", path + "%3f", path + "%23x", path + ",", path + "~", path + "*", path + ":x", path + "@x",
    )),
    "*", "/*", "/%", "/%zz", "//", "///",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_other_form_of_a_path_is_that_path(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, method: str) -> None:
    mock.clear()
    rooted = [form for form in FORMS if form.startswith("/")]
    answers = ask_all(gateway, [(method, form) for form in rooted], {"x-goog-api-key": run.key})
    assert [form for form, answer in zip(rooted, answers, strict=True) if answer.status != 404] == []
    assert len({answer.body for answer in answers}) == 1
    for form in FORMS:
        if not form.startswith("/"):  # some are no target at all: then the connection ends
            (answer,) = ask_all(gateway, [(method, form)], {"x-goog-api-key": run.key})
            assert answer.status in (400, 404), form
    assert reached(mock) == []


BROKEN = ["/v1/mödels", "/v1/models x", "/v1/models\t", "v1/models", "http://[::1/v1/models", "", "/v1/models\x01", "/v1/\udcff"]


@pytest.mark.parametrize("target", BROKEN, ids=ascii)
def test_a_target_that_is_none_is_refused_in_our_form_and_its_connection_closed(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, target: str
) -> None:
    mock.clear()
    with Wire(gateway.port) as wire:
        wire.send(request("GET", target, {"x-api-key": run.key}))
        answer = wire.answer()
        assert answer.status in (400, 404)
        assert same_ids(answer) and answer.json()["error"]["code"] in ("bad_request", "not_found")
        assert answer.status == 404 or wire.is_closed()
    assert run.key.encode() not in answer.body
    assert reached(mock) == []


@pytest.mark.parametrize("target", ["127.0.0.1:80", "gateway:443", "/v1/models", "http://x/v1/models"])
def test_connect_is_no_way_through(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, target: str) -> None:
    mock.clear()
    with Wire(gateway.port) as wire:
        wire.send(request("CONNECT", target, {"x-api-key": run.key}))
        assert wire.answer().status in (400, 404)
    assert reached(mock) == []


def test_the_engines_own_facts_are_never_asked_for_by_an_agent(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    """These the gateway asks for too, so they are told apart by their number."""
    mock.clear()
    asked = [pair for pair in OWN if pair != ("GET", "/v1/models")] * 50
    assert {answer.status for answer in ask_all(gateway, asked, {"x-api-key": run.key})} == {404}
    assert {answer.status for answer in ask_all(gateway, [("GET", "/v1/models")] * 50, {"x-api-key": run.key})} == {200}
    assert len(mock.log()) < 50


def test_the_list_of_models_is_what_is_declared_and_the_query_is_dropped(gateway: GatewayProcess, run: OpenedRun) -> None:
    (answer,) = ask_all(gateway, [("GET", "/v1/models?autoload=1&x=%2e%2e")], {"x-api-key": run.key})
    assert [model["id"] for model in answer.json()["data"]] == ["mock"]
    assert same_ids(answer)


def test_without_a_known_key_all_is_401_in_the_same_words(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    asked = [("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/slots"), ("POST", "/v1/campaigns"), ("DELETE", "//x"), ("GET", "/%2e")]
    strangers: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer gw-unknown"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic dTpw"},
        {"x-api-key": run.key[:-1]},
        {"x-api-key": run.key + "x"},
        {"x-api-key": run.key.swapcase()},
        {"x-goog-api-key": "\udcff"},
        {"Cookie": run.key, "api-key": run.key},
        {"Authorization": f"Bearer {run.key}", "x-api-key": "gw-other"},
        {"x-api-key": run.key, "x-goog-api-key": "gw-other"},
    ]
    answers = [answer for headers in strangers for answer in ask_all(gateway, asked, headers)]
    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1
    kept = [{name: value for name, value in answer.headers.items() if name not in ("x-request-id", "request-id", "date")} for answer in answers]
    assert all(headers == kept[0] for headers in kept)
    assert all(map(same_ids, answers))
    assert reached(mock) == []


@pytest.mark.parametrize("names", [["Authorization"], ["x-api-key"], ["x-goog-api-key"], ["Authorization", "x-api-key", "x-goog-api-key"]])
def test_each_of_three_headers_names_the_key_and_they_may_agree(gateway: GatewayProcess, run: OpenedRun, names: list[str]) -> None:
    headers = {name: f"Bearer {run.key}" if name == "Authorization" else run.key for name in names}
    (answer,) = ask_all(gateway, [("POST", "/v1/chat/completions")], headers)
    assert answer.status == 200, answer.body


def test_a_key_of_another_run_and_a_key_of_this_one_are_nobody(gateway: GatewayProcess, run: OpenedRun) -> None:
    other = gateway.opened("c1", "r2")
    (answer,) = ask_all(gateway, [("GET", "/v1/models")], {"Authorization": f"Bearer {run.key}", "x-api-key": other.key})
    assert answer.status == 401


def test_refusals_before_there_is_a_call_are_counted_and_stand_in_no_ledger(gateway: GatewayProcess, run: OpenedRun) -> None:
    control = gateway.control
    before = control.metric("gateway_undeclared_total"), control.metric("gateway_unauthorized_total")
    entries = json.dumps(control.run(run))
    ask_all(gateway, [("GET", "/slots")] * 7, {"x-api-key": run.key})
    ask_all(gateway, [("GET", "/slots")] * 5, {"x-api-key": "gw-x"})
    after = control.metric("gateway_undeclared_total"), control.metric("gateway_unauthorized_total")
    assert (after[0] - before[0], after[1] - before[1]) == (7, 5)
    assert json.dumps(control.run(run)) == entries
