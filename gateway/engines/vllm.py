"""vLLM.

`max_tokens` is honoured on chat too, behind `max_completion_tokens`, which is stripped. Usage must be asked for in streams, and only there: with
`stream_options` a call that does not stream is refused. Our call id goes as `X-Request-Id`, which it builds into the response id. Its work stops when a
client leaves, but that has failed often enough behind proxies: an answer in one piece is read to its end all the same."""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.stripped import STRIPPED

VLLM: Final = Engine(
    kind="vllm",
    paths={
        "openai.chat": "/v1/chat/completions",
        "openai.completions": "/v1/completions",
        "openai.responses": "/v1/responses",
        "openai.embeddings": "/v1/embeddings",
        "rerank": "/v1/rerank",
        "anthropic.messages": "/v1/messages",
    },
    health_path="/health",
    models_path="/v1/models",
    cap_names={
        "openai.chat": "max_tokens",
        "openai.completions": "max_tokens",
        "openai.responses": "max_output_tokens",
        "openai.embeddings": "",
        "rerank": "",
        "anthropic.messages": "max_tokens",
    },
    strip_fields=STRIPPED,
    pin_fields={},
    asks_usage=True,
    counter="",
    cancels_whole=False,
    request_id_field="",
    pool_idle_s=2.0,
    metrics_path="/metrics",
    minimum_output=1,
    utilities={"tokenize": "/tokenize", "detokenize": "/detokenize", "anthropic.count_tokens": "/v1/messages/count_tokens"},
    salt_field="cache_salt",
)
