"""Every format: the least that a body of it can be, its path, the kind of engine that is asked in it; and a gateway that serves them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.gateway_process import GatewayProcess
from tests.support.raw_http import RawAnswer
from tests.support.toml import Tables, merged
from tests.support.wire import Wire, request

SAY: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
PLAINEST: dict[str, dict[str, Any]] = {
    "openai.chat": {"model": "m", "messages": SAY},
    "openai.completions": {"model": "m", "prompt": "hi"},
    "openai.responses": {"model": "m", "input": "hi"},
    "openai.embeddings": {"model": "m", "input": "hi"},
    "rerank": {"model": "m", "query": "q", "documents": ["a", "b"]},
    "anthropic.messages": {"model": "m", "messages": SAY, "max_tokens": 8},
    "ollama.chat": {"model": "m", "messages": SAY},
    "ollama.generate": {"model": "m", "prompt": "hi"},
    "ollama.embed": {"model": "m", "input": "hi"},
    "llamacpp.completion": {"model": "m", "prompt": "hi"},
    "llamacpp.embedding": {"model": "m", "content": "hi"},
    "sglang.generate": {"model": "m", "text": "hi"},
    "tgi.generate": {"model": "m", "inputs": "hi"},
    "tgi.generate_stream": {"model": "m", "inputs": "hi"},
    "lmstudio.chat": {"model": "m", "input": "hi"},
}
PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.completions": "/v1/completions",
    "openai.responses": "/v1/responses",
    "openai.embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "anthropic.messages": "/v1/messages",
    "ollama.chat": "/api/chat",
    "ollama.generate": "/api/generate",
    "ollama.embed": "/api/embed",
    "llamacpp.completion": "/completion",
    "llamacpp.embedding": "/embedding",
    "sglang.generate": "/generate",
    "tgi.generate": "/generate",
    "tgi.generate_stream": "/generate_stream",
    "lmstudio.chat": "/api/v1/chat",
}
KINDS = {
    "openai": "vllm", "anthropic": "vllm", "rerank": "vllm", "ollama": "ollama", "llamacpp": "llama.cpp", "sglang": "sglang", "tgi": "generic",
    "lmstudio": "generic",
}  # fmt: skip
"""Of a format's family, the engine that is asked here. Each serves one model that bears its name."""
UTILITY_BODIES: dict[str, dict[str, Any]] = {"tokenize": {"content": "hi"}, "detokenize": {"tokens": [1]}, "anthropic.count_tokens": {"messages": SAY}}
UTILITY_PATHS = {"tokenize": "/tokenize", "detokenize": "/detokenize", "anthropic.count_tokens": "/v1/messages/count_tokens"}
APIS = {**PATHS, **UTILITY_PATHS}


def kind_of(api: str) -> str:
    return "llama.cpp" if api in UTILITY_PATHS else KINDS[api.partition(".")[0]]


def body_of(api: str, **fields: Any) -> dict[str, Any]:
    return {**(PLAINEST.get(api) or UTILITY_BODIES[api]), "model": kind_of(api), **fields}


def gateway_of_all(folder: Path, engine_url: str, *, policies: dict[str, Tables] | None = None, **more: Any) -> GatewayProcess:
    """All formats on one scripted engine that passes for every kind. The policy `tgi` has TGI's meaning of `/generate`, all others SGLang's."""
    kinds = sorted({*KINDS.values()})
    models: Any = {kind: {"default_output_tokens": 16, "counter": "tiktoken:o200k_base"} for kind in kinds}
    plain: Tables = {"apis": [*(api for api in APIS if api != "tgi.generate"), "openai.models", "ollama.tags"], "models": models}
    upstreams: Any = {
        kind: {"address": engine_url, "engine": kind, "slots": 8, "models": {kind: f"own-{kind}"}, "circuit_failures": 0}
        for kind in kinds
        if kind != "llama.cpp"
    }
    settings = merged({"upstreams": upstreams}, more.pop("settings", {}))
    every = {name: merged(plain, tables) for name, tables in {"tgi": {"apis": ["tgi.generate"]}, **(policies or {})}.items()}
    served = {"llama.cpp": "own-llama.cpp", "mock": "mock"}
    unlisted: Tables = {"models": {**models, "mock": {"default_output_tokens": 16, "counter": "tiktoken:o200k_base"}}}
    return GatewayProcess(folder, engine_url, policy=merged(plain, unlisted), policies=every, models=served, settings=settings, **more)


def ask(gateway: GatewayProcess, key: str, api: str, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None) -> RawAnswer:
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    with Wire(gateway.port, timeout_s=30) as wire:
        wire.send(request("POST", APIS[api], {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}, raw))
        return wire.answer()


def error_of(answer: RawAnswer) -> tuple[str, str, str]:
    """Form, code and words, whichever form it has."""
    value = answer.json()
    if isinstance(value["error"], str):
        return "native", str(value.get("code")), value["error"]
    return "anthropic" if value.get("type") == "error" else "openai", str(value["error"]["code"]), value["error"]["message"]
