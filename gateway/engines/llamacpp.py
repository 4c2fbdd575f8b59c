"""llama.cpp's own server (`llama-server`, and the same server in process).

`n_predict` goes before every other cap on every endpoint, so it is stripped and `max_tokens` alone is written: that one is then honoured to the token.
A cap of 0 still makes one token. Streams carry `timings` unasked; asking for usage would move them off the finish event, so it is not asked.
A call that does not stream runs on after its client left for as long as any other stream runs. Idle connections are closed after 5 s or 100 requests.
"""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine

LLAMA_CPP: Final = Engine(
    kind="llama.cpp",
    paths={
        "openai.chat": "/v1/chat/completions",
        "openai.completions": "/v1/completions",
        "openai.responses": "/v1/responses",
        "openai.embeddings": "/v1/embeddings",
        "rerank": "/v1/rerank",
        "anthropic.messages": "/v1/messages",
        "anthropic.count_tokens": "/v1/messages/count_tokens",
        "llamacpp.completion": "/completion",
        "llamacpp.embedding": "/embedding",
    },
    health_path="/health",
    models_path="/v1/models",
    cap_names={
        "openai.chat": "max_tokens",
        "openai.completions": "max_tokens",
        "openai.responses": "max_output_tokens",
        "anthropic.messages": "max_tokens",
        "llamacpp.completion": "n_predict",
    },
    strip_fields=frozenset(
        {
            # caps under other names: one name is written by the gateway
            "n_predict",
            "max_completion_tokens",
            "max_output_tokens",
            # whose slot and whose adapter: state shared between callers
            "id_slot",
            "lora",
            # form of the answer: what the meter reads must not be switched off or moved
            "response_fields",
            "sse_ping_interval",
            "verbose",
            "timings_per_token",
            "return_progress",
            "return_tokens",
            # another name for `n`
            "n_cmpl",
            # other servers' routing and identity fields, without meaning here
            "rid",
            "request_id",
            "priority",
            "cache_salt",
        }
    ),
    pin_fields={},
    asks_usage=False,
    counter="llama.cpp",
    cancels_whole=False,
    request_id_field="",
    pool_idle_s=2.0,
    metrics_path="/metrics",
    minimum_output=1,
)
