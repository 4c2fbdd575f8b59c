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
    counter="tokenize",
    cancels_whole=False,
    request_id_field="",
    pool_idle_s=2.0,
    metrics_path="/metrics",
    minimum_output=1,
    work_path="/metrics",
    work_form="gauges",
    work_gauges=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    utilities={"tokenize": "/tokenize", "detokenize": "/detokenize", "anthropic.count_tokens": "/v1/messages/count_tokens"},
    salt_field="cache_salt",
    salted=frozenset({"openai.chat", "openai.completions", "openai.responses"}),
    counts=frozenset({"openai.chat", "openai.completions", "openai.embeddings", "anthropic.messages"}),
    identity_paths=("/version",),
    names_model=frozenset({"openai.chat", "openai.completions", "openai.responses", "openai.embeddings", "rerank", "anthropic.messages"}),
    stops="it aborts the work when the connection closes, but has failed to behind proxies: an answer in one piece is read to its end",
    distrust=(
        "usage on every event is a running total, for each choice: it replaces, it never adds, and only the last without choices is final",
        "`cached_tokens` are given with a flag of the server only: absent is unknown, not 0",
        "`[DONE]` follows an error too: it is no sign of success",
        "Messages: `message_start` has the whole prompt, `message_delta` splits it: the last set counts",
        "a Responses stream that fails ends without a terminal event: told as `engine_died`",
        "rerank: older versions report a total alone, which is the input",
    ),
)
