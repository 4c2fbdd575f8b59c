"""One helper request to an engine's own tokenizer or template, and what its answer says of the request or of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.errors import EngineFailure
from gateway.tokenizers.tokenizer import CannotCount, Post, PromptRejected

_REFUSED: Final = frozenset({400, 413, 422, 500})
"""What an engine says where its template can't take a body; other codes speak of the engine."""


async def ask(post: Post, path: str, value: Mapping[str, object], *, refuses: bool = True) -> Mapping[str, object]:
    """`refuses`: the engine may find the body wrong. Raises CannotCount, PromptRejected."""
    try:
        status, answer = await post(path, value)
    except EngineFailure as failure:
        raise CannotCount(f"{path}: {failure}") from failure
    if refuses and status in _REFUSED:
        raise PromptRejected(status, _message(answer))
    if status != 200 or not isinstance(answer, Mapping):
        raise CannotCount(f"{path} answered {status}")
    return answer


def input_tokens(path: str, answer: Mapping[str, object]) -> int:
    """Of an endpoint that counts a whole body. Raises CannotCount."""
    return whole_number(path, answer.get("input_tokens"))


def whole_number(path: str, tokens: object) -> int:
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        raise CannotCount(f"{path} gave no count")
    return tokens


def _message(answer: object) -> str:
    error = answer.get("error", answer.get("message")) if isinstance(answer, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) else "the engine can't render this conversation"
