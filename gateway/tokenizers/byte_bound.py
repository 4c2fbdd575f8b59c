"""The bound: no tokenizer in use makes more tokens of a text than it has bytes, so bytes + what the template adds is never too small.

What the template adds is measured (overhead.py): a fixed part, with and without tools; a part for each message, tool and tool call; and by how much it lets
texts grow that it writes as JSON (escapes, indentation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.tokenizers.shape import PromptShape

SPARE_TOKENS: Final = 32
"""For what a template decides by fields that the probes don't set (a date, a reasoning level, an emptied think block), and for begin and end tokens."""

JOIN_BYTES: Final = 2
"""Between two parts of one message."""


PLAIN_TOKENS: Final = 4
"""Begin and end tokens of one prompt."""
PLAIN_TEMPLATE_TOKENS: Final = 128
"""What a reranker's own template may add to a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What one model's template adds, in bytes of rendered text (special tokens as 2)."""

    fixed: int
    """A conversation of one empty message."""
    fixed_with_tools: int
    """The same, offered one tool, less the tool's own JSON."""
    each_message: int
    each_tool: int
    each_call: int
    text_percent: int = 100
    """Growth of a message's text: 100 where it stands as it is."""
    tool_percent: int = 100
    call_percent: int = 100


ASSUMED: Final = Overhead(
    fixed=512, fixed_with_tools=2_048, each_message=32, each_tool=128, each_call=128, text_percent=110, tool_percent=200, call_percent=200
)
"""Where no engine can be asked. A bound from it is an estimate, and no input cap may rest on it."""


def bound_tokens(shape: PromptShape, overhead: Overhead, image_tokens_max: int) -> int:
    grown = (
        shape.text_bytes * (overhead.text_percent - 100)
        + shape.tool_bytes * max(0, overhead.tool_percent - overhead.text_percent)
        + shape.call_bytes * max(0, overhead.call_percent - overhead.text_percent)
    )
    return (
        shape.text_bytes
        + -(-grown // 100)
        + JOIN_BYTES * shape.parts
        + (overhead.fixed_with_tools if shape.tools else overhead.fixed)
        + overhead.each_message * max(0, shape.messages - 1)
        + overhead.each_tool * max(0, shape.tools - 1)
        + overhead.each_call * shape.tool_calls
        + image_tokens_max * shape.pictures
        + SPARE_TOKENS
    )


def plain_bound(shape: PromptShape, image_tokens_max: int) -> int:
    """Of prompts that no template renders. `messages`: how many of them the engine sets into words of its own (rerankers)."""
    return (
        shape.text_bytes
        + shape.ids
        + PLAIN_TOKENS * shape.prompts
        + JOIN_BYTES * shape.parts
        + PLAIN_TEMPLATE_TOKENS * shape.messages
        + image_tokens_max * shape.pictures
    )
