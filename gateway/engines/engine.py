"""What the gateway must know of a model server: facts only, one file a server. `ENGINES` in the package maps a kind to its facts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Facts about one kind of model server."""

    kind: str
    """`llama.cpp`, `generic`: the word in gateway.toml."""
    paths: dict[str, str]
    """Dialect name -> path on the engine. What is not here is not forwarded."""
    health_path: str
    models_path: str
    cap_names: dict[str, str]
    """Dialect name -> the one output-cap field that this engine honours there; empty where nothing is generated."""
    strip_fields: frozenset[str]
    """Body fields removed before forwarding."""
    pin_fields: dict[str, str]
    """Body fields always written, as JSON text."""
    asks_usage: bool
    """False where the engine reports unasked in streams (llama.cpp's timings): then `stream_options.include_usage` is not forced."""
    counter: str
    """How its own tokenizer is asked: `llama.cpp` or `` where there is none."""
    cancels_whole: bool
    """A call that does not stream stops when its client leaves."""
    request_id_field: str
    """Body field for our call id where the engine takes one (SGLang's `rid`), else ``."""
    pool_idle_s: float
    """Longest that a pooled connection may lie idle before it is thrown away."""
    metrics_path: str
    minimum_output: int
    """Smallest output cap that the engine honours exactly (llama.cpp makes one token for 0)."""
    utilities: dict[str, str] = field(default_factory=dict)
    """Helpers that do no model work (`tokenize`, `detokenize`, `anthropic.count_tokens`) -> path on the engine."""
    salt_field: str = ""
    """Body field that keeps one caller's prompt cache from another's, where the engine has one."""
