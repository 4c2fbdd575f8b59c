"""llama.cpp's own server (`llama-server`, and the same server in process).

`n_predict` goes before every other cap on every endpoint, so it is stripped and `max_tokens` alone is written (Responses: `max_output_tokens`): that one
is then honoured to the token.
A cap of 0 still makes one token. Streams carry `timings` unasked; asking for usage would move them off the finish event, so it is not asked.
A call that does not stream runs on after its client left for as long as any other stream runs. Idle connections are closed after 5 s or 100 requests.
A stream is cancelled some 0.2 s after its client left, but not while `/slots` is asked again and again: ask once.
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
    work_path="/slots",
    work_form="slots",
    utilities={"tokenize": "/tokenize", "detokenize": "/detokenize", "anthropic.count_tokens": "/v1/messages/count_tokens"},
    counts=frozenset(
        {
            "openai.chat",
            "openai.completions",
            "openai.responses",
            "openai.embeddings",
            "anthropic.messages",
            "llamacpp.completion",
            "llamacpp.embedding",
            "rerank",
        }
    ),
    identity_paths=("/props",),
    names_model=frozenset({"openai.chat", "openai.completions", "openai.responses", "anthropic.messages", "llamacpp.completion"}),
    reports_first=frozenset({"openai.chat", "openai.completions"}),
    stops="a stream stops when its connection closes; an answer in one piece goes on for as long as any other stream runs, so it is read to its end",
    distrust=(
        "several choices or prompts in one piece: only the first one's usage is reported; refused unless the policy allows `unreported_answers`, then counted",
        "Responses say `completed` where the cap cut them: `length` is told by the count",
        "a cap of 0 makes one token all the same: 1 is held",
        "an unknown model name is served all the same: the name is the gateway's to check",
        "`timings.prompt_n` and its prompt metric leave out what came from the cache; Messages count it beside `input_tokens`",
        "a Messages stream whose first token is half a character has no prompt count: then it is counted",
    ),
)
