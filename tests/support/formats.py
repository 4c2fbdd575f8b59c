"""Every format in one table: how a call is asked, how a server answers it, in one piece and in a stream, and what the gateway's own words look like in it.

The answers are made here, word by word, so that a test can say what they report. What real servers answered lies in tests/fixtures/dialects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

DONE = "data: [DONE]\n\n"
Words = Sequence[str]
Pieces = tuple[list[str], list[str]]
"""A stream's events, and those that are its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: str
    path: str
    engine: str
    body: dict[str, Any]
    whole: Callable[[Words, int, bool], Any]
    """(words, prompt, was it cut) -> the answer in one piece."""
    stream: Callable[[Words, int, bool], Pieces] | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    """Fields of a call that streams."""
    unasked: dict[str, Any] = field(default_factory=dict)
    """Fields of a call that does not."""
    cap: tuple[str, ...] = ("max_tokens",)
    """Where the ceiling stands in the body that is sent on; empty: nothing is generated."""
    form: str = "openai"
    """Of refusals: `openai`, `responses`, `messages`, `native`."""
    error: str = ""
    """How its server says in a stream that it failed."""
    length_word: str = ""
    """In the gateway's own end of a stream that was cut at its ceiling."""

    @property
    def model(self) -> str:
        """Of its own, so that each format has an engine of its own."""
        return self.name.replace(".", "-").replace("_", "-")

    @property
    def streams(self) -> tuple[bool, ...]:
        return (False, True) if self.stream is not None and self.name != "tgi.generate_stream" else (self.stream is not None,)

    @property
    def stream_type(self) -> str:
        return "application/x-ndjson" if self.name.startswith("ollama") else "text/event-stream"

    def asking(self, stream: bool, **more: Any) -> dict[str, Any]:
        return {"model": self.model, **self.body, **(self.asked if stream else self.unasked), **more}

    def said(self, stream: bool, words: Words, given: int, *, cut: bool = False) -> Pieces:
        """An answer and what of it is its end: of one in one piece, all."""
        if stream:
            assert self.stream is not None
            return self.stream(words, given, cut)
        return [], [json.dumps(self.whole(words, given, cut))]

    def content_type(self, stream: bool) -> str:
        return self.stream_type if stream else "application/json"


def sse(value: object) -> str:
    return f"data: {json.dumps(value)}\n\n"


def named(value: dict[str, Any]) -> str:
    return f"event: {value['type']}\n{sse(value)}"


def line(value: object) -> str:
    return json.dumps(value) + "\n"


def usage(words: Words, given: int) -> dict[str, int]:
    return {"prompt_tokens": given, "completion_tokens": len(words), "total_tokens": given + len(words)}


def _timings(words: Words, given: int) -> dict[str, int]:
    return {"cache_n": 0, "prompt_n": given, "predicted_n": len(words)}


def _chat(words: Words, given: int, cut: bool) -> Any:
    message = {"role": "assistant", "content": "".join(words)}
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": _reason(cut)}], "usage": usage(words, given)}


def _chat_stream(words: Words, given: int, cut: bool) -> Pieces:
    """As llama.cpp does unasked."""
    chunks = [{"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in words]
    end = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": _reason(cut)}], "timings": _timings(words, given)}
    return [*map(sse, chunks), sse(end)], [DONE]


def _reason(cut: bool) -> str:
    return "length" if cut else "stop"


def _completion(words: Words, given: int, cut: bool) -> Any:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "text": "".join(words), "finish_reason": _reason(cut)}], "usage": usage(words, given)}


def _completion_stream(words: Words, given: int, cut: bool) -> Pieces:
    """As vLLM does when asked."""
    chunks: list[dict[str, Any]] = [{"id": "c1", "model": "m", "choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in words]
    chunks.append({"id": "c1", "model": "m", "choices": [{"index": 0, "text": "", "finish_reason": _reason(cut)}]})
    return [*map(sse, chunks), sse({"id": "c1", "model": "m", "choices": [], "usage": usage(words, given)})], [DONE]


def _response(words: Words, given: int, cut: bool) -> Any:
    told = {"input_tokens": given, "output_tokens": len(words), "total_tokens": given + len(words)}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "".join(words)}]}
    status = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cut else {"status": "completed"}
    return {"id": "resp_1", "object": "response", "model": "m", "output": [item], "usage": told, **status}


def _response_stream(words: Words, given: int, cut: bool) -> Pieces:
    created = {"type": "response.created", "response": {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress"}}
    deltas = [{"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "delta": word} for word in words]
    end = {"type": "response.incomplete" if cut else "response.completed", "response": _response(words, given, cut)}
    return [named(created), *map(named, deltas)], [named(end)]


def _messages(words: Words, given: int, cut: bool) -> Any:
    told = {"input_tokens": given, "output_tokens": len(words)}
    content = [{"type": "text", "text": "".join(words)}]
    return {"id": "m1", "type": "message", "model": "m", "role": "assistant", "content": content, "stop_reason": _stop_reason(cut), "usage": told}


def _stop_reason(cut: bool) -> str:
    return "max_tokens" if cut else "end_turn"


def _messages_stream(words: Words, given: int, cut: bool) -> Pieces:
    start = {"id": "m1", "type": "message", "model": "m", "role": "assistant", "content": [], "usage": {"input_tokens": given, "output_tokens": 1}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in words),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": _stop_reason(cut)}, "usage": {"output_tokens": len(words)}},
    ]
    return list(map(named, events)), [named({"type": "message_stop"})]


def _ollama(content: Callable[[str], dict[str, Any]]) -> tuple[Callable[[Words, int, bool], Any], Callable[[Words, int, bool], Pieces]]:
    def end(words: Words, given: int, cut: bool, text: str) -> dict[str, Any]:
        counts = {"prompt_eval_count": given, "eval_count": len(words)}
        return {"model": "m", **content(text), "done": True, "done_reason": _reason(cut), **counts}

    def whole(words: Words, given: int, cut: bool) -> Any:
        return end(words, given, cut, "".join(words))

    def stream(words: Words, given: int, cut: bool) -> Pieces:
        return [line({"model": "m", **content(word), "done": False}) for word in words], [line(end(words, given, cut, ""))]

    return whole, stream


_OLLAMA_CHAT = _ollama(lambda text: {"message": {"role": "assistant", "content": text}})
_OLLAMA_GENERATE = _ollama(lambda text: {"response": text})


def _native(words: Words, given: int, cut: bool, content: str | None = None) -> dict[str, Any]:
    counts = {"tokens_predicted": len(words), "tokens_evaluated": given, "timings": _timings(words, given)}
    text = "".join(words) if content is None else content
    return {"index": 0, "content": text, "stop": True, "stop_type": "limit" if cut else "eos", **counts}


def _native_stream(words: Words, given: int, cut: bool) -> Pieces:
    running = [{"index": 0, "content": word, "stop": False, "tokens_predicted": place, "tokens_evaluated": given} for place, word in enumerate(words, 1)]
    return [sse(one) for one in running], [sse(_native(words, given, cut, ""))]


def _sglang(words: Words, given: int, cut: bool) -> Any:
    return {"text": "".join(words), "meta_info": _meta(words, given, {"type": _reason(cut)})}


def _meta(words: Words, given: int, reason: Any) -> dict[str, Any]:
    return {"id": "r1", "finish_reason": reason, "prompt_tokens": given, "completion_tokens": len(words)}


def _sglang_stream(words: Words, given: int, cut: bool) -> Pieces:
    """Text and counts so far, on each event."""
    parts = [words[:place] for place in range(1, len(words) + 1)]
    events = [{"text": "".join(part), "meta_info": _meta(part, given, {"type": _reason(cut)} if part == words else None)} for part in parts]
    return list(map(sse, events)), [DONE]


def _tgi(words: Words, given: int, cut: bool) -> Any:
    return {"generated_text": "".join(words), "details": _details(words, given, cut)}


def _details(words: Words, given: int, cut: bool) -> dict[str, Any]:
    return {"finish_reason": "length" if cut else "eos_token", "generated_tokens": len(words), "input_length": given, "seed": None}


def _tgi_stream(words: Words, given: int, cut: bool) -> Pieces:
    events: list[dict[str, Any]] = [
        {"index": place, "token": {"id": 1, "text": word, "special": False}, "generated_text": None} for place, word in enumerate(words, 1)
    ]
    events[-1] |= {"generated_text": "".join(words), "details": _details(words, given, cut)}
    return [sse(event) for event in events[:-1]], [sse(events[-1])]


def _lmstudio(words: Words, given: int, cut: bool) -> Any:
    stats = {"input_tokens": given, "total_output_tokens": len(words), "reasoning_output_tokens": 0}
    return {"model_instance_id": "m", "output": [{"type": "message", "content": "".join(words)}], "stats": stats}


def _lmstudio_stream(words: Words, given: int, cut: bool) -> Pieces:
    events: list[dict[str, Any]] = [{"type": "chat.start"}, *({"type": "message.delta", "content": word} for word in words)]
    return list(map(named, events)), [named({"type": "chat.end", "result": _lmstudio(words, given, cut)})]


def _vectors(words: Words, given: int, cut: bool) -> Any:
    return {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": given, "total_tokens": given}}


def _ranks(words: Words, given: int, cut: bool) -> Any:
    return {"results": [{"index": 0, "relevance_score": 0.5}], "usage": {"prompt_tokens": given, "total_tokens": given}}


def _ollama_vectors(words: Words, given: int, cut: bool) -> Any:
    return {"model": "m", "embeddings": [[0.5]], "prompt_eval_count": given}


def _native_vectors(words: Words, given: int, cut: bool) -> Any:
    """It reports nothing."""
    return [{"index": 0, "embedding": [[0.5]]}]


TURN = [{"role": "user", "content": "hello there"}]
FAILED = {"message": "it failed", "type": "server_error", "code": 500}
STREAM = {"stream": True}
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            name="openai.chat", path="/v1/chat/completions", engine="llama.cpp", body={"messages": TURN}, whole=_chat, stream=_chat_stream, asked=STREAM,
            error=sse({"error": FAILED}), length_word='"finish_reason":"length"',
        ),
        Format(
            name="openai.completions", path="/v1/completions", engine="vllm", body={"prompt": "hello there"}, whole=_completion, stream=_completion_stream,
            asked=WITH_USAGE, error=sse({"error": FAILED}) + DONE, length_word='"finish_reason":"length"',
        ),
        Format(
            name="openai.responses", path="/v1/responses", engine="generic", body={"input": "hello there"}, whole=_response, stream=_response_stream,
            asked=STREAM, cap=("max_output_tokens",), form="responses", error=named({"type": "error", "code": "server_error", "message": "it failed"}),
            length_word='"response.incomplete"',
        ),
        Format(name="openai.embeddings", path="/v1/embeddings", engine="vllm", body={"input": "hello there"}, whole=_vectors, cap=()),
        Format(name="rerank", path="/v1/rerank", engine="vllm", body={"query": "hello", "documents": ["there"]}, whole=_ranks, cap=()),
        Format(
            name="anthropic.messages", path="/v1/messages", engine="vllm", body={"messages": TURN}, whole=_messages, stream=_messages_stream, asked=STREAM,
            form="messages", error=named({"type": "error", "error": {"type": "api_error", "message": "it failed"}}), length_word='"stop_reason":"max_tokens"',
        ),
        Format(
            name="ollama.chat", path="/api/chat", engine="ollama", body={"messages": TURN}, whole=_OLLAMA_CHAT[0], stream=_OLLAMA_CHAT[1],
            unasked={"stream": False}, cap=("options", "num_predict"), form="native", error=line({"error": "it failed"}),
            length_word='"done_reason":"length"',
        ),
        Format(
            name="ollama.generate", path="/api/generate", engine="ollama", body={"prompt": "hello there"}, whole=_OLLAMA_GENERATE[0],
            stream=_OLLAMA_GENERATE[1], unasked={"stream": False}, cap=("options", "num_predict"), form="native", error=line({"error": "it failed"}),
            length_word='"done_reason":"length"',
        ),
        Format(name="ollama.embed", path="/api/embed", engine="ollama", body={"input": "hello there"}, whole=_ollama_vectors, cap=(), form="native"),
        Format(
            name="llamacpp.completion", path="/completion", engine="llama.cpp", body={"prompt": "hello there"}, whole=_native, stream=_native_stream,
            asked=STREAM, form="native", error=sse({"error": FAILED}), length_word='"stop_type":"limit"',
        ),
        Format(name="llamacpp.embedding", path="/embedding", engine="llama.cpp", body={"content": "hello there"}, whole=_native_vectors, cap=(), form="native"),
        Format(
            name="sglang.generate", path="/generate", engine="sglang", body={"text": "hello there"}, whole=_sglang, stream=_sglang_stream, asked=STREAM,
            cap=("sampling_params", "max_new_tokens"), form="native", error=sse({"error": {"object": "error", **FAILED}}) + DONE,
            length_word='"finish_reason":{"type":"length"}',
        ),
        Format(
            name="tgi.generate", path="/generate", engine="generic", body={"inputs": "hello there"}, whole=_tgi, cap=("parameters", "max_new_tokens"),
            form="native",
        ),
        Format(
            name="tgi.generate_stream", path="/generate_stream", engine="generic", body={"inputs": "hello there"}, whole=_tgi, stream=_tgi_stream,
            cap=("parameters", "max_new_tokens"), form="native", error=sse({"error": "it failed", "error_type": "generation"}),
            length_word='"finish_reason":"length"',
        ),
        Format(
            name="lmstudio.chat", path="/api/v1/chat", engine="generic", body={"input": "hello there"}, whole=_lmstudio, stream=_lmstudio_stream, asked=STREAM,
            cap=("max_output_tokens",), form="native", error=named({"type": "error", "error": {"type": "internal_error", "message": "it failed"}}),
            length_word='"chat.end"',
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """An error or refusal, whatever its form."""

    code: str
    message: str
    kind: str = ""


def told(form: str, value: Any) -> Told:
    """Of a whole answer. Raises where it is not of this form."""
    if form == "native":
        assert isinstance(value["error"], str), value
        return Told(value["code"], value["error"])
    if form == "messages":
        assert value["type"] == "error", value
    error = value["error"]
    return Told(error["code"], error["message"], error["type"])


def told_at_the_end(one: Format, ending: bytes) -> Told:
    """Of the event that ends a stream as an error. Raises where it is not this format's."""
    text = ending.decode()
    if one.form == "openai" or one.name == "sglang.generate":
        assert text.endswith(DONE), text
        text = text.removesuffix(DONE)
    if one.name.startswith("ollama"):
        assert text.endswith("\n") and text.count("\n") == 1, text
        return told("native", json.loads(text))
    assert text.endswith("\n\n") and text.count("\n\n") == 1, text
    fields = dict(field.split(": ", 1) for field in text.strip().split("\n"))
    value = json.loads(fields["data"])
    if one.name == "openai.responses":
        assert fields["event"] == value["type"], text
        error = value["response"]["error"] if value["type"] == "response.failed" else value
        return Told(error["code"], error["message"], value["type"])
    if one.name == "lmstudio.chat":
        assert fields["event"] == "error", text
        return Told(value["error"]["code"], value["error"]["message"], value["type"])
    if one.form == "messages":
        assert fields["event"] == "error", text
    if one.name == "sglang.generate":
        return Told(value["error"]["code"], value["error"]["message"])
    return told(one.form, value)
