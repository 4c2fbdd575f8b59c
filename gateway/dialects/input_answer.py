"""Reads the answers of endpoints that only take input (embeddings, rerank): one body, in which nothing was generated.

Output is 0 by nature, never unknown. Input 0 is impossible, so it is missing. Where only a total is given, it is the input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gateway.accounting.usage import ErrorClass, MeterSource, Reading, Usage
from gateway.dialects.answer_errors import EngineError, class_of_status, error_of
from gateway.dialects.json_text import parse
from gateway.dialects.usage_report import NotBelieved, inner, number
from gateway.metering.framing import Frame, FrameKind
from gateway.metering.reader import Mark

_PLACES: Final = (
    *(("usage", name) for name in ("prompt_tokens", "input_tokens", "total_tokens")),
    *(("meta", unit, name) for unit in ("tokens", "billed_units") for name in ("input_tokens", "total_tokens")),
    ("meta", "total_tokens"),
)
_TOP: Final = ("prompt_eval_count",)
"""Where servers put how much was read, best first."""


class InputReader:
    """One answer. `lists`: the fields of which one must be there for an object to be an answer; a bare list is one too."""

    def __init__(self, lists: Collection[str]) -> None:
        self._lists = lists
        self._seen = False
        self._whole = False
        self._error: EngineError | None = None
        self._input: int | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._anomalies: dict[str, None] = {}

    def see(self, frame: Frame) -> Mark:
        """No server streams here; what comes as events all the same is read as bodies."""
        if frame.kind is FrameKind.COMMENT or not frame.data or frame.data.strip() == b"[DONE]":
            return Mark.PASS
        self.see_body(frame.data)
        return Mark.TERMINAL | Mark.ERROR if self._error is not None else Mark.TERMINAL

    def see_body(self, body: bytes) -> None:
        self._seen = True
        try:
            answer = parse(body)
        except ValueError:
            self._note("bad_json_body")
            return
        if isinstance(answer, list):
            self._whole = True
            return
        self._error = error_of(answer)
        if self._error is None and (not isinstance(answer, dict) or not any(isinstance(answer.get(name), list) for name in self._lists)):
            self._note("body_without_results")
            self._error = EngineError()
        if self._error is None and isinstance(answer, dict):
            self._whole = True
            self._take(answer)

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._id, self._model = (found if isinstance(found := answer.get(name), str) and found else None for name in ("id", "model"))
        try:
            self._input = self._counted(answer) or None
        except NotBelieved as error:
            self._note(str(error))
        if self._input is None and inner(answer.get("usage")):
            self._note("usage_all_zero")

    @staticmethod
    def _counted(answer: Mapping[str, Any]) -> int | None:
        for place in _PLACES:
            found: object = answer
            for name in place:
                found = inner(found).get(name)
            if (counted := number(found, place[-1])) is not None and counted > 0:
                return counted
        return next((counted for name in _TOP if (counted := number(answer.get(name), name)) is not None), None)

    def reading(self, status: int, truncated: bool) -> Reading:
        refused = bool(status) and not 200 <= status < 300
        completed = self._whole and not refused and not truncated
        reported = completed and self._input is not None
        if self._whole and not refused and self._input is None:
            self._note("usage_missing")
        return Reading(
            usage=Usage(input_tokens=self._input if completed else None, output_tokens=0 if completed else None, tool_calls=0),
            source=MeterSource.REPORTED if reported else MeterSource.MISSING,
            status=status,
            completed=completed,
            error_class=None if completed else class_of_status(status, self._error) if refused else self._class(),
            error_code=self._error.code if self._error is not None else None,
            error_first=refused or self._error is not None,
            response_id=self._id,
            model=self._model,
            anomalies=tuple(self._anomalies),
        )

    def _class(self) -> ErrorClass:
        if self._error is not None:
            return ErrorClass.ERROR_IN_200
        return ErrorClass.TRUNCATED if self._seen else ErrorClass.EMPTY_STREAM

    def running_output(self) -> int | None:
        return None

    def delivered_bytes(self) -> int:
        return 0

    def delivered_text(self) -> str:
        return ""

    def _note(self, anomaly: str) -> None:
        self._anomalies[anomaly] = None
