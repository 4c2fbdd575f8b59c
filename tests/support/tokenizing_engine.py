"""A small server that counts as vLLM and SGLang do, in their own forms: `/tokenize`, `/detokenize`, `/v1/messages/count_tokens`, and calls that report so.

Written from what those servers take and give. A byte is a token and so is each special word, which is why text and tokens can be turned into each other.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

SPECIALS = ("<|im_start|>", "<|im_end|>", "<s>")
_SPECIAL = re.compile("|".join(map(re.escape, SPECIALS)))
KNOWN = {"model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template_kwargs"}


def tokens_of(text: str) -> list[int]:
    found: list[int] = []
    place = 0
    for special in _SPECIAL.finditer(text):
        found += [*text[place : special.start()].encode(), 256 + SPECIALS.index(special.group())]
        place = special.end()
    return [*found, *text[place:].encode()]


def text_of(tokens: list[int]) -> str:
    pieces = [bytes([token]) if token < 256 else SPECIALS[token - 256].encode() for token in tokens]
    return b"".join(pieces).decode("utf-8", "replace")


def render(body: dict[str, Any]) -> str:
    """Tools first, as they stand; the effort where the template is told of one."""
    tools = "".join(f"<|im_start|>tool {json.dumps(tool, ensure_ascii=False)}<|im_end|>" for tool in body.get("tools") or ())
    effort = (body.get("chat_template_kwargs") or {}).get("reasoning_effort", body.get("reasoning_effort"))
    turns = "".join(f"<|im_start|>{message['role']}\n{written(message)}<|im_end|>\n" for message in body["messages"])
    return f"<s>{tools}{f'effort {effort}' if effort else ''}{turns}" + ("<|im_start|>assistant\n" if body.get("add_generation_prompt", True) else "")


def written(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = "".join(part.get("text", "") for part in content) if isinstance(content, list) else content or ""
    return text + "".join(json.dumps(call["function"]) for call in message.get("tool_calls") or ())


def as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """An Anthropic body as these servers map it onto their template."""
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    tools = [{"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}} for tool in body.get("tools") or ()]
    return {"messages": [*system, *body["messages"]], "tools": tools}


class TokenizingEngine:
    """`kind`: `vllm` or `sglang`. `asked`: every request, as (path, body)."""

    def __init__(self, kind: str = "vllm", model: str = "org/Model") -> None:
        self.kind, self.model = kind, model
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fact(self, path: str) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": self.kind, "max_model_len": 4_096}]}
        if path == "/health":
            return 200, None
        if path == "/version" and self.kind == "vllm":
            return 200, {"version": "0.33.0"}
        if path == "/get_model_info" and self.kind == "sglang":
            return 200, {"model_path": self.model, "tokenizer_path": self.model, "is_generation": True}
        return 404, {"detail": "Not Found"}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if body.get("model") != self.model:
            error = {"message": f"The model `{body.get('model')}` does not exist.", "type": "NotFoundError", "code": 404}
            return 404, {"error": error} if self.kind == "vllm" else {"object": "error", **error}
        match path:
            case "/tokenize":
                return self._tokenized(body)
            case "/detokenize":
                return 200, {"prompt" if self.kind == "vllm" else "text": text_of(body["tokens"])}
            case "/v1/messages/count_tokens":
                return 200, {"input_tokens": len(tokens_of(render(as_chat(body))))}
            case "/v1/messages":
                used = {"input_tokens": len(tokens_of(render(as_chat(body)))), "output_tokens": 1}
                return 200, {"id": "m", "type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn", "usage": used}
            case "/v1/chat/completions":
                return 200, self._completed(len(tokens_of(render(body))), {"message": {"role": "assistant", "content": "a"}})
            case "/v1/completions" | "/v1/embeddings":
                prompts = body.get("prompt", body.get("input"))
                read = sum(len(tokens_of("<s>" + one)) if isinstance(one, str) else len(one) for one in _prompts(prompts))
                if path == "/v1/embeddings":
                    return 200, {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": read, "total_tokens": read}}
                return 200, self._completed(read, {"text": "a"})
        return 404, {"detail": "Not Found"}

    def _tokenized(self, body: dict[str, Any]) -> tuple[int, Any]:
        if "messages" in body:
            unknown = body.keys() - KNOWN
            assert not unknown, f"fields that nothing was said of: {unknown}"
            if any(message.get("role") == "bad" for message in body["messages"]):
                error = {"message": "Unexpected role", "type": "BadRequestError", "code": 400}
                return 400, {"error": error} if self.kind == "vllm" else {"object": "error", **error}
            tokens = tokens_of(render(body))
        else:
            tokens = tokens_of(("<s>" if body.get("add_special_tokens", True) else "") + body["prompt"])
        return 200, {"count": len(tokens), "max_model_len": 4_096, "tokens": tokens, "token_strs": None}

    def _completed(self, read: int, choice: dict[str, Any]) -> dict[str, Any]:
        usage = {"prompt_tokens": read, "completion_tokens": 1, "total_tokens": read + 1}
        return {"id": "c", "model": self.model, "choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": usage}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version = "uvicorn"

            def do_GET(self) -> None:
                self._write(*engine.fact(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.asked.append((self.path, body))
                self._write(*engine.answer(self.path, body))

            def _write(self, status: int, value: Any) -> None:
                data = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        return Handler


def _prompts(value: Any) -> list[Any]:
    """One text, one list of numbers, or a list of such."""
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        return [value]
    return list(value)
