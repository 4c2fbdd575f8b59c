"""One table: what no body, header or target may be, over every format. Refused in the format's own form, at once, and nothing of it is at the engine."""

from __future__ import annotations

import base64
import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.control import OpenedRun
from tests.support.every_api import APIS, PATHS, UTILITY_PATHS, ask, body_of, error_of, gateway_of_all, kind_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer
from tests.support.wire import Wire, request, talk

MAX_BODY = 1 << 19
MAX_KEYS = 5_000
INLINE = 100_000
OWN = {
    "/health",
    "/v1/models",
    "/props",
    "/slots",
    "/metrics",
    "/api/version",
    "/apply-template",
    "/api/tags",
    "/version",
    "/server_info",
    "/get_model_info",
    "/api/ps",
}
"""What the gateway itself asks its engines."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    bounds: Any = {"bounds": {"max_body_bytes": MAX_BODY, "max_keys": MAX_KEYS, "max_inline_bytes": INLINE}}
    with gateway_of_all(tmp_path_factory.mktemp("every"), mock.url, settings=bounds) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def runs(gateway: GatewayProcess) -> dict[str, OpenedRun]:
    """A run for each API."""
    return {
        api: gateway.opened(
            "tgi" if api == "tgi.generate" else "all", api.replace(".", "-").replace("_", "-"), policy="tgi" if api == "tgi.generate" else "test"
        )
        for api in APIS
    }


def reached(mock: MockProcess) -> list[str]:
    return [record["path"] for record in mock.log() if record["path"] not in OWN]


def plain(api: str, **fields: Any) -> bytes:
    return json.dumps(body_of(api, **fields)).encode()


def spliced(api: str, member: str) -> bytes:
    return plain(api)[:-1] + b", " + member.encode() + b"}"


BOMB = gzip.compress(b" " * (64 << 20))
Made = Callable[[str], bytes]
BODIES: dict[str, tuple[Made, dict[str, str], str]] = {
    "nothing": (lambda api: b"", {}, "body_invalid"),
    "a list": (lambda api: b"[" + plain(api) + b"]", {}, "body_invalid"),
    "gzip": (lambda api: gzip.compress(plain(api)), {"Content-Encoding": "gzip"}, "body_invalid"),
    "gzip twice": (lambda api: gzip.compress(gzip.compress(plain(api))), {"Content-Encoding": "gzip, gzip"}, "body_invalid"),
    "gzip that says nothing": (lambda api: gzip.compress(plain(api)), {}, "body_invalid"),
    "deflate": (lambda api: zlib.compress(plain(api)), {"Content-Encoding": "deflate"}, "body_invalid"),
    "brotli": (plain, {"Content-Encoding": "br"}, "body_invalid"),
    "zstd": (lambda api: b"(\xb5/\xfd" + plain(api), {"Content-Encoding": "zstd"}, "body_invalid"),
    "a bomb": (lambda api: BOMB, {"Content-Encoding": "GZIP"}, "body_invalid"),
    "a byte order mark": (lambda api: b"\xef\xbb\xbf" + plain(api), {}, "body_invalid"),
    "UTF-16": (lambda api: plain(api).decode().encode("utf-16"), {}, "body_invalid"),
    "UTF-16 without a mark": (lambda api: plain(api).decode().encode("utf-16-le"), {}, "body_invalid"),
    "UTF-32": (lambda api: plain(api).decode().encode("utf-32"), {}, "body_invalid"),
    "another charset": (lambda api: spliced(api, '"user": "?"').replace(b"?", b"\xe9"), {"Content-Type": "application/json; charset=latin-1"}, "body_invalid"),
    "half a surrogate as bytes": (lambda api: spliced(api, '"user": "?"').replace(b"?", b"\xed\xa0\x80"), {}, "body_invalid"),
    "NaN": (lambda api: spliced(api, '"temperature": NaN'), {}, "body_invalid"),
    "Infinity": (lambda api: spliced(api, '"temperature": -Infinity'), {}, "body_invalid"),
    "a number that overflows": (lambda api: spliced(api, '"temperature": 1e999'), {}, "body_invalid"),
    "garbage behind it": (lambda api: plain(api) + b"x", {}, "body_invalid"),
    "another object behind it": (lambda api: plain(api) + plain(api), {}, "body_invalid"),
    "a null byte behind it": (lambda api: plain(api) + b"\0", {}, "body_invalid"),
    "a comment": (lambda api: plain(api)[:-1] + b"/* x */}", {}, "body_invalid"),
    "a comma too many": (lambda api: plain(api)[:-1] + b",}", {}, "body_invalid"),
    "a key twice": (lambda api: spliced(api, '"model": "other"'), {}, "body_invalid"),
    "a key twice, written otherwise": (lambda api: spliced(api, '"m\\u006fdel": "other"'), {}, "body_invalid"),
    "a key twice, deep": (lambda api: spliced(api, '"x": [{"y": {"z": 1, "z": 2}}]'), {}, "body_invalid"),
    "too deep": (lambda api: spliced(api, '"x": ' + "[" * 70 + "]" * 70), {}, "body_too_large"),
    "lists in lists without end": (lambda api: spliced(api, '"x": ' + "[" * 200_000 + "]" * 200_000), {}, "body_too_large"),
    "too many members": (lambda api: spliced(api, '"x": [' + ",".join(["1"] * (MAX_KEYS + 1)) + "]"), {}, "body_too_large"),
    "too many bytes": (lambda api: spliced(api, '"x": "' + "y" * MAX_BODY + '"'), {}, "body_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("api", APIS)
def test_a_body_that_is_not_plain_is_refused_in_every_format(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    wrong = {}
    for name, (made, headers, code) in BODIES.items():
        began = time.monotonic()
        answer = ask(gateway, runs[api].key, api, made(api), headers)
        if (answer.status, error_of(answer)[:2], answer.headers["x-should-retry"]) != (400, (form_of(api), code), "false") or time.monotonic() - began > 5:
            wrong[name] = (answer.status, answer.body[:200])
    assert wrong == {}
    assert reached(mock) == []


def form_of(api: str) -> str:
    family = api.partition(".")[0]
    return {"anthropic": "anthropic", "openai": "openai", "rerank": "openai", "tokenize": "openai", "detokenize": "openai"}.get(family, "native")


def test_a_compressed_body_is_refused_in_words_that_say_so(gateway: GatewayProcess, runs: dict[str, OpenedRun]) -> None:
    for coding in ("gzip", "zstd", "deflate", "br", "identity, gzip"):
        answer = ask(gateway, runs["openai.chat"].key, "openai.chat", b"x", {"Content-Encoding": coding})
        assert error_of(answer)[2] == "The body is compressed; send it plain."


@pytest.mark.parametrize("api", PATHS)
def test_a_lone_surrogate_goes_on_as_it_was_written(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    """It is valid JSON, if no valid Unicode: what arrives reads as what was checked."""
    mock.clear()
    ask(gateway, runs[api].key, api, spliced(api, '"user": "a\\ud800b"'))
    (record,) = [record for record in mock.log() if record["path"] == PATHS[api]]
    assert json.loads(record["body"])["user"] == "a\ud800b"


ROUTES = {
    **{f"the field {name}": ({name: "http://169.254.169.254/"}, {}) for name in ("api_base", "base_url", "api_url", "custom_host", "custom_llm_provider")},
    "headers for the engine": ({"extra_headers": {"X-Conversation-Id": "x"}}, {}),
    **{f"the header {name}": ({}, {name: "http://evil/"}) for name in ("x-portkey-custom-host", "Helicone-Target-Url", "X-Custom-Host", "x-upstream-url")},
    **{f"the header {name}": ({}, {name: "1"}) for name in ("X-Conversation-Id", "X-Data-Parallel-Rank", "X-SGLExt-Ids")},
}  # fmt: skip


@pytest.mark.parametrize("api", APIS)
def test_nothing_leads_to_another_server_or_steers_this_one(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    wrong = {}
    for name, (fields, headers) in ROUTES.items():
        answer = ask(gateway, runs[api].key, api, body_of(api, **fields), headers)
        form, code, words = error_of(answer)
        if (answer.status, form, code) != (400, form_of(api), "not_allowed") or (api in PATHS and "guard.strip" not in words):
            wrong[name] = answer.body
    assert wrong == {}
    assert reached(mock) == []


@pytest.mark.parametrize("api", PATHS)
def test_whatever_host_and_headers_say_the_engine_gets_the_gateways_own(
    gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str
) -> None:
    """Of a call that passes, the engine sees no header of the agent's but what it accepts."""
    mock.clear()
    run = runs[api]
    raw = plain(api)
    told = [
        ("Host", "evil.example"), ("X-Forwarded-Host", "evil.example"), ("X-Forwarded-For", "10.0.0.1"), ("Forwarded", "host=evil.example"),
        ("x-api-key", run.key),        ("X-Request-Id", "forged"), ("Accept-Encoding", "gzip, br, zstd"), ("Cookie", "a=b"), ("X-Session-Id", "s"), ("Referer", "http://evil.example"),
        ("Accept", "text/html"), ("User-Agent", "agent"), ("Content-Length", str(len(raw))),
    ]  # fmt: skip
    with Wire(gateway.port) as wire:
        wire.send(f"POST {PATHS[api]} HTTP/1.1\r\n".encode() + "".join(f"{name}: {value}\r\n" for name, value in told).encode() + b"\r\n" + raw)
        answer = wire.answer()
    (record,) = [record for record in mock.log() if record["path"] == PATHS[api]]
    seen = {name.lower(): value for name, value in dict(record["headers"]).items()}
    assert seen.pop("host") == mock.url.removeprefix("http://")
    assert seen.pop("x-request-id") == answer.headers["x-request-id"]
    assert seen.pop("accept-encoding") == "identity"
    assert "evil" not in str(seen) and run.key not in str(record)
    assert seen.keys() <= {"accept", "content-type", "content-length", "user-agent", "connection", "authorization"}
    assert seen.get("accept") != "text/html" and seen.get("user-agent") != "agent"


TARGETS = [
    "http://evil.example{0}",
    "https://127.0.0.1:1{0}",
    "//evil.example{0}",
    "{0}#@evil.example",
    "{0}@evil.example",
    "/{0}",
    "{0}/",
    "{0}/.",
    "{0}%2f",
    "{0};x",
]


@pytest.mark.parametrize("api", APIS)
def test_no_other_target_is_taken_for_the_path(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    for target in TARGETS:
        with Wire(gateway.port) as wire:
            wire.send(request("POST", target.format(APIS[api]), {"x-api-key": runs[api].key}, plain(api)))
            answer = wire.answer()
        assert answer.status in (400, 404) and error_of(answer)[1] in ("not_found", "bad_request"), (target, answer.body)
    assert reached(mock) == []


@pytest.mark.parametrize("api", PATHS)
def test_requests_that_two_could_read_otherwise_reach_no_engine(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    raw, head = plain(api), f"POST {PATHS[api]} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {runs[api].key}\r\n"
    length = f"Content-Length: {len(raw)}\r\n"
    for more in (
        length + "Transfer-Encoding: chunked\r\n", length + f"Content-Length: {len(raw) + 1}\r\n", length + "X-A: b\r\n folded\r\n", length + "X-A : b\r\n",
        length + "X-A: b\nX-B: c\r\n", f"Content-Length: +{len(raw)}\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked, identity\r\n",
    ):  # fmt: skip
        answers = talk(gateway.port, (head + more + "\r\n").encode() + raw)
        assert set(answers.statuses) <= {400}, (more, answers.statuses)
    assert reached(mock) == []


def media(api: str, text: str) -> dict[str, Any] | None:
    """A picture in a body of this format; None: it has none."""
    url = f"data:image/png;base64,{text}"
    match api:
        case "openai.chat":
            return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
        case "openai.responses":
            return {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}
        case "anthropic.messages":
            source = {"type": "base64", "media_type": "image/png", "data": text}
            return {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
        case "ollama.chat":
            return {"messages": [{"role": "user", "content": "x", "images": [text]}]}
        case "ollama.generate":
            return {"images": [text]}
        case "llamacpp.completion":
            return {"prompt": {"prompt_string": "x", "multimodal_data": [text]}}
        case "sglang.generate":
            return {"image_data": [url]}
        case "lmstudio.chat":
            return {"input": [{"type": "image", "data_url": url}]}
        case _:
            return None


@pytest.mark.parametrize("api", [api for api in PATHS if media(api, "")])
def test_a_picture_in_the_body_passes_up_to_a_size_that_has_a_name(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    ask(gateway, runs[api].key, api, body_of(api, **(media(api, "A" * 4_000) or {})))
    assert reached(mock) == [PATHS[api]]
    answer = ask(gateway, runs[api].key, api, body_of(api, **(media(api, "A" * (INLINE + 1)) or {})))
    form, code, words = error_of(answer)
    assert (answer.status, form, code) == (400, form_of(api), "body_too_large")
    assert "bounds.max_inline_bytes of gateway.toml" in words
    assert reached(mock) == [PATHS[api]]


@pytest.mark.parametrize("api", PATHS)
def test_a_model_that_is_not_declared_is_404_in_every_format(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    for model in ("other", kind_of(api).upper(), f"own-{kind_of(api)}", "../x", "x" * 5_000):
        answer = ask(gateway, runs[api].key, api, body_of(api, model=model))
        assert (answer.status, error_of(answer)[:2]) == (404, (form_of(api), "model_not_found")), (model, answer.body)
    assert reached(mock) == []


def test_no_key_and_no_address_of_an_engine_stands_anywhere(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun]) -> None:
    """After all that: in no log line, no metric and no error."""
    mock_port = mock.url.rpartition(":")[2]
    answers: list[RawAnswer] = []
    boom = json.dumps({"error": {"message": f'boom at {mock.url}/x, File "/srv/engine.py", line 3'}}).encode()
    mock.script({"raw": [{"base64": base64.b64encode(boom).decode()}], "raw_status": 500, "raw_type": "application/json"})
    for api, run in runs.items():
        answers += [ask(gateway, run.key, api, body_of(api)), ask(gateway, run.key + "x", api, body_of(api)), ask(gateway, run.key, api, b"{")]
    mock.script({})
    told = "\n".join(str(answer.headers) + answer.body.decode("utf-8", "replace") for answer in answers)
    written = gateway.process.output + gateway.control.text("/metrics")
    for run in runs.values():
        assert run.key not in told and run.key not in written
    assert mock_port not in told


@pytest.mark.parametrize(
    "path", ["/metrics", "/livez", "/readyz", "/v1/status", "/v1/campaigns", "/v1/keys", "/v1/usage", "/v1/policies/reload", "/v1/corrections"]
)
def test_nothing_of_the_operators_answers_on_the_agents_listener(gateway: GatewayProcess, runs: dict[str, OpenedRun], path: str) -> None:
    with Wire(gateway.port) as wire:
        for method in ("GET", "POST"):
            wire.send(request(method, path, {"x-api-key": runs["openai.chat"].key}, b"{}"))
            assert wire.answer().status == 404


MODELS = ["generic", "llama.cpp", "mock", "ollama", "sglang", "vllm"]


def test_lists_of_models_have_the_shape_of_their_format_and_hold_what_is_declared_and_served(gateway: GatewayProcess, runs: dict[str, OpenedRun]) -> None:
    key = runs["openai.chat"].key
    with Wire(gateway.port) as wire:
        found = []
        for path, headers in (("/v1/models", {}), ("/v1/models", {"anthropic-version": "2023-06-01"}), ("/api/tags", {})):
            wire.send(request("GET", path, {"x-api-key": key, **headers}))
            found.append(wire.answer().json())
    openai, anthropic, ollama = found
    assert openai["object"] == "list" and sorted(model["id"] for model in openai["data"]) == MODELS
    assert {model["object"] for model in openai["data"]} == {"model"}
    assert sorted(model["id"] for model in anthropic["data"]) == MODELS
    assert {model["type"] for model in anthropic["data"]} == {"model"} and anthropic["has_more"] is False
    assert sorted(model["name"] for model in ollama["models"]) == MODELS
    assert "own-" not in str(found) and "127.0.0.1" not in str(found)


@pytest.mark.parametrize("api", UTILITY_PATHS)
def test_a_utility_is_held_to_the_guard(gateway: GatewayProcess, mock: MockProcess, runs: dict[str, OpenedRun], api: str) -> None:
    mock.clear()
    answer = ask(gateway, runs[api].key, api, body_of(api, cache_salt="x"))
    assert (answer.status, error_of(answer)[1]) == (400, "not_allowed")
    assert reached(mock) == []
