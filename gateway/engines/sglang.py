"""SGLang.

Its health path can generate a token when idle, so the list of models stands for it. It takes our call id as `rid`. A refusal can come as the first event
of a 200. After an abort in its queue it goes on for a while (the abort runs 2 s later): an answer in one piece is read to its end. Its
metrics are there only with `--enable-metrics`, and many releases show the last batch's number for up to 30 s after it ended."""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.stripped import STRIPPED

SGLANG: Final = Engine(
    kind="sglang",
    paths={
        "openai.chat": "/v1/chat/completions",
        "openai.completions": "/v1/completions",
        "openai.responses": "/v1/responses",
        "openai.embeddings": "/v1/embeddings",
        "rerank": "/v1/rerank",
        "anthropic.messages": "/v1/messages",
        "sglang.generate": "/generate",
    },
    health_path="/v1/models",
    models_path="/v1/models",
    cap_names={
        "openai.chat": "max_tokens",
        "openai.completions": "max_tokens",
        "openai.responses": "max_output_tokens",
        "openai.embeddings": "",
        "rerank": "",
        "anthropic.messages": "max_tokens",
        "sglang.generate": "max_new_tokens",
    },
    strip_fields=STRIPPED,
    pin_fields={},
    asks_usage=True,
    counter="tokenize",
    cancels_whole=False,
    request_id_field="rid",
    pool_idle_s=2.0,
    metrics_path="/metrics",
    minimum_output=1,
    work_path="/metrics",
    work_form="gauges",
    work_gauges=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    work_lags=True,
    utilities={"tokenize": "/tokenize", "detokenize": "/detokenize", "anthropic.count_tokens": "/v1/messages/count_tokens"},
    salt_field="extra_key",
    salted=frozenset({"openai.chat", "openai.completions", "sglang.generate"}),
    counts=frozenset({"openai.chat", "openai.completions", "openai.embeddings", "anthropic.messages", "sglang.generate"}),
    identity_paths=("/get_model_info",),
    stops="it looks for leavers now and then and aborts up to 2 s later: an answer in one piece is read to its end",
    distrust=(
        "`reasoning_tokens` above `completion_tokens` (speculative decoding): clamped and flagged",
        "usage of zeros with content is missing usage: then it is counted",
        "a refusal can be the first event of a 200: it is answered with its own code",
        "after an error comes usage, then `[DONE]`: the error stays the outcome",
        "its Ollama look-alike reports nothing and is not offered",
    ),
)
