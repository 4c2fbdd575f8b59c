"""Log lines: one JSON object or one text line each, to stderr. Never a key, a prompt or an answer."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache

import orjson

log = logging.getLogger("gateway")


@lru_cache(maxsize=2)
def _second(at_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))


class JsonLines(logging.Formatter):
    """`{"at": …, "level": …, "message": …, …fields}`; fields are given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"at": f"{_second(int(record.created))}.{int(record.msecs):03d}Z"}
        line |= {"level": record.levelname.lower(), "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # text that is no Unicode
            return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_plain(value)}" for name, value in getattr(record, "fields", {}).items())
        text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.levelname.lower():7} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{text} {fields}" if fields else text


def _plain(value: object) -> str:
    """On one line, whatever it holds."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def set_up(form: str = "text", level: str = "info") -> None:
    """`form` is `text` or `json`. A level that is none is as good as `info`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    log.handlers[:] = [handler]
    log.setLevel(logging.getLevelNamesMapping().get(level.upper(), logging.INFO))
    log.propagate = False
