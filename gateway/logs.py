"""Log lines: one JSON object or one text line each, to stderr. Never a key, a prompt or an answer."""

from __future__ import annotations

import json
import logging
import sys
import time

log = logging.getLogger("gateway")


class JsonLines(logging.Formatter):
    """`{"at": …, "level": …, "message": …, …fields}`; fields are given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"}
        line |= {"level": record.levelname.lower(), "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.levelname.lower():7} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{text} {fields}" if fields else text


def set_up(form: str = "text", level: str = "info") -> None:
    """`form` is `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    log.handlers[:] = [handler]
    log.setLevel(level.upper())
    log.propagate = False
