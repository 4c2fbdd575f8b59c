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
    """How its own tokenizer is asked: `llama.cpp`, `tokenize` (vLLM's and SGLang's way), or `` where there is none that is asked."""
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
    salted: frozenset[str] = frozenset()
    """Dialects in which it reads that field."""
    work_path: str = ""
    """Where it tells what it works on at this moment, so that a cancelled call can be seen to have stopped; `` where it has no way."""
    work_form: str = ""
    """`slots`: a list of slots, as JSON; `gauges`: Prometheus text."""
    work_gauges: tuple[str, ...] = ()
    """The gauges that together count the requests in hand."""
    work_lags: bool = False
    """They may still tell of work that has ended: then no work confirms, and more says nothing."""
    counts: frozenset[str] = frozenset()
    """Dialects whose prompts its own tokenizer counts as it will report them."""
    reports_first: frozenset[str] = frozenset()
    """Dialects in which an answer in one piece reports the first of several choices or prompts alone: such calls are refused unless the policy allows them."""
    stops: str = ""
    """How its work ends when a client leaves. For people."""
    identity_paths: tuple[str, ...] = ()
    """What it is asked beside its list of models, for the fingerprint of a run. None of them generates anything."""
    names_model: frozenset[str] = frozenset()
    """Dialects whose answers name the model that made them; in the others they say after it whatever was asked for, or it is not known."""
    distrust: tuple[str, ...] = ()
    """What its reports and its answers are not to be believed in, and what is done about it. For people."""

    def salts(self, dialect: str) -> bool:
        return dialect in self.salted

    @property
    def cache_sharing(self) -> str:
        """Whose prompt caches can be kept apart, as a line for people: at start, from a probe, from the doctor."""
        shared = [dialect for dialect in self.paths if dialect not in self.salted and self.cap_names.get(dialect)]
        if not self.salted:
            return "it can't keep prompt caches apart: whoever may use it can tell by time whether a beginning of a prompt was sent before, by any run"
        if shared:
            return f"it keeps prompt caches apart (cache_sharing of the policy), but not in {', '.join(shared)}"
        return "it keeps prompt caches apart, as cache_sharing of the policy says"
