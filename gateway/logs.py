"""Log lines: one JSON object or one text line each, to stderr. Never a key, a prompt or an answer."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache
from typing import TextIO

import orjson

log = logging.getLogger("gateway")


@lru_cache(maxsize=2)
def _second(at_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))


@lru_cache(maxsize=2)
def _local_second(at_s: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


class Form(logging.Formatter):
    """What a line looks like; fields are given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        exception = self.formatException(record.exc_info) if record.exc_info else ""
        return self.line(record.created, record.levelname.lower(), record.getMessage(), getattr(record, "fields", {}), exception)

    def line(self, at: float, level: str, message: str, fields: dict[str, object], exception: str = "") -> str:
        raise NotImplementedError


class JsonLines(Form):
    """`{"at": …, "level": …, "message": …, …fields}`."""

    def line(self, at: float, level: str, message: str, fields: dict[str, object], exception: str = "") -> str:
        second = int(at)
        line: dict[str, object] = {"at": f"{_second(second)}.{int((at - second) * 1000):03d}Z", "level": level, "message": message, **fields}
        if exception:
            line["exception"] = exception
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # text that is no Unicode
            return json.dumps(line, default=str)


class TextLines(Form):
    def line(self, at: float, level: str, message: str, fields: dict[str, object], exception: str = "") -> str:
        told = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
        text = f"{_local_second(int(at))} {level:7} {message}"
        if exception:
            text += "\n" + exception
        return f"{text} {told}" if told else text


def _plain(value: object) -> str:
    """On one line, whatever it holds."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


class Lines(logging.StreamHandler[TextIO]):
    def __init__(self, form: Form) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(form)
        self._form = form

    def put(self, message: str, fields: dict[str, object]) -> None:
        """The line of `log.info`, without a record."""
        self.acquire()
        try:
            self.stream.write(self._form.line(time.time(), "info", message, fields) + self.terminator)
            self.stream.flush()
        except Exception:
            self.handleError(log.makeRecord(log.name, logging.INFO, __file__, 0, message, (), None, extra={"fields": fields}))
        finally:
            self.release()


def tell(message: str, fields: dict[str, object]) -> None:
    """`log.info` for what every call says: `logging` takes longer to find out who hears of a line than the line takes. Where another listens, it is asked."""
    heard = log.handlers[0] if len(log.handlers) == 1 and not log.propagate else None
    if not isinstance(heard, Lines):
        log.info(message, extra={"fields": fields})
    elif log.isEnabledFor(logging.INFO):
        heard.put(message, fields)


def set_up(form: str = "text", level: str = "info") -> None:
    """`form` is `text` or `json`. A level that is none is as good as `info`."""
    log.handlers[:] = [Lines(JsonLines() if form == "json" else TextLines())]
    log.setLevel(logging.getLevelNamesMapping().get(level.upper(), logging.INFO))
    log.propagate = False
