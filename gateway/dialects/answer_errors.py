"""Errors in an engine's answer, in all the forms that servers use: one place to recognise them and to class them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.accounting.usage import ErrorClass

OVERFLOW_WORDS: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
"""Codes and types, never free text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineError:
    code: int | None = None
    overflow: bool = False


def error_of(answer: object, event: str = "") -> EngineError | None:
    """The error that an event or a body is, or None. `event`: the name under which it came."""
    if not isinstance(answer, dict):
        return EngineError() if event == "error" else None
    inner = answer.get("error")
    if isinstance(inner, dict):
        return _described({**answer, **inner})
    if inner or answer.get("object") == "error" or answer.get("type") == "error" or event == "error":
        return _described(answer)
    return None


def _described(error: Mapping[str, Any]) -> EngineError:
    words = {error.get("code") if isinstance(error.get("code"), str) else "", error.get("type") if isinstance(error.get("type"), str) else ""}
    code = next((number for name in ("code", "http_status_code", "status") if (number := _status(error.get(name))) is not None), None)
    return EngineError(code=code, overflow=not words.isdisjoint(OVERFLOW_WORDS))


def _status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599 else None


def class_of_status(status: int, error: EngineError | None) -> ErrorClass:
    """What an HTTP status other than success says."""
    match status:
        case 401 | 403:
            return ErrorClass.AUTH
        case 404:
            return ErrorClass.NOT_FOUND
        case 429:
            return ErrorClass.RATE_LIMITED
        case 503 | 529:
            return ErrorClass.OVERLOADED
    if 400 <= status < 500:
        return ErrorClass.CONTEXT_OVERFLOW if error is not None and error.overflow else ErrorClass.INVALID_REQUEST
    return ErrorClass.SERVER_ERROR
