"""What a model's template adds, measured by letting the engine render small conversations and looking at how long they come out.

Measured in bytes of rendered text, special tokens as 2 (themselves, and the blank that some tokenizers put behind them): a bound in tokens would not be one,
for a text can break up the tokens around it. A probe that the template refuses is left out: a call of that form would be refused too. No probe ends with the
assistant's turn: llama.cpp would go on writing it, and leave out what ends it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from gateway.tokenizers.byte_bound import Overhead
from gateway.tokenizers.shape import json_bytes
from gateway.tokenizers.tokenizer import CannotCount, PromptRejected

Render = Callable[[Mapping[str, object]], Awaitable[bytes]]
Messages = list[dict[str, object]]

SPECIAL_BYTES: Final = 2
_HOSTILE: Final = 'a"b\\c\td<e>&\né漢😀\x01' * 8
_SMALL_TOOL: Final[dict[str, object]] = {"type": "function", "function": {"name": "x", "description": "x", "parameters": {"type": "object", "properties": {}}}}
_LARGE_TOOL: Final[dict[str, object]] = {
    "type": "function",
    "function": {
        "name": "x",
        "description": _HOSTILE,
        "parameters": {
            "type": "object",
            "properties": {f"p{n}": {"type": "array", "description": "x", "items": {"type": "string", "enum": ["a", "b"]}} for n in range(8)},
            "required": ["p1"],
        },
    },
}


async def measure(render: Render, specials: Sequence[bytes]) -> Overhead:
    """Raises CannotCount where even the plainest conversation can't be rendered."""
    ruler = _Ruler(render, specials)
    plain = await ruler.size([_user("x")])
    if plain is None:
        raise CannotCount("the engine's template renders no conversation")
    with_tool = await ruler.size([_user("x")], [_SMALL_TOOL])
    return Overhead(
        fixed=plain,
        fixed_with_tools=max(plain, (with_tool or plain)),
        each_message=await _each_message(ruler, plain),
        each_tool=await _each_tool(ruler, with_tool),
        each_call=await _each_call(ruler, plain, with_tool),
        text_percent=await _text_percent(ruler),
        tool_percent=await _tool_percent(ruler),
        call_percent=await _call_percent(ruler),
    )


class _Ruler:
    def __init__(self, render: Render, specials: Sequence[bytes]) -> None:
        self._render = render
        self._pattern = re.compile(b"|".join(re.escape(word) for word in sorted(specials, key=len, reverse=True))) if specials else None

    async def size(self, messages: Messages, tools: Sequence[object] = ()) -> int | None:
        try:
            text = await self._render({"messages": messages, "tools": list(tools)} if tools else {"messages": messages})
        except PromptRejected:
            return None
        if self._pattern is None:
            return len(text)
        plain, specials = self._pattern.subn(b"", text)
        return len(plain) + SPECIAL_BYTES * specials


async def _each_message(ruler: _Ruler, plain: int) -> int:
    turns: list[Messages] = [
        [_user("x"), _assistant("x"), _user("x")],
        [_system("x"), _user("x")],
        [_user("x"), _assistant("x"), _user("x"), _assistant("x"), _user("x")],
        [_user("x"), _user("x")],
        [_user("x"), _tool_result("x")],
    ]
    sizes = [(await ruler.size(messages), len(messages) - 1) for messages in turns]
    return max((-(-(size - plain) // extra) for size, extra in sizes if size is not None), default=0)


async def _each_tool(ruler: _Ruler, with_tool: int | None) -> int:
    two = await ruler.size([_user("x")], [_SMALL_TOOL, _SMALL_TOOL])
    return max(0, two - with_tool) if two is not None and with_tool is not None else 0


async def _each_call(ruler: _Ruler, plain: int, with_tool: int | None) -> int:
    """Against the same conversation without the call; its own few bytes of JSON stay in, as slack."""
    found = 0
    for tools, start in (((), plain), ((_SMALL_TOOL,), with_tool)):
        without = await ruler.size([_user("x"), _assistant("x"), _user("x")], tools)
        for calls in (1, 2):
            called = await ruler.size([_user("x"), _assistant("x", calls), _user("x")], tools)
            if called is not None and without is not None and start is not None:
                found = max(found, -(-(called - without) // calls))
    return found


async def _text_percent(ruler: _Ruler) -> int:
    percent = 100
    forms: list[Callable[[str], Messages]] = [
        lambda text: [_user(text)],
        lambda text: [_system(text), _user("x")],
        lambda text: [_user("x"), _assistant(text), _user("x")],
        lambda text: [_user("x"), _assistant("x", 1), _tool_result(text)],
    ]
    for form in forms:
        percent = max(percent, _growth(await ruler.size(form("x")), await ruler.size(form("x" + _HOSTILE)), len(_HOSTILE.encode())))
    return percent


async def _tool_percent(ruler: _Ruler) -> int:
    small, large = await ruler.size([_user("x")], [_SMALL_TOOL]), await ruler.size([_user("x")], [_LARGE_TOOL])
    return max(100, _growth(small, large, json_bytes(_LARGE_TOOL) - json_bytes(_SMALL_TOOL)))


async def _call_percent(ruler: _Ruler) -> int:
    small, large = '{"q":[1]}', '{"q":[' + ",".join(str(n % 10) for n in range(200)) + "]}"
    sizes = [await ruler.size([_user("x"), _assistant("x", 1, arguments), _user("x")]) for arguments in (small, large)]
    return max(100, _growth(sizes[0], sizes[1], len(large) - len(small)))


def _growth(small: int | None, large: int | None, added: int) -> int:
    return -(-100 * (large - small) // added) if small is not None and large is not None else 0


def _user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def _system(text: str) -> dict[str, object]:
    return {"role": "system", "content": text}


def _assistant(text: str, calls: int = 0, arguments: str = "{}") -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [{"id": f"c{n}", "type": "function", "function": {"name": "x", "arguments": arguments}} for n in range(calls)]
    return message


def _tool_result(text: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": "c0", "content": text}
