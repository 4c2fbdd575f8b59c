"""A dispatch record for a driver of its own, in the form `gateway-dispatch-1`, which `gateway reconcile` holds against the ledger.

The rule: each line is whole on the disk's side of the process before the method returns, so that a killed driver has noted what it knew; and what is not
known is left out, never 0. Content (prompts, answers) has no place in it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal

FORM = "gateway-dispatch-1"
MESSAGE_LETTERS = 1024
Kind = Literal["answer", "error", "aborted", "placeholder", "local_error"]


class DispatchWriter:
    """Appends to one file; several threads, and several processes, may each have one on the same file."""

    def __init__(self, path: str | Path, driver: str, *, session: str = "") -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._fixed = {"form": FORM, "driver": driver, **({"session": session} if session else {})}

    def note(
        self,
        kind: Kind = "answer",
        *,
        id: str = "",
        session: str = "",
        begun_ms: int | None = None,
        ended_ms: int | None = None,
        model: str = "",
        model_is_servers: bool = False,
        usage: Mapping[str, int | None] | None = None,
        usage_is_own: bool = False,
        response_id: str = "",
        item_ids: Iterable[str] = (),
        tool_call_ids: Iterable[str] = (),
        request_ids: Iterable[str] = (),
        session_ids: Iterable[str] = (),
        status: int | None = None,
        finish: str = "",
        message: str = "",
    ) -> None:
        """One request. `usage` in the form's own words (`usage_of` makes it from an answer); `ended_ms` is now where it is not given."""
        known = {name: number for name, number in (usage or {}).items() if number is not None}
        fields = {
            **({"session": session} if session else {}),
            "id": id,
            "kind": kind,
            "begun_ms": begun_ms,
            "ended_ms": time.time_ns() // 1_000_000 if ended_ms is None else ended_ms,
            "model": model,
            "model_is_servers": model_is_servers or None,
            "usage": known,
            "usage_is_own": usage_is_own or None,
            "response_id": response_id,
            "item_ids": list(item_ids),
            "tool_call_ids": list(tool_call_ids),
            "request_ids": list(request_ids),
            "session_ids": list(session_ids),
            "status": status,
            "finish": finish,
            "message": message[:MESSAGE_LETTERS],
        }
        self._append({**self._fixed, **{name: value for name, value in fields.items() if value not in ("", None, [], {})}})

    def answer(self, answer: Mapping[str, object], *, headers: Mapping[str, str] | None = None, begun_ms: int | None = None, id: str = "") -> None:
        """One answer as its JSON body, of chat completions, Responses or Messages, with its headers."""
        self.note(
            id=id,
            begun_ms=begun_ms,
            model=_text(answer.get("model")),
            model_is_servers=True,
            usage=usage_of(answer),
            response_id=_text(answer.get("id")),
            item_ids=[_text(item.get("id")) for item in _objects(answer.get("output")) if item.get("id")],
            tool_call_ids=_tool_calls(answer),
            request_ids=_request_ids(headers),
            finish=_finish(answer),
        )

    def refusal(self, status: int, message: str = "", *, headers: Mapping[str, str] | None = None, begun_ms: int | None = None, id: str = "") -> None:
        """A server's refusal or failure, with its headers: the request id in them is what it is found by."""
        self.note("error", id=id, begun_ms=begun_ms, status=status, message=message, request_ids=_request_ids(headers))

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> DispatchWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _append(self, line: Mapping[str, object]) -> None:
        raw = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with self._lock:
            while raw:  # a whole line goes out in one write but for a full disk, which then raises
                raw = raw[os.write(self._file, raw) :]


def usage_of(answer: Mapping[str, object]) -> dict[str, int | None]:
    """An answer's usage in this form: the cached part inside the input, reasoning inside the output. Empty where it has none."""
    told = answer.get("usage")
    if not isinstance(told, Mapping):
        return {}
    read, written = _count(told, "cache_read_input_tokens"), _count(told, "cache_creation_input_tokens")
    if answer.get("type") == "message" or read is not None or written is not None:  # Messages: the parts stand beside the input
        fresh = _count(told, "input_tokens")
        return {
            "input_tokens": None if fresh is None else fresh + (read or 0) + (written or 0),
            "output_tokens": _count(told, "output_tokens"),
            "cached_tokens": read,
            "cache_write_tokens": written,
        }
    first, second = ("prompt_tokens", "completion_tokens") if "prompt_tokens" in told else ("input_tokens", "output_tokens")
    return {
        "input_tokens": _count(told, first),
        "output_tokens": _count(told, second),
        "cached_tokens": _count(told.get(f"{first}_details"), "cached_tokens"),
        "reasoning_tokens": _count(told.get(f"{second}_details"), "reasoning_tokens"),
    }


def _count(told: object, name: str) -> int | None:
    found = told.get(name) if isinstance(told, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _tool_calls(answer: Mapping[str, object]) -> list[str]:
    found = [call.get("id") for choice in _objects(answer.get("choices")) for call in _objects(_mapping(choice.get("message")).get("tool_calls"))]
    found += [item.get("call_id") for item in _objects(answer.get("output"))]
    found += [block.get("id") for block in _objects(answer.get("content")) if block.get("type") == "tool_use"]
    return [each for each in found if isinstance(each, str) and each]


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _finish(answer: Mapping[str, object]) -> str:
    choices = _objects(answer.get("choices"))
    return _text(choices[0].get("finish_reason")) if choices else _text(answer.get("stop_reason")) or _text(answer.get("status"))


def _request_ids(headers: Mapping[str, str] | None) -> list[str]:
    return list(dict.fromkeys(value for name, value in (headers or {}).items() if name.lower() in ("x-request-id", "request-id")))
