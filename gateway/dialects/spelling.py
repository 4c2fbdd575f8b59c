"""Names that only their case sets apart from one that means something. Some servers (all that are written in Go) read names in any case, and of two the last:
to them `Options` is a second `options`, with a cap of its own, and `Content` the words of a message, which nobody counted.

The rule: such a name is refused; a name that means nothing may be written in any way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.dialects.barred import GUARDED, HOLDERS, OWN, RUNNER_OPTIONS
from gateway.dialects.body_fields import invalid
from gateway.dialects.openai_settings import SETTINGS

FIELDS: Final = frozenset(
    {
        *SETTINGS, *GUARDED, *RUNNER_OPTIONS, *HOLDERS.values(), *(name for own in OWN.values() for name in own),
        "messages", "input", "prompt", "inputs", "input_ids", "content", "query", "documents", "texts", "system", "instructions", "suffix", "raw", "context",
        "tools", "functions", "metadata", "user", "images", "image_data", "audio_data", "video_data", "format", "think", "truncate", "shift", "dimensions",
        "stop_sequences", "response_format", "json_schema", "grammar", "structured_outputs", "guided_json", "prefill", "output_config", "output_format",
        "system_prompt", "include", "max_tool_calls", "prompt_cache_key", "truncation", "encoding_format",
    }
)  # fmt: skip
"""At the top of a body, and in its object of sampling parameters."""
SPOKEN: Final = frozenset(
    {
        "role", "content", "type", "text", "images", "image_url", "input_image", "input_audio", "audio_url", "video_url", "input_video", "image", "audio",
        "video", "file", "input_file", "file_data", "file_id", "file_url", "data_url", "source", "data", "url", "thinking", "reasoning", "refusal", "summary",
        "logs", "output", "tool_calls", "tool_call_id", "tool_use_id", "name", "arguments", "input", "id", "call_id", "media_type", "title", "context",
        "encrypted_content",
    }
)  # fmt: skip
"""In a message, an item of a conversation, and a part of one."""


def guard_spelling(held: Mapping[str, Any], names: frozenset[str]) -> None:
    """Raises BodyError. `names`: those that mean something, as they are written."""
    for name in held:
        if name not in names and (folded := name.casefold()) in names:
            raise invalid(name, f"spelled {folded}")


def guard_spoken(held: Mapping[str, Any]) -> None:
    """The same of a message or a part of one."""
    if not held.keys() <= SPOKEN:
        guard_spelling(held, SPOKEN)
