"""Who the engine says it is: the models that it lists, held against those declared, and a fingerprint for the record of a run.

A fingerprint holds names, sizes and digests only: a model's path and a template's text stay on the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from gateway.upstream.forward import Upstream

PROPERTIES_PATH: Final = "/props"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    models: tuple[str, ...]
    """Every name under which the engine lists a model; empty where it lists none."""
    fingerprint: Mapping[str, str | int] = field(default_factory=dict)
    """What is known of: model, context_tokens, slots, build, template_sha256, model_sha256 (of what the engine tells of the weights)."""

    @property
    def context_tokens(self) -> int | None:
        found = self.fingerprint.get("context_tokens")
        return found if isinstance(found, int) else None


async def identify(upstream: Upstream) -> Identity:
    """Raises EngineFailure where the engine does not answer."""
    status, listed = await upstream.get_json(upstream.engine.models_path)
    models = listed if status == 200 else None
    properties: object = None
    if upstream.engine.counter == "llama.cpp":
        status, value = await upstream.get_json(PROPERTIES_PATH)
        properties = value if status == 200 else None
    return read_identity(models, properties)


def missing_models(declared: Iterable[str], identity: Identity) -> tuple[str, ...]:
    """Declared names that the engine does not list. Empty where it lists none at all: then nothing can be said."""
    return tuple(name for name in declared if name not in identity.models) if identity.models else ()


def read_identity(listed: object, properties: object) -> Identity:
    """From a model list and, of llama.cpp, its properties. Takes any JSON."""
    entries = [entry for entry in _list(_of(listed, "data")) if isinstance(_of(entry, "id"), str)]
    names = dict.fromkeys(name for entry in entries for name in (_of(entry, "id"), *_list(_of(entry, "aliases"))) if isinstance(name, str))
    meta = _of(entries[0], "meta") if entries else None
    template = _of(properties, "chat_template")
    found: dict[str, object] = {
        "model": _of(properties, "model_alias") or (_of(entries[0], "id") if entries else None),
        "context_tokens": _of(_of(properties, "default_generation_settings"), "n_ctx") or _of(meta, "n_ctx") or _first(entries, "max_model_len"),
        "slots": _of(properties, "total_slots"),
        "build": _of(properties, "build_info"),
        "template_sha256": hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest() if isinstance(template, str) and template else None,
        "model_sha256": _weights_digest(meta, properties),
    }
    return Identity(models=tuple(names), fingerprint={name: value for name, value in found.items() if isinstance(value, str | int) and value != ""})


def _weights_digest(meta: object, properties: object) -> str | None:
    """Of sizes and kind, not of the weights themselves, which no engine tells: another model gives another digest, the same name or not."""
    if not isinstance(meta, Mapping):
        return None
    told = {name: value for name, value in meta.items() if name != "n_ctx"} | {"ftype": _of(properties, "model_ftype")}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _of(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _first(entries: list[object], name: str) -> object:
    return _of(entries[0], name) if entries else None
