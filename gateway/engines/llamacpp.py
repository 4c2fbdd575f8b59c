"""llama.cpp's own server (`llama-server`, and the same server in process).

`n_predict` goes before every other cap on every endpoint, so it is stripped and `max_tokens` alone is written (Responses: `max_output_tokens`): that one
is then honoured to the token.
A cap of 0 still makes one token. Streams carry `timings` unasked; asking for usage would move them off the finish event, so it is not asked.
A call that does not stream runs on after its client left for as long as any other stream runs. Idle connections are closed after 5 s or 100 requests.
"""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.stripped import STRIPPED

LLAMA_CPP: Final = Engine(
    kind="llama.cpp",
    paths={
        "openai.chat": "/v1/chat/completions",
        "openai.completions": "/v1/completions",
        "openai.responses": "/v1/responses",
        "openai.embeddings": "/v1/embeddings",
        "rerank": "/v1/rerank",
        "anthropic.messages": "/v1/messages",
        "llamacpp.completion": "/completion",
        "llamacpp.embedding": "/embedding",
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
        "llamacpp.completion": "max_tokens",
        "llamacpp.embedding": "",
    },
    strip_fields=STRIPPED | {"return_tokens"},
    pin_fields={},
    asks_usage=False,
    counter="llama.cpp",
    cancels_whole=False,
    request_id_field="",
    pool_idle_s=2.0,
    metrics_path="/metrics",
    minimum_output=1,
    utilities={"tokenize": "/tokenize", "detokenize": "/detokenize", "anthropic.count_tokens": "/v1/messages/count_tokens"},
)
