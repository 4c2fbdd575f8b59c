"""JSON as servers really write it: broken UTF-8, NaN and lone surrogates are read as far as they can be."""

from __future__ import annotations

import json
from collections.abc import Sequence

import orjson


def parse(data: bytes) -> object:
    """Raises ValueError on what is no JSON."""
    try:
        return orjson.loads(data)
    except ValueError:
        try:
            return json.loads(data.decode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("nested too deep") from error


def size(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def sizes(texts: Sequence[str]) -> int:
    """Of all of them together. A text that was written as JSON before keeps its UTF-8: encoding it again is a copy."""
    if all(map(str.isascii, texts)):
        return sum(map(len, texts))
    try:
        return sum(map(len, map(str.encode, texts)))
    except UnicodeEncodeError:
        return sum(map(size, texts))


def whole_text(pieces: list[str]) -> str:
    """Joined; halves of a character that came in two pieces are put together, what can't be is replaced."""
    text = "".join(pieces)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def compact(value: object) -> str:
    """JSON text without blanks, non-ASCII as it is."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # lone surrogates, whole numbers above 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
