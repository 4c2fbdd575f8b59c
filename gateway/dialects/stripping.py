"""A body without what its policy strips. What is not touched stays the same object, so that its bytes are passed on as they came.

The rule: only what the guard would refuse is taken out, whole: a field, or a tool from the list of tools; never a part of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.dialects.barred import GUARDED, HOLDERS, OWN, RUNNER_OPTIONS, THING_OF, asks, hosted_kind, own_asks, tool_thing

_CHOICES: Final = ("tool_choice", "parallel_tool_calls")
"""Without meaning, and to some servers an error, where no tool is left."""
_DEEPEST: Final = 5

Stripped = tuple[Mapping[str, Any], tuple[str, ...]]
"""The body, and the paths of what was taken out."""


def strip(body: Mapping[str, Any], dialect: str, names: frozenset[str], allowed: frozenset[str] = frozenset()) -> Stripped:
    """`names`: what the policy strips. `allowed` goes before `hosted_tools`, which stands for every kind of tool."""
    if not names:
        return body, ()
    removed: list[str] = []
    kept = _without(body, dialect, names, "", removed)
    holder = HOLDERS.get(dialect, "")
    inner = kept.get(holder)
    if isinstance(inner, dict):
        found = len(removed)
        rest = _without(inner, dialect, names, f"{holder}.", removed)
        if len(removed) > found:
            kept = {**kept, holder: rest}
    kept = _without_tools(kept, dialect, names, allowed, removed)
    return kept, tuple(removed)


def _without(held: Mapping[str, Any], dialect: str, names: frozenset[str], above: str, removed: list[str]) -> Mapping[str, Any]:
    gone = [name for name in held if _is_stripped(name, held[name], dialect, names, inside=bool(above))]
    if not gone:
        return held
    removed.extend(f"{above}{name}" for name in gone)
    return {name: value for name, value in held.items() if name not in gone}


def _is_stripped(name: str, value: object, dialect: str, names: frozenset[str], *, inside: bool) -> bool:
    if name in GUARDED and THING_OF[name] in names and asks(name, value):
        return True
    if inside and name in RUNNER_OPTIONS:
        return "runner_options" in names and value is not None
    own = OWN.get(dialect, {}).get(name)
    return own is not None and own in names and own_asks(name, value)


def _without_tools(body: Mapping[str, Any], dialect: str, names: frozenset[str], allowed: frozenset[str], removed: list[str]) -> Mapping[str, Any]:
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    gone: list[str] = []
    left = list(_kept_tools(tools, dialect, names, allowed, gone, _DEEPEST))
    if not gone:
        return body
    removed.extend(f"tools.{kind}" for kind in gone)
    dropped = {"tools", *_CHOICES} if not left else {"tool_choice"} if _chooses(body.get("tool_choice"), gone) else set()
    removed.extend(name for name in _CHOICES if name in dropped and name in body)
    rest = {name: value for name, value in body.items() if name not in dropped}
    return {name: left if name == "tools" else value for name, value in rest.items()}


def _kept_tools(tools: list[Any], dialect: str, names: frozenset[str], allowed: frozenset[str], gone: list[str], depth: int) -> Iterator[Any]:
    for tool in tools:
        if not isinstance(tool, dict):
            yield tool
            continue
        inner = tool.get("tools")
        if tool.get("type") == "namespace" and dialect == "openai.responses" and isinstance(inner, list) and depth:
            before = len(gone)
            left = list(_kept_tools(inner, dialect, names, allowed, gone, depth - 1))
            if len(gone) == before:
                yield tool
            elif left:
                yield {**tool, "tools": left}
            continue
        kind = hosted_kind(tool, dialect)
        thing = tool_thing(kind) if kind is not None else ""
        if kind is not None and (thing in names or ("hosted_tools" in names and thing not in allowed)):
            gone.append(kind)
        else:
            yield tool


def _chooses(choice: object, gone: list[str]) -> bool:
    """The agent wants one of the tools that are gone."""
    return isinstance(choice, dict) and (choice.get("type") in gone or choice.get("name") in gone)
