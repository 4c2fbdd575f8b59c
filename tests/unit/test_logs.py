"""Lines of the log: one each, and what every call tells reads as it would by way of `logging`."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from gateway.logs import JsonLines, Lines, TextLines, log, set_up, tell

FIELDS: list[dict[str, object]] = [
    {},
    {"call": "c1", "waited_ms": 0, "flags": ["a", "b"], "ok": True},
    {"text": "two\nlines"},
    {"lone": "\ud800"},
    {"message": "another"},
]
FORMS = {"json": JsonLines, "text": TextLines}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


def set_up_on(stream: io.StringIO, form: str, level: str = "info") -> None:
    set_up(form, level)
    (handler,) = log.handlers
    assert isinstance(handler, Lines)
    handler.setStream(stream)


@pytest.mark.parametrize("fields", FIELDS, ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_a_line_past_logging_is_the_line_of_logging(form: str, fields: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0625)
    written = io.StringIO()
    set_up_on(written, form)
    log.info("settled", extra={"fields": fields})
    by_logging = written.getvalue()
    tell("settled", fields)
    assert written.getvalue() == by_logging * 2
    assert by_logging.count("\n") == 1


def test_a_json_line_says_when_in_utc_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0625)
    written = io.StringIO()
    set_up_on(written, "json")
    tell("settled", {"call": "c1"})
    assert json.loads(written.getvalue()) == {"at": "2027-01-15T08:00:00.062Z", "level": "info", "message": "settled", "call": "c1"}


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_stands_behind_its_message(form: str) -> None:
    written = io.StringIO()
    set_up_on(written, form)
    try:
        raise ValueError("no such thing")
    except ValueError as error:
        log.error("failed", exc_info=error, extra={"fields": {"call": "c1"}})
    line = written.getvalue()
    if form == "json":
        told = json.loads(line)
        assert (told["level"], told["message"], told["call"]) == ("error", "failed", "c1")
        assert told["exception"].endswith("ValueError: no such thing")
    else:
        assert re.fullmatch(r"\d\d:\d\d:\d\d error   failed\nTraceback .*ValueError: no such thing call=c1\n", line, re.DOTALL)


def test_nothing_is_written_below_the_level() -> None:
    written = io.StringIO()
    set_up_on(written, "json", "warning")
    tell("settled", {"call": "c1"})
    assert not written.getvalue()


def test_whoever_else_listens_gets_a_record(caplog: pytest.LogCaptureFixture) -> None:
    written = io.StringIO()
    set_up_on(written, "json")
    log.addHandler(caplog.handler)
    tell("settled", {"call": "c1"})
    assert [(record.getMessage(), getattr(record, "fields", None)) for record in caplog.records] == [("settled", {"call": "c1"})]
    assert json.loads(written.getvalue())["call"] == "c1"


def test_a_line_that_cannot_be_written_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(logging, "raiseExceptions", False)
    set_up_on(Broken(), "json")
    tell("settled", {"call": "c1"})


