"""Any server that speaks the OpenAI API, and the small native ones of TGI and LM Studio: the least that all of them do.

`max_tokens` is the cap that every known server honours (several ignore `max_completion_tokens`). Usage is asked for in streams. There is no tokenizer to ask.
A call that does not stream is taken to run on when its client leaves: charging too little is worse than waiting. A path that a server lacks is its own error;
LM Studio answers it with 200, which is read as the error that it is."""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.stripped import STRIPPED

GENERIC: Final = Engine(
    kind="generic",
    paths={
        "openai.chat": "/v1/chat/completions",
        "openai.completions": "/v1/completions",
        "openai.responses": "/v1/responses",
        "openai.embeddings": "/v1/embeddings",
        "rerank": "/v1/rerank",
        "anthropic.messages": "/v1/messages",
        "tgi.generate": "/generate",
        "tgi.generate_stream": "/generate_stream",
        "lmstudio.chat": "/api/v1/chat",
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
        "tgi.generate": "max_new_tokens",
        "tgi.generate_stream": "max_new_tokens",
        "lmstudio.chat": "max_output_tokens",
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
    stops="not known: an answer in one piece is read to its end",
    distrust=(
        "llama-cpp-python: no usage in any stream, whatever is asked: counted",
        "llama-cpp-python: another call may end yours (`interrupt_requests`; switch it off at the server)",
        "TabbyAPI: usage only where it is asked for; LM Studio: often zeros for embeddings, and 200 for paths that it lacks, read as the error it is",
        "TGI: usage for each prompt of plain completions, added up; with tools two generations, the second reported",
        "transformers: usage in the finish event, and no `[DONE]`",
        "mlx-lm: every failure is a 404",
    ),
)
