"""Request bodies of 2, 60 and 400 kB in the shape of an agent's conversation, the same bytes each time.

An agent sends its whole conversation with each call: what it was told, its tools, and in turn what it called and what came back. That
is many small strings and a few long ones, with quotes, line ends and some letters beyond ASCII, as source files have them. They are written
as the OpenAI SDKs write them: compact, in UTF-8, in the SDK's order of fields.
"""

from __future__ import annotations

import json
import random
from typing import Any

SIZES_BYTES = {"2kB": 2_000, "60kB": 60_000, "400kB": 400_000}
TOOLS = ("read_file", "write_file", "search", "run_tests", "list_folder", "apply_patch", "open_page", "ask_user")
WORDS = (
    *("return", "value", "index", "line", "token", "match", "error", "result", "buffer", "stream", "limit", "open", "close", "path", "reader", "writer"),
    *("None", "True", "self", "count", "first", "last", "raise", "import", "from", "class", "assert", "größer", "naïve", "→", "café", "“quoted”"),
    *('"key":', "'x'", "{}", "[]", "()", "\\", "\t", "    "),
)
OUTPUT_TOKENS = 32_000
"""As agents ask for. The engine's events hold a dozen tokens each, for they bear its clock: a lower ceiling would be passed, and so counted and cut."""


def body(size: str, model: str, *, stream: bool) -> bytes:
    """A chat completion request of about this size; larger ones carry tools and their results."""
    chance = random.Random(f"conversation {size}")
    with_tools = SIZES_BYTES[size] > 10_000
    tools = {"tool_choice": "auto", "tools": [_tool(name, chance) for name in TOOLS]} if with_tools else {}
    messages = [{"role": "system", "content": _prose(60, chance)}, {"role": "user", "content": _prose(40, chance)}]
    request: dict[str, Any] = {"model": model, **({"stream": True} if stream else {}), "messages": messages, "max_tokens": OUTPUT_TOKENS}
    request |= {**({"stream_options": {"include_usage": True}} if stream else {}), "temperature": 0.2, **tools}
    room_bytes = SIZES_BYTES[size] - len(_written(request))
    while room_bytes > 0:
        turn = _tool_turn(len(messages), room_bytes, chance) if with_tools else _talk_turn(chance)
        messages += turn
        room_bytes -= len(_written(turn))
    return _written(request)


def _written(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _talk_turn(chance: random.Random) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": _prose(20, chance)}, {"role": "user", "content": _prose(20, chance)}]


def _tool_turn(place: int, room_bytes: int, chance: random.Random) -> list[dict[str, Any]]:
    call = f"call_{place:06d}"
    arguments = json.dumps({"path": f"source/part_{place}.py", "from_line": place, "lines": 120})
    words = min(chance.choice((30, 90, 250, 700)), max(10, room_bytes // 7))
    function = {"name": chance.choice(TOOLS), "arguments": arguments}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "content": _lines(words, chance)},
    ]


def _tool(name: str, chance: random.Random) -> dict[str, Any]:
    fields = {field: {"type": kind, "description": _prose(9, chance)} for field, kind in (("path", "string"), ("from_line", "integer"), ("lines", "integer"))}
    schema = {"type": "object", "properties": fields, "required": ["path"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": _prose(30, chance), "parameters": schema}}


def _prose(words: int, chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def _lines(words: int, chance: random.Random) -> str:
    return "\n".join("    " * chance.randrange(4) + _prose(9, chance) for _ in range(max(1, words // 9)))
