"""Who the engine says it is: the models that it lists, held against those declared, and a fingerprint for the record of a run.

A fingerprint holds names, sizes, settings and digests only: a model's path and a template's text stay on the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeGuard

import orjson

from gateway.upstream.forward import Upstream

SAMPLING: Final = (
    "temperature", "dynatemp_range", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "dry_multiplier", "mirostat", "seed",
)  # fmt: skip
"""Defaults of sampling that make a run another run."""
TEXT_MAX: Final = 2_000
DIGESTS_MAX: Final = 20
"""Models of one engine whose digests are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    models: tuple[str, ...]
    """Every name under which the engine lists a model; empty where it lists none."""
    alike: tuple[frozenset[str], ...] = ()
    """Names of these that it says are one model."""
    fingerprint: Mapping[str, str | int] = field(default_factory=dict)
    """What is known of: model, context_tokens, slots, build, template_sha256, model_sha256 (of what the engine tells of the weights), digests (of the weights
    themselves, by name) and sampling (its defaults), the last two as JSON."""

    @property
    def context_tokens(self) -> int | None:
        found = self.fingerprint.get("context_tokens")
        return found if isinstance(found, int) else None

    def same(self, one: str, other: str) -> bool:
        return one == other or any(one in names and other in names for names in self.alike)


async def identify(upstream: Upstream, declared: Iterable[str] = ()) -> Identity:
    """Raises EngineFailure where the engine does not answer. `declared`: its own names of the models that it is to serve."""
    status, listed = await upstream.get_json(upstream.engine.models_path)
    said: dict[str, object] = {}
    for path in upstream.engine.identity_paths:
        answered, value = await upstream.get_json(path)
        said[path] = value if answered == 200 else None
    return read_identity(listed if status == 200 else None, said, declared)


def missing_models(declared: Iterable[str], identity: Identity) -> tuple[str, ...]:
    """Declared names that the engine does not list. Empty where it lists none at all: then nothing can be said."""
    return tuple(name for name in declared if name not in identity.models) if identity.models else ()


def read_identity(listed: object, said: Mapping[str, object], declared: Iterable[str] = ()) -> Identity:
    """From a model list and what its own paths said. Takes any JSON."""
    entries = [entry for entry in _list(_of(listed, "data")) if isinstance(_of(entry, "id"), str)]
    names = [_names(entry) for entry in entries]
    properties, info = said.get("/props"), said.get("/get_model_info")
    settings = _of(properties, "default_generation_settings")
    meta = _of(entries[0], "meta") if entries else None
    found: dict[str, object] = {
        "model": _of(properties, "model_alias") or (_of(entries[0], "id") if entries else None),
        "context_tokens": _of(settings, "n_ctx") or _of(meta, "n_ctx") or _first(entries, "max_model_len"),
        "slots": _of(properties, "total_slots"),
        "build": _of(properties, "build_info") or _of(said.get("/version"), "version") or _of(said.get("/api/version"), "version"),
        "template_sha256": _sha256(_of(properties, "chat_template")),
        "model_sha256": _weights_digest(meta, properties) or _sha256(_of(info, "weight_version")),
        "digests": _digests(said.get("/api/tags"), declared),
        "sampling": _sampling(_of(settings, "params")),
    }
    return Identity(
        models=tuple(dict.fromkeys(name for each in names for name in each)),
        alike=_alike(entries, names),
        fingerprint={name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in found.items() if _fits(value)},
    )


def _fits(value: object) -> TypeGuard[str | int]:
    """In an entry of the ledger."""
    return value != "" if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _names(entry: object) -> list[str]:
    return [name for name in (_of(entry, "id"), *_list(_of(entry, "aliases"))) if isinstance(name, str)]


def _alike(entries: list[object], names: list[list[str]]) -> tuple[frozenset[str], ...]:
    """Names of one entry, and entries with one root (vLLM's served names)."""
    roots: dict[str, set[str]] = {}
    for entry, own in zip(entries, names, strict=True):
        root = _of(entry, "root")
        if isinstance(root, str) and _of(entry, "parent") is None:
            roots.setdefault(root, set()).update(own)
    return tuple(frozenset(group) for group in (*map(set, names), *roots.values()) if len(group) > 1)


def _weights_digest(meta: object, properties: object) -> str | None:
    """Of sizes and kind, not of the weights themselves, which few engines tell: another model gives another digest, the same name or not."""
    if not isinstance(meta, Mapping):
        return None
    told = {name: value for name, value in meta.items() if name != "n_ctx"} | {"ftype": _of(properties, "model_ftype")}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _digests(tags: object, declared: Iterable[str]) -> str | None:
    """Ollama's, of the weights. A name without a tag is its `latest`."""
    told = {_of(entry, "name"): _of(entry, "digest") for entry in _list(_of(tags, "models")) if isinstance(_of(entry, "name"), str)}
    found = {name: told.get(name) or told.get(f"{name}:latest") for name in sorted(declared)[:DIGESTS_MAX]}
    known = {name: digest for name, digest in found.items() if isinstance(digest, str)}
    return orjson.dumps(known).decode() if known else None


def _sampling(params: object) -> str | None:
    told = {name: params[name] for name in SAMPLING if isinstance(params.get(name), int | float)} if isinstance(params, Mapping) else {}
    return orjson.dumps(told).decode() if told else None


def _sha256(text: object) -> str | None:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if isinstance(text, str) and text else None


def _of(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _first(entries: list[object], name: str) -> object:
    return _of(entries[0], name) if entries else None
