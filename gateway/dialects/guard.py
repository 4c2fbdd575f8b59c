"""What no body may hold unless the policy allows it: fields by which an agent would make the engine fetch, act, load, or share state for it.

The same for every format that an OpenAI-shaped server reads; a dialect adds what is its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.dialects.body_fields import invalid, not_allowed

GUARDED: Final[Mapping[str, tuple[object, ...]]] = {
    # state that outlives the call, or that another run could read
    "store": (False,),
    "background": (False,),
    "previous_response_id": ("",),
    "conversation": (),
    "id_slot": (-1,),
    "slot_id": (-1,),
    "cache_salt": (),
    "extra_key": (),
    "session_params": (),
    "kv_transfer_params": (),
    "ec_transfer_params": (),
    # whose turn it is, and where
    "priority": (0,),
    "data_parallel_rank": (),
    "bootstrap_host": (),
    "bootstrap_port": (),
    "bootstrap_room": (),
    # weights, adapters and code
    "lora": ([],),
    "lora_path": (),
    "lora_adapters": ([],),
    "lora_id": (),
    "adapter": (),
    "adapters": (),
    "adapter_id": (),
    "draft_model": (),
    "custom_logit_processor": (),
    "logits_processors": ([],),
    "chat_template": (),
    "generation_config": (),
    "keep_alive": (),
    "ttl": (),
    # the engine acts or fetches
    "web_search_options": (),
    "web_search": (False,),
    "mcp_servers": ([],),
    "integrations": ([],),
    "plugins": ([],),
    "container": (),
    "file_ids": ([],),
    "attachments": ([],),
    "tool_resources": (),
    # work that no output cap bounds, or that is counted under another name
    "n_cmpl": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "prompt_logprobs": (False,),
    "echo": (False,),
    "prompt_embeds": (),
    "_debug_render_only": (False,),
    "@requestFormat": (),
}
"""Field -> values that ask for nothing and pass. Null always passes."""

CLIENT_TOOLS: Final = frozenset({"function", "custom"})
"""Tools that the agent runs itself. Every other type is hosted: the engine would act."""
_ADDRESS: Final = re.compile(r"\s*(?://|/|\.|(?!data:)[A-Za-z][A-Za-z0-9+.-]{1,31}:\S)", re.IGNORECASE)
_WITHIN: Final = re.compile(r"\s*data:", re.IGNORECASE)
_PLACES: Final = frozenset({"url", "uri", "path", "image_url", "audio_url", "video_url", "file_url", "input_image", "input_video", "image", "audio", "video"})
"""Where servers look for an address: nothing but `data:` may stand there."""
_BYTES: Final = frozenset({"data", "file_data"})
_PLAIN: Final = frozenset({"type", "text", "refusal", "thinking", "reasoning", "detail", "format", "filename", "media_type"})
_FILE_KEYS: Final = frozenset({"file_id", "file_ids", "vector_store_ids"})
_DEEPEST: Final = 8


def guard_fields(body: Mapping[str, Any], allowed: frozenset[str]) -> None:
    for name in GUARDED.keys() & body.keys():
        value = body[name]
        if value is not None and name not in allowed and not any(value == harmless and type(value) is type(harmless) for harmless in GUARDED[name]):
            raise not_allowed(name)


def guard_spelling(body: Mapping[str, Any], names: frozenset[str]) -> None:
    """Some servers read names in any case: to them `Max_Tokens` is a second cap. `names` are those that mean something, as they are written."""
    for name in body:
        if name not in names and (folded := name.casefold()) in names:
            raise invalid(name, f"spelled {folded}")


def guard_tools(tools: Iterable[Mapping[str, Any]], allowed: frozenset[str]) -> tuple[str, ...]:
    """The names of the tools offered."""
    names: list[str] = []
    for tool in tools:
        kind = tool.get("type", "function")
        if not isinstance(kind, str):
            raise invalid("tools.type", "a text")
        inner = tool.get(kind) if kind in CLIENT_TOOLS else tool
        if kind not in CLIENT_TOOLS and "hosted_tools" not in allowed:
            raise not_allowed("tools", "hosted_tools")
        if not isinstance(inner, dict):
            raise invalid(f"tools.{kind}", "an object")
        name = inner.get("name", kind if kind not in CLIENT_TOOLS else None)
        if not isinstance(name, str):
            raise invalid(f"tools.{kind}.name", "a text")
        names.append(name)
    return tuple(names)


def guard_part(part: Mapping[str, Any], kind: str, allowed: frozenset[str]) -> None:
    """One part of a message that is no text: what it holds must be in it, never elsewhere."""
    if kind not in allowed:
        for name, value in part.items():
            _guard_value(name, value, kind, allowed, _DEEPEST)


def _guard_value(name: str, value: object, kind: str, allowed: frozenset[str], depth: int) -> None:
    if name in _PLAIN or value is None:
        return
    if name in _FILE_KEYS and name not in allowed:
        raise not_allowed(name)
    if depth == 0:
        raise invalid(kind, "nested less deeply")
    if isinstance(value, str):
        if not _is_within(name, value):
            raise not_allowed(kind)
    elif isinstance(value, dict):
        for inner, held in value.items():
            _guard_value(inner, held, kind, allowed, depth - 1)
    elif isinstance(value, list):
        for held in value:
            _guard_value(name, held, kind, allowed, depth - 1)


def _is_within(name: str, value: str) -> bool:
    """The text is content, not the address of some."""
    if _WITHIN.match(value) is not None:
        return True
    if name in _PLACES:
        return False
    if name in _BYTES:
        return ":" not in value[:64]
    return _ADDRESS.match(value) is None
