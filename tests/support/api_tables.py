"""The tables of docs/apis.md, made from the code: `python -m tests.support.api_tables` writes them anew between their marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gateway.dialects import ALSO, DIALECTS, FAMILIES, UTILITIES
from gateway.engines import ENGINES
from gateway.engines.engine import Engine

PAGE: Final = Path(__file__).parents[2] / "docs" / "apis.md"
NAMES: Final = {"llama.cpp": "llama.cpp", "vllm": "vLLM", "sglang": "SGLang", "ollama": "Ollama", "generic": "Generic"}


def render(page: str) -> str:
    """The page with its tables made anew. Raises KeyError for a mark of a table that there is none of."""
    found = {"formats": formats(), "engines": engines()}
    pattern = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda mark: mark[1] + found[mark[2]] + mark[3], page)


def formats() -> str:
    """Which engine serves which format, at which path, and under which name the output cap is written there."""
    head = ["format", "agents call", *NAMES.values()]
    rows = [[f"`{name}`", _calls(name), *(_served(ENGINES[kind], name) for kind in NAMES)] for name in (*DIALECTS, *UTILITIES)]
    return _table([head, *rows])


def engines() -> str:
    return "\n".join(_section(ENGINES[kind], name) for kind, name in NAMES.items())


def _section(engine: Engine, name: str) -> str:
    facts = [
        ("`engine =`", f"`{engine.kind}`"),
        ("health path", f"`{engine.health_path}`"),
        ("list of models", f"`{engine.models_path}`"),
        ("tokenizer", _tokenizer(engine)),
        ('exact with `counter = "engine"`', _listed(engine.counts) or "none: such a policy is refused"),
        ("usage in streams", "reported unasked, never asked for" if not engine.asks_usage else "asked for (`include_usage`) in chat and completions"),
        ("answers name the model that made them", _listed(engine.names_model) or "no, or it is not known: the name is not held against the declared one"),
        ("asked for its fingerprint", _listed((engine.models_path, *engine.identity_paths))),
        ("prompt cache", _cache(engine)),
        ("call id", "`X-Request-Id`" + (f", and `{engine.request_id_field}` in the body" if engine.request_id_field else "")),
        ("when a client leaves", engine.stops),
        ("seen to have stopped", f"asked at `{engine.work_path}`" if engine.work_path else "can't be asked"),
        ("never forwarded, unless the policy allows it", _listed(engine.strip_fields)),
        ("always written", _listed(engine.pin_fields) or "nothing but the cap, the model's name and what stands above"),
    ]
    lines = [f"### {name}", "", _table([["", ""], *([fact, told] for fact, told in facts)]), "Not believed:", ""]
    return "\n".join([*lines, *(f"* {text}" for text in engine.distrust), ""])


def _calls(name: str) -> str:
    paths = [f"`{method} {path}`" for table in (FAMILIES, ALSO) for (method, path), api in table.items() if api == name]
    return ", ".join(paths)


def _served(engine: Engine, name: str) -> str:
    path = engine.paths.get(name) or engine.utilities.get(name)
    if path is None:
        return "–"
    cap = engine.cap_names.get(name, "")
    return f"`{path}`" + (f" (`{cap}`)" if cap else "")


def _tokenizer(engine: Engine) -> str:
    match engine.counter:
        case "llama.cpp":
            return "`/apply-template`, `/tokenize`, `/v1/responses/input_tokens`, `/v1/messages/count_tokens`"
        case "tokenize":
            return "`/tokenize` with messages and tools, `/v1/messages/count_tokens`"
    return "none that is asked"


def _cache(engine: Engine) -> str:
    if not engine.salt_field:
        return "can't be kept apart between campaigns or runs"
    salted = [name for name in engine.paths if engine.salts(name)]
    return f"kept apart by `{engine.salt_field}` in {_listed(salted)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _table(rows: list[list[str]]) -> str:
    return "".join(_lines(rows))


def _lines(rows: list[list[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |\n"
        if number == 0:
            yield "|" + "---|" * len(row) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
