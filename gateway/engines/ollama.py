"""Ollama.

Natively the cap is `options.num_predict`; in OpenAI's formats `max_tokens`, for `max_completion_tokens` is ignored. Prompts that are too long are cut in
silence: what is reported is what was read. It has no tokenizer to ask.
Prompt processing may go on when a client leaves. `keep_alive` loads and unloads models: stripped."""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.stripped import STRIPPED

OLLAMA: Final = Engine(
    kind="ollama",
    paths={
        "openai.chat": "/v1/chat/completions",
        "openai.completions": "/v1/completions",
        "openai.responses": "/v1/responses",
        "openai.embeddings": "/v1/embeddings",
        "anthropic.messages": "/v1/messages",
        "ollama.chat": "/api/chat",
        "ollama.generate": "/api/generate",
        "ollama.embed": "/api/embed",
    },
    health_path="/api/version",
    models_path="/v1/models",
    cap_names={
        "openai.chat": "max_tokens",
        "openai.completions": "max_tokens",
        "openai.responses": "max_output_tokens",
        "openai.embeddings": "",
        "anthropic.messages": "max_tokens",
        "ollama.chat": "num_predict",
        "ollama.generate": "num_predict",
        "ollama.embed": "",
    },
    strip_fields=STRIPPED,
    pin_fields={},
    asks_usage=True,
    counter="",
    cancels_whole=False,
    request_id_field="",
    pool_idle_s=2.0,
    metrics_path="",
    minimum_output=1,
    identity_paths=("/api/version", "/api/tags"),
    stops="it stops generating when the connection closes; reading the prompt may go on: an answer in one piece is read to its end",
    distrust=(
        "a prompt above its context is cut in silence: what is reported is what was read, not what was sent; set `context_tokens`",
        "`prompt_eval_count` may be absent, or leave out cached tokens, by version: absent is unknown",
        "OpenAI streams: usage of zeros on every event but the last",
        "Messages: `message_start` has a guess of the prompt; the last `message_delta` counts",
        "an error in an OpenAI stream is swallowed: the end without a finish is told as `engine_died`",
        "`max_completion_tokens` is ignored: the cap is written as `max_tokens`",
    ),
)
