"""In which format an answer is worded before a dialect is known, or where there is none: by the path that was asked, and by nothing else.

The rule: the words are the same whatever was asked, and a path's form says nothing of what is declared: it follows from the fixed table of formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.dialects import DIALECTS, FAMILIES, UTILITIES
from gateway.dialects.anthropic_replies import reply as anthropic_reply
from gateway.dialects.dialect import Reply, Wording
from gateway.dialects.native_replies import reply as native_reply
from gateway.dialects.openai_replies import reply as openai_reply
from gateway.dialects.responses_replies import reply as responses_reply
from gateway.proxy.routing import plain_path

Worded = Callable[[Wording], Reply]


def _of_api(api: str) -> Worded:
    dialect = DIALECTS.get(UTILITIES[api].form if api in UTILITIES else api)
    if dialect is not None:
        return dialect.reply
    return native_reply if api == "ollama.tags" else openai_reply


_BY_API: Final[dict[str, Worded]] = {api: _of_api(api) for api in {*FAMILIES.values(), *DIALECTS}}
_BY_PATH: Final[dict[str, Worded]] = {path: _BY_API[api] for (_, path), api in FAMILIES.items()}
_BENEATH: Final[tuple[tuple[str, Worded], ...]] = (("/v1/messages/", anthropic_reply), ("/v1/responses/", responses_reply), ("/api/", native_reply))
"""Paths below these belong to the format too."""


def worded_for_path(target: str, wording: Wording) -> Reply:
    """`target`: of the request, as it came."""
    path = plain_path(target) or ""
    form = _BY_PATH.get(path) or next((form for beginning, form in _BENEATH if path.startswith(beginning)), openai_reply)
    return form(wording)


def worded_for_api(api: str, wording: Wording) -> Reply:
    return _BY_API.get(api, openai_reply)(wording)
