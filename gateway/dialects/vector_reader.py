"""Reads bodies of vectors: Ollama's `/api/embed`, its older `/api/embeddings`, and llama.cpp's `/embedding`, of which the first alone says how much it read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.usage_report import NotBelieved, Report, inner, number
from gateway.metering.reader import Mark

_VECTORS: Final = ("embeddings", "embedding", "data")


class VectorReader(MarkedReader):
    """One answer."""

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        return Mark.PASS

    def body(self, answer: Any) -> bool:
        vectors = answer if isinstance(answer, list) else next((answer[name] for name in _VECTORS if isinstance(inner(answer).get(name), list)), None)
        if not isinstance(vectors, list):
            return False
        given: int | None = None
        if isinstance(answer, dict):
            self.delivered.head({**answer, "id": None})
            try:
                given = number(answer.get("prompt_eval_count"), "prompt_eval_count") or None
            except NotBelieved as error:
                self.note(str(error))
        self.report, self.final = Report(input_tokens=given, output_tokens=0), given is not None
        self.end()
        return True
