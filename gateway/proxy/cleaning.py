"""An engine's error text, cleaned of what an agent must not learn: addresses, paths, traces. Clean text passes unchanged."""

from __future__ import annotations

import re

INTERNAL = re.compile(
    rb"(?P<trace>Traceback \(most recent call last\).*)"
    rb"|(?:https?|unix|tcp|file)://[^\s\"'<>\\)\]]+"
    rb"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
    rb"|\[[0-9a-fA-F:]*::[0-9a-fA-F:]*\](?::\d{1,5})?"
    rb"|\blocalhost(?::\d{1,5})?\b"
    rb"|\b[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+:\d{2,5}\b"
    rb"|(?<![\w.])(?:/(?:home|root|usr|opt|var|etc|srv|mnt|data|models?|tmp|app|workspace|proc|run)/[^\s\"'<>:,)\\]*)",
    re.DOTALL,
)
TRACE_FIELD = re.compile(rb"\"(?:trace|traceback|stack|stacktrace)\"\s*:\s*\"(?:[^\"\\]|\\.)*\"")
REPLACEMENT = b"[internal]"


def clean(text: bytes) -> bytes:
    """Addresses, host names with ports, file paths and traces replaced; JSON stays JSON."""
    text = TRACE_FIELD.sub(lambda m: m.group().split(b":", 1)[0] + b':"[internal]"', text)
    return INTERNAL.sub(_replace, text)


def _replace(match: re.Match[bytes]) -> bytes:
    trace: bytes | None = match.group("trace")
    if trace is None:
        return REPLACEMENT
    quote = trace.find(b'"')
    return REPLACEMENT + (trace[quote:] if quote >= 0 else b"")
