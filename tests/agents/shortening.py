"""Long strings cut short, so that what is kept is small and holds no page of anybody's prompt. Names, ids, numbers and short texts stay as they are."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 160
MOST_TEXTS = 12
"""Of a list that holds nothing but texts."""


def shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST:
            return f"{value[:60]}…[+{len(value) - 60} chars]"
        case dict():
            return {key: shortened(inner) for key, inner in value.items()}
        case [str(), *_] if len(value) > MOST_TEXTS and all(isinstance(inner, str) for inner in value):
            return [shortened(inner) for inner in value[:MOST_TEXTS]]
        case list():
            return [shortened(inner) for inner in value]
    return value


def shortened_json(text: str) -> str:
    """JSON, or a plain text."""
    try:
        value = json.loads(text)
    except ValueError:
        return str(shortened(text))
    return json.dumps(shortened(value), ensure_ascii=False) if isinstance(value, dict | list) else text


def shortened_record(name: str, data: bytes) -> bytes:
    """By its suffix: JSON lines, JSON, or text line by line; anything else as it is."""
    suffix = name.rpartition(".")[2]
    if suffix == "db":
        return data
    text = data.decode()
    if suffix == "json":
        return (json.dumps(shortened(json.loads(text)), indent=1, ensure_ascii=False) + "\n").encode()
    lines = text.splitlines()
    return ("\n".join(shortened_json(line) if suffix == "jsonl" else str(shortened(line)) for line in lines) + "\n").encode()
