"""`gateway upstream probe` on a real llama.cpp, on the mock engine, and on what other servers were seen or are known to say of themselves."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from gateway.cli.root import root
from gateway.demo.engine import RealEngine
from gateway.engines import ENGINES
from gateway.settings.loading import load_settings
from gateway.upstream import probe
from tests.support.fact_server import Fact, FactServer, captured, fact
from tests.support.mock_process import MockProcess
from tests.support.tokenizing_engine import TokenizingEngine


@dataclass(frozen=True)
class Probed:
    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Probe = Callable[..., Probed]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Probe:
    def asked(url: str, *words: str) -> Probed:
        code = root.main(["upstream", "probe", url, *words], standalone_mode=False)
        out, err = capsys.readouterr()
        return Probed(code, out, err)

    return asked


def listed(*names: str, owner: str, **more: object) -> Fact:
    return fact({"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner, **more} for name in names]})


OK = Fact(200, b"{}")
SERVERS: dict[str, tuple[dict[str, Fact], dict[str, Any]]] = {
    "llama.cpp": (
        {
            "/v1/models": captured("llama_cpp_native", "get_v1_models"),
            "/props": captured("llama_cpp_native", "get_props"),
            "/health": captured("llama_cpp_native", "get_health"),
            "POST /tokenize": fact({"tokens": [1]}),
            "POST /v1/messages/count_tokens": fact({"input_tokens": 9}),
        },
        {"engine": "llama.cpp", "models": ["smollm2"], "context_tokens": 2048, "health_path": "/health", "tokenizer": "/tokenize", "counts_messages": True,
         "streams_report_usage": "unasked"},
    ),
    "llama-cpp-python": (
        {
            "/v1/models": captured("llama_cpp_python", "get_v1_models"),
            "/health": captured("llama_cpp_python", "get_health"),
            "/openapi.json": captured("llama_cpp_python", "get_openapi.json"),
            "POST /extras/tokenize/count": fact({"count": 2}),
        },
        {"engine": "generic", "version": "0.3.36", "models": ["smollm2"], "slots": None, "health_path": "/v1/models", "tokenizer": "/extras/tokenize/count",
         "counts_messages": False, "streams_report_usage": "never"},
    ),
    "transformers serve": (
        {"/v1/models": captured("transformers_serve", "get_v1_models"), "/health": captured("transformers_serve", "get_health")},
        {"engine": "generic", "models": ["/models/smol"], "health_path": "/health", "tokenizer": None, "streams_report_usage": "unasked"},
    ),
    "vLLM": (
        {"/v1/models": listed("org/M", owner="vllm", max_model_len=4096), "/version": fact({"version": "0.33.0"}), "/health": Fact(),
         "POST /tokenize": fact({"count": 1, "max_model_len": 4096, "tokens": [1]}), "POST /v1/messages/count_tokens": fact({"input_tokens": 9})},
        {"engine": "vllm", "version": "0.33.0", "context_tokens": 4096, "tokenizer": "/tokenize", "salts_prompt_cache": True, "streams_report_usage": "asked"},
    ),
    "SGLang": (
        {"/v1/models": listed("org/M", owner="sglang", max_model_len=8192), "/get_model_info": fact({"model_path": "org/M", "is_generation": True}),
         "POST /tokenize": fact({"tokens": [1], "count": 1, "max_model_len": -1})},
        {"engine": "sglang", "context_tokens": 8192, "health_path": "/v1/models", "tokenizer": "/tokenize", "salts_prompt_cache": True},
    ),
    "Ollama": (
        {"/v1/models": listed("qwen3.6:35b", "embed:latest", owner="library"), "/api/version": fact({"version": "0.14.2"})},
        {"engine": "ollama", "version": "0.14.2", "models": ["qwen3.6:35b", "embed:latest"], "health_path": "/api/version", "tokenizer": None},
    ),
    "TGI": (
        {"/v1/models": listed("org/M", owner="org/M"), "/info": fact({"model_id": "org/M", "max_total_tokens": 2048, "version": "3.3.6"}), "/health": Fact(),
         "POST /tokenize": fact([{"id": 1, "text": "a"}])},
        {"engine": "generic", "version": "3.3.6", "context_tokens": 2048, "tokenizer": "/tokenize", "health_path": "/health"},
    ),
    "LM Studio": (
        {"/v1/models": listed("m", owner="organization_owner")},
        {"engine": "generic", "health_path": "/v1/models", "tokenizer": None, "counts_messages": False},
    ),
    "TabbyAPI": (
        {"/v1/models": listed("m", owner="tabbyAPI"), "/health": fact({"status": "healthy"}), "POST /v1/token/encode": fact({"tokens": [1], "length": 1})},
        {"engine": "generic", "tokenizer": "/v1/token/encode", "health_path": "/health"},
    ),
    "mlx-lm": (
        {"/v1/models": Fact(200, listed("m", owner="x").body, {"server": "BaseHTTP/0.6 Python/3.12"}), "/health": OK},
        {"engine": "generic", "health_path": "/health"},
    ),
    "a server that is not known by name": (
        {"/v1/models": listed("m", owner="somebody"), "/ping": Fact()},
        {"engine": "generic", "health_path": "/ping", "streams_report_usage": None, "slots": None},
    ),
}  # fmt: skip
LM_STUDIO_MISSING = fact({"error": "Unexpected endpoint or method. (GET /props)"})


def settings_of(text: str, folder: Path) -> Any:
    """As `gateway serve` reads it."""
    file = folder / "gateway.toml"
    file.write_text(text)
    return load_settings(file)


@pytest.mark.parametrize("product", SERVERS)
def test_a_server_is_told_by_its_marks_and_its_table_is_accepted_unchanged(ask: Probe, tmp_path: Path, product: str) -> None:
    facts, expected = SERVERS[product]
    with FactServer(facts, LM_STUDIO_MISSING if product == "LM Studio" else None) as server:
        told, table = ask(server.url, "--json"), ask(server.url)
    assert (told.exit_code, told.err) == (0, "")
    found = told.document
    assert {name: found[name] for name in expected} == expected
    assert (found["product"], found["toml"]) == (product, table.out)
    assert "/health_generate" not in str(server.asked)
    [(name, upstream)] = settings_of(table.out, tmp_path).upstreams.items()
    assert (name, upstream.engine, upstream.address) == (found["name"], expected["engine"], server.url)
    assert list(upstream.models) == list(upstream.models.values()) == found["models"]
    assert upstream.health_path == (None if found["health_path"] == ENGINES[upstream.engine].health_path else found["health_path"])


def test_sglang_is_not_asked_at_a_path_that_makes_it_generate(ask: Probe) -> None:
    with FactServer(SERVERS["SGLang"][0]) as server:
        assert ask(server.url).exit_code == 0
    assert "GET /health" not in server.asked


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_server_that_counts_in_their_form_is_found_with_its_tokenizer(ask: Probe, kind: str) -> None:
    with TokenizingEngine(kind) as engine:
        found = ask(engine.url, "--json").document
    assert (found["engine"], found["tokenizer"], found["context_tokens"]) == (kind, "/tokenize", 4_096)
    assert found["counts_chat"] and found["counts_messages"]


def test_a_server_whose_tokenizer_takes_no_conversation_is_told_so(ask: Probe) -> None:
    facts, _ = SERVERS["SGLang"]

    class Old(FactServer):
        def answer(self, method: str, path: str, authorization: str) -> Fact:
            found = super().answer(method, path, authorization)
            return fact({"object": "error"}, 400) if self.asked.count("POST /tokenize") == 2 and path == "/tokenize" else found

    with Old(facts) as server:
        assert "/tokenize takes no conversation here" in ask(server.url).out


@pytest.mark.parametrize(
    ("unasked", "asked", "word", "tried"),
    [
        ('data: {"choices":[],"timings":{"predicted_n":1}}', "", "unasked", True),
        ("data: {}", 'data: {"choices":[],"usage":{"completion_tokens":1}}', "asked", True),
        ("data: {}", "data: {}", "never", True),
        ('data: {"error":{"code":500}}', "", "asked", False),
    ],
)
def test_what_streams_report_is_tried_where_calls_are_asked_for(ask: Probe, unasked: str, asked: str, word: str, tried: bool) -> None:
    class Streaming(FactServer):
        def answer(self, method: str, path: str, authorization: str) -> Fact:
            found = super().answer(method, path, authorization)
            calls = self.asked.count("POST /v1/chat/completions")
            return Fact(200, (unasked if calls == 1 else asked).encode() + b"\n\n") if path == "/v1/chat/completions" else found

    with Streaming(SERVERS["vLLM"][0]) as server:
        assert ask(server.url).exit_code == 0 and "POST /v1/chat/completions" not in server.asked
        found = ask(server.url, "--call", "--json").document
    assert (found["streams_report_usage"], found["tried"]) == (word, tried)


def test_a_real_llama_cpp_is_told_with_models_slots_context_and_what_its_streams_report(ask: Probe, tiny: RealEngine, tmp_path: Path) -> None:
    told = ask(tiny.address, "--json", "--call")
    found = told.document
    assert (found["product"], found["models"], found["slots"]) == ("llama.cpp", [tiny.spec.alias], tiny.spec.slots)
    assert (found["health_path"], found["tokenizer"]) == ("/health", "/tokenize")
    assert found["counts_chat"] and found["counts_messages"]
    assert (found["streams_report_usage"], found["salts_prompt_cache"]) == ("unasked", False)
    assert found["context_tokens"] > 0 and found["version"]
    assert settings_of(found["toml"], tmp_path).upstreams["llama-cpp"].slots == tiny.spec.slots


def test_the_mock_engine_is_taken_for_the_llama_cpp_that_it_plays(ask: Probe, tmp_path: Path) -> None:
    with MockProcess() as mock:
        told = ask(mock.url, "--name", "my engine", "--model", "mock", "--model", "other")
    assert told.exit_code == 0
    upstream = settings_of(told.out, tmp_path).upstreams["my engine"]
    assert (upstream.engine, dict(upstream.models)) == ("llama.cpp", {"mock": "mock", "other": "other"})


def test_a_wrong_health_path_is_told_with_the_one_that_answers(ask: Probe, tmp_path: Path) -> None:
    with FactServer(SERVERS["vLLM"][0]) as server:
        wrong, right = ask(server.url, "--health-path", "/healthz"), ask(server.url, "--health-path", "/version")
        told = ask(server.url, "--health-path", "/healthz", "--json").document
    assert wrong.exit_code == 1 and "# health: /healthz answers 404; /health answers 200" in wrong.out
    assert told["health_problem"] == "/healthz answers 404; /health answers 200" and told["health_path"] == "/health"
    assert settings_of(wrong.out, tmp_path).upstreams["vllm"].health_path is None
    assert right.exit_code == 0 and settings_of(right.out, tmp_path).upstreams["vllm"].health_path == "/version"


def test_where_no_health_path_answers_that_is_said(ask: Probe) -> None:
    busy = {path: fact({}, 503) for path in ("/health", "/v1/health", "/ping", "/api/version", "/x")}
    with FactServer({**busy, "/v1/models": listed("m", owner="vllm")}) as server:
        assert "/x answers 503; /v1/models answers 200" in ask(server.url, "--health-path", "/x").out


def test_a_server_that_wants_a_credential_gets_it_from_the_environment_and_no_output_shows_it(
    ask: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FactServer(SERVERS["vLLM"][0], credential="sk-very-secret") as server:
        refused = ask(server.url)
        assert refused.exit_code == 5 and "wants a credential" in refused.err and "--credential-env" in refused.err
        unset = ask(server.url, "--credential-env", "ENGINE_KEY")
        assert unset.exit_code == 2 and "ENGINE_KEY is not set" in unset.err
        monkeypatch.setenv("ENGINE_KEY", "sk-very-secret")
        good = ask(server.url, "--credential-env", "ENGINE_KEY")
        monkeypatch.setenv("ENGINE_KEY", "wrong")
        bad = ask(server.url, "--credential-env", "ENGINE_KEY")
    assert good.exit_code == 0 and settings_of(good.out, tmp_path).upstreams["vllm"].credential_env == "ENGINE_KEY"
    assert bad.exit_code == 5 and "wants another credential" in bad.err
    assert "sk-very-secret" not in good.out + good.err + bad.err


def test_a_server_that_shows_its_models_to_everybody_and_no_more_is_not_taken_for_an_open_one(ask: Probe) -> None:
    shut = Fact(401, b'{"error":{"message":"Invalid API Key"}}', {"server": "llama.cpp"})
    with FactServer({"/v1/models": captured("llama_cpp_native", "get_v1_models"), "/health": OK}, shut) as server:
        told = ask(server.url)
    assert told.exit_code == 5 and " wants a credential" in told.err and "--credential-env" in told.err


def test_a_server_whose_other_paths_are_closed_to_all_is_taken_by_what_is_open(ask: Probe) -> None:
    with FactServer({"/v1/models": SERVERS["vLLM"][0]["/v1/models"], "/health": OK}, fact({}, 403)) as server:
        told = ask(server.url, "--json").document
    assert (told["engine"], told["tokenizer"], told["counts_chat"]) == ("vllm", None, False)


def test_a_server_that_loads_its_model_is_told_in_its_own_words(ask: Probe) -> None:
    loading = fact({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503)
    with FactServer({}, loading) as server:
        told = ask(server.url)
    assert told.exit_code == 4 and "503: Loading model" in told.err and "wait until" in told.err


def test_a_redirect_is_told_and_not_followed(ask: Probe) -> None:
    with FactServer({}) as elsewhere, FactServer({"/v1/models": Fact(307, b"", {"location": f"{elsewhere.url}/v1/models"})}) as server:
        told = ask(server.url)
    assert told.exit_code == 5 and "a redirect to" in told.err and "itself" in told.err
    assert elsewhere.asked == []


def test_an_authority_of_ones_own_is_named_by_its_file_and_stands_in_the_table(ask: Probe, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with FactServer(SERVERS["vLLM"][0], tls=context) as server:
        unknown, known = ask(server.url), ask(server.url, "--ca-file", str(tmp_path / "ca.pem"))
        plain = ask(server.url.replace("https", "http"))
    assert unknown.exit_code == 4 and "--ca-file" in unknown.err
    assert known.exit_code == 0 and settings_of(known.out, tmp_path).upstreams["vllm"].ca_file == tmp_path / "ca.pem"
    assert plain.exit_code == 4 and "https://" in plain.err
    assert ask("https://127.0.0.1:1", "--ca-file", str(tmp_path / "gone.pem")).exit_code == 2


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8081", "http://HOST:PORT"),
        ("http://127.0.0.1:8081/v1", "leave out what follows the port"),
        ("http://user:secret@127.0.0.1:8081", "credential_env"),
        ("ftp://127.0.0.1", "http://HOST:PORT"),
    ],
)
def test_an_address_that_can_t_be_one_is_refused_with_its_mend(ask: Probe, url: str, words: str) -> None:
    told = ask(url)
    assert told.exit_code == 2 and words in told.err and "mend:" in told.err and told.out == ""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_where_nothing_listens_that_is_said_with_exit_4(ask: Probe) -> None:
    told = ask(f"http://127.0.0.1:{free_port()}", "--json")
    assert told.exit_code == 4
    assert told.document["error"]["code"] == "engine_unreachable" and told.document["error"]["mend"]


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(5)

        def run() -> None:
            try:
                while True:
                    serve(server.accept()[0])
            except OSError:
                return

        threading.Thread(target=run, daemon=True).start()
        yield server.getsockname()[1]


def test_what_speaks_no_http_is_told_so(ask: Probe) -> None:
    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"220 mail ready\r\n")

    with listener(serve) as port:
        told = ask(f"http://127.0.0.1:{port}")
    assert told.exit_code == 4 and "speaks no HTTP" in told.err


def test_a_server_that_is_silent_is_given_up_in_time(ask: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ANSWER_S", 1)
    kept: list[socket.socket] = []
    with listener(kept.append) as port:
        began = time.monotonic()
        told = ask(f"http://127.0.0.1:{port}")
    assert told.exit_code == 4 and "firewall" in told.err
    assert time.monotonic() - began < 5


def test_all_questions_together_have_their_time(ask: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_S", 0.6)
    slow = Fact(404, b"{}", {}, after_s=0.4)
    with FactServer({"/v1/models": listed("m", owner="x")}, slow) as server:
        told = ask(server.url)
    assert told.exit_code == 4 and "in all" in told.err


def test_a_server_without_models_is_told_and_can_be_helped(ask: Probe, tmp_path: Path) -> None:
    with FactServer({"/v1/models": fact({"data": []}), "/health": OK}) as server:
        none, named = ask(server.url), ask(server.url, "--model", "m")
    assert none.exit_code == 5 and "--model" in none.err
    assert named.exit_code == 0 and dict(settings_of(named.out, tmp_path).upstreams["generic"].models) == {"m": "m"}


def test_what_a_server_says_can_t_break_out_of_its_comment_or_its_string(ask: Probe, tmp_path: Path) -> None:
    names = ['a"]\nx = 1', "\x1b[31m", "b\\", "ünï", "\u202eevil", "\x7f"]
    facts = {"/v1/models": listed(*names, owner="vllm"), "/version": fact({"version": '1"\n[control]\nsocket = "x'}), "/health": OK}
    with FactServer(facts) as server:
        told = ask(server.url)
    assert told.exit_code == 0 and "\x1b" not in told.out
    assert set(tomllib.loads(told.out)) == {"upstreams"}
    assert list(settings_of(told.out, tmp_path).upstreams["vllm"].models) == ["b\\", "ünï"]
