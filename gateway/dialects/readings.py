"""What a reader says of an answer, made in one place: of one that was refused, and of one that was read, well or not."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.accounting.usage import ErrorClass, MeterSource, Reading, Usage
from gateway.dialects.answer_errors import EngineError, class_of_status
from gateway.dialects.openai_answer import Delivered
from gateway.dialects.usage_report import Report


def source_of(report: Report | None, *, final: bool) -> MeterSource:
    """`final`: the report is the engine's last word, not a snapshot."""
    if report is None or not report.whole:
        return MeterSource.MISSING
    return MeterSource.REPORTED if final else MeterSource.ESTIMATED


def error_class_of(error: EngineError | None, *, body: bool, anything: bool) -> ErrorClass:
    """Of an answer with a good status that did not come to a good end. `body`: it came in one piece; `anything`: something came at all."""
    if error is not None:
        return ErrorClass.ERROR_IN_200 if body else ErrorClass.MID_STREAM_ERROR
    return ErrorClass.TRUNCATED if anything else ErrorClass.EMPTY_STREAM


def read(
    delivered: Delivered,
    report: Report | None,
    source: MeterSource,
    *,
    status: int,
    error_class: ErrorClass | None,
    error: EngineError | None,
    error_first: bool,
    running: int | None,
    anomalies: Iterable[str],
    open_block: int | None = None,
) -> Reading:
    """`error_class`: None where it came to its end. `running`: the engine's last running total."""
    reasons = tuple(delivered.finish[index] for index in sorted(delivered.finish))
    return Reading(
        usage=Usage(
            input_tokens=report.input_tokens if report else None,
            output_tokens=report.output_tokens if report else None,
            cached_tokens=report.cached_tokens if report else None,
            cache_write_tokens=report.cache_write_tokens if report else None,
            reasoning_tokens=report.reasoning_tokens if report else None,
            tool_calls=len(delivered.calls),
        ),
        source=source,
        status=status,
        completed=error_class is None,
        error_class=error_class,
        error_code=error.code if error is not None else None,
        error_first=error_first,
        finish_reason=reasons[0] if reasons else None,
        finish_reasons=reasons,
        response_id=delivered.response_id,
        model=delivered.model,
        tool_call_ids=tuple(delivered.call_ids),
        content_seen=delivered.anything,
        running_output=running,
        open_block=open_block,
        text_bytes=delivered.text_bytes,
        reasoning_bytes=delivered.reasoning_bytes,
        tool_argument_bytes=delivered.tool_argument_bytes,
        anomalies=tuple(anomalies),
    )


def refused(status: int, error: EngineError | None, anomalies: Iterable[str]) -> Reading:
    """The engine did not begin."""
    return Reading(
        usage=Usage(tool_calls=0),
        source=MeterSource.MISSING,
        status=status,
        completed=False,
        error_class=class_of_status(status, error),
        error_code=error.code if error is not None else None,
        error_first=True,
        anomalies=tuple(anomalies),
    )
