"""The mock engine's own template and tokenizer: what /apply-template, /tokenize and `prompt_tokens` agree on.

A token is a special (`<|im_start|>`, `<|im_end|>`), a run of ASCII letters, digits and underscores, or any other single character:
never more tokens than bytes.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

import orjson

IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
_TOKEN: Final = re.compile(r"<\|im_(?:start|end)\|>|[A-Za-z0-9_]+|.", re.DOTALL)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+|.", re.DOTALL)
_WORDS: Final = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")


def render(body: dict[str, Any]) -> str:
    """ChatML, with the tools as JSON lines in a system message of their own."""
    parts: list[str] = []
    if body.get("tools"):
        tools = "\n".join(orjson.dumps(tool).decode() for tool in body["tools"])
        parts.append(f"{IM_START}system\n# Tools\n{tools}{IM_END}\n")
    parts += [f"{IM_START}{message.get('role', 'user')}\n{_content(message)}{IM_END}\n" for message in _messages(body)]
    if body.get("add_generation_prompt", True):
        parts.append(f"{IM_START}assistant\n")
    return "".join(parts)


def tokenize(text: str, parse_special: bool = True) -> list[int]:
    """The same text gives the same numbers on each machine. Without `parse_special` the name of a special is ordinary text."""
    return [zlib.crc32(piece.encode("utf-8", "surrogatepass")) & 0x7FFF for piece in (_TOKEN if parse_special else _PLAIN).findall(text)]


def count(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def pieces(text: str) -> list[str]:
    """A text as its tokens."""
    return _TOKEN.findall(text)


def said(number: int) -> str:
    """The text of an answer's so-manieth token: words and blanks in turn, so that the whole text counts as many tokens as were said."""
    return " " if number % 2 else _WORDS[number // 2 % len(_WORDS)]


def text_of(tokens: int) -> str:
    """A text of exactly so many tokens."""
    return "".join(said(number) for number in range(tokens))


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """In each format: Messages has its system text beside them, Responses has instructions and input."""
    given = body.get("messages") or body.get("input") or []
    items = [{"content": given}] if isinstance(given, str) else [item for item in given if isinstance(item, dict)]
    before = [{"role": "system", "content": text} for name in ("system", "instructions") if (text := body.get(name))]
    return before + items


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        text = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    else:
        text = "" if content is None else str(content)
    calls = message.get("tool_calls")
    return text + orjson.dumps(calls).decode() if calls else text
