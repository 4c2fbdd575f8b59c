"""What a probe found, as a table for gateway.toml with what else is worth knowing in comments: the whole output is TOML and can be kept as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.cli.words import printable

if TYPE_CHECKING:
    from gateway.upstream.probe import Probed

MODELS_MAX: Final = 200
"""Some servers list every model that they could load."""
STREAMS: Final = {
    "unasked": "report usage unasked",
    "asked": "report usage when asked, and are asked",
    "never": "never report usage: what they deliver is counted here",
    "": "whether they report usage is not known; `--call` tries it",
}
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the person said about the table."""

    name: str
    address: str
    models: Sequence[str] = ()
    credential_env: str = ""
    ca_file: str = ""
    health_path: str = ""


def models_of(wanted: Wanted, probed: Probed) -> list[str]:
    """By their own names, which agents use too."""
    return list(wanted.models or [name for name in probed.identity.models if name.isprintable()])[:MODELS_MAX]


def name_of(wanted: Wanted, probed: Probed) -> str:
    return wanted.name or re.sub(r"[^a-z0-9]+", "-", probed.recognised.product.kind)


def health_line(wanted: Wanted, probed: Probed) -> str:
    """Empty where the path that was asked for answers well."""
    answers = [f"{path} {_answer(probed, path)}" for path in probed.health]
    if not wanted.health_path or probed.health_path == wanted.health_path:
        return ""
    return "; ".join([answers[0], answers[-1] if probed.health_path else "no other answers well either"])


def toml(wanted: Wanted, probed: Probed) -> str:
    return "\n".join([*(f"# {printable(line)}" for line in facts(wanted, probed)), *_table(wanted, probed)]) + "\n"


def facts(wanted: Wanted, probed: Probed) -> Iterator[str]:
    found, engine = probed.recognised, probed.engine
    yield f"{found.product.name}{f' {found.version}' if found.version else ''} at {wanted.address} ({found.evidence})"
    yield f"context: {probed.context_tokens or 'not told; set context_tokens in the policy'}"
    if line := health_line(wanted, probed):
        yield f"health: {line}"
    else:
        yield f"health: {f'{probed.health_path} answers 200' if probed.health_path else 'no path that is known answers well; set health_path'}"
    yield f"tokenizer: {_tokenizer(probed)}"
    counts = ", ".join(sorted(engine.counts))
    yield f'exact counts (counter = "engine"): {counts or "none; use a tiktoken counter, or bytes with overhead_tokens"}'
    yield f"prompt cache: {engine.cache_sharing}"
    yield f"chat streams {STREAMS[probed.streams]}{' (tried)' if probed.tried else ''}"
    if probed.slots is None:
        yield "slots: not told: how many calls may be sent at once is yours to say"
    if len(probed.identity.models) > MODELS_MAX and not wanted.models:
        yield f"models: the first {MODELS_MAX} of {len(probed.identity.models)}; name yours with --model"


def _tokenizer(probed: Probed) -> str:
    of_chat = probed.recognised.product.of_chat
    parts = [probed.tokenizer or "none found"]
    if of_chat:
        parts.append(f"{of_chat} takes conversations" if probed.counts_chat else f"{of_chat} takes no conversation here: chat can't be counted by this engine")
    if probed.counts_messages:
        parts.append("/v1/messages/count_tokens counts Messages")
    return "; ".join(parts)


def _table(wanted: Wanted, probed: Probed) -> Iterator[str]:
    name = _key(name_of(wanted, probed))
    yield f"[upstreams.{name}]"
    yield f"address = {_text(wanted.address)}"
    yield f"engine = {_text(probed.recognised.product.kind)}"
    yield f"slots = {probed.slots or 1}"
    if wanted.credential_env:
        yield f"credential_env = {_text(wanted.credential_env)}"
    if wanted.ca_file:
        yield f"ca_file = {_text(wanted.ca_file)}"
    if probed.health_path not in ("", probed.engine.health_path):
        yield f"health_path = {_text(probed.health_path)}"
    yield f"[upstreams.{name}.models]"
    for model in models_of(wanted, probed):
        yield f"{_key(model)} = {_text(model)}"


def _answer(probed: Probed, path: str) -> str:
    said = probed.health[path]
    if said.failure is not None:
        return f"does not answer ({said.failure.kind})"
    if 300 <= said.status < 400:
        return f"answers {said.status}, a redirect, which is not followed"
    return f"answers {said.status}{'' if said.good or said.status != 200 else ' with an error'}"


def _key(word: str) -> str:
    return word if _BARE.fullmatch(word) else _text(word)


def _text(word: str) -> str:
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")
