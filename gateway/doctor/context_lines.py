"""Judges an engine's context size and its reported prompt against each policy's models and counters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.doctor.line import Line, fail, ok, warn
from gateway.doctor.seen import CounterKey, EngineSeen
from gateway.policy.declaration import ModelPolicy
from gateway.policy.loading import LoadedPolicy
from gateway.policy.resolve import call_caps
from gateway.settings.declaration import UpstreamSettings

ESTIMATE_OFF = 0.25
"""A vocabulary that is not the model's own may differ by so much before it is worth a word."""


def counters_of(settings: UpstreamSettings, policies: Iterable[LoadedPolicy]) -> list[CounterKey]:
    """Every counter with which a policy counts a model of this upstream."""
    found = [key_of(model) for loaded in policies for name, model in loaded.policy.models.items() if name in settings.models]
    return list(dict.fromkeys(found))


def key_of(model: ModelPolicy) -> CounterKey:
    return model.counter, model.overhead_tokens


def context_lines(name: str, settings: UpstreamSettings, seen: EngineSeen, policies: Iterable[LoadedPolicy]) -> Iterator[Line]:
    own = seen.probed.context_tokens if seen.probed is not None else None
    wanted = [one for loaded in policies for one in _wanted(loaded, settings)]
    if own is None:
        if any(loaded.policy.models[model].context_tokens is None for loaded in policies for model in loaded.policy.models if model in settings.models):
            yield warn("context", name, "it does not tell its context size", "set context_tokens of the model in the policy")
        else:
            yield ok("context", name, "it does not tell its context size; the policies do")
        return
    larger = [(what, tokens) for what, tokens in wanted if tokens > own]
    if larger:
        what, tokens = max(larger, key=lambda one: one[1])
        more = f" (and {len(larger) - 1} more)" if len(larger) > 1 else ""
        yield fail(
            "context",
            name,
            f"it takes {own} tokens a call, and {what} says {tokens}{more}",
            "start the engine with more (llama.cpp: --ctx-size is shared by its slots), or lower the policy's",
        )
    else:
        yield ok("context", name, f"it takes {own} tokens a call; no policy says more")


def _wanted(loaded: LoadedPolicy, settings: UpstreamSettings) -> Iterator[tuple[str, int]]:
    policy, file = loaded.policy, loaded.name
    for model, declared in policy.models.items():
        if model not in settings.models:
            continue
        if declared.context_tokens is not None:
            yield f'models."{model}".context_tokens of {file}', declared.context_tokens
        for lane in policy.lane_names:
            caps = call_caps(policy, lane, model)
            if caps.context_tokens is not None:
                yield f"{caps.context_limit} of {file}", caps.context_tokens
            if caps.prompt_tokens is not None:
                yield f"{caps.prompt_limit} of {file}", caps.prompt_tokens


def tokenizer_lines(name: str, seen: EngineSeen) -> Iterator[Line]:
    reading = seen.short.reading if seen.short is not None else None
    reported = reading.usage.input_tokens if reading is not None and seen.counts else None
    if reported is None:
        return
    for (word, _), count in seen.counts.items():
        yield _agreement(name, word, count, reported)


def _agreement(name: str, word: str, count: int | str, reported: int) -> Line:
    check = "tokenizer"
    if isinstance(count, str):
        return fail(check, name, f'counter = "{word}" gives no count: {count}', 'correct engine, or write counter = "tiktoken:o200k_base" in the policy')
    found = f'counter = "{word}" counts {count}, the engine reports {reported}'
    if word == "bytes":
        if count >= reported:
            return ok(check, name, f"{found}: a bound that holds")
        return fail(check, name, f"{found}: the bound does not hold", "raise overhead_tokens in the policy")
    if word == "engine":
        if count == reported:
            return ok(check, name, found)
        return warn(check, name, f"{found}: counts are estimates here", "leave room in prompt caps, or look for a proxy that changes requests")
    if abs(count - reported) <= ESTIMATE_OFF * reported:
        return ok(check, name, f"{found}: an estimate")
    return warn(
        check, name, f"{found}: a bad estimate", 'set overhead_tokens, choose the model\'s own vocabulary, or counter = "engine" where the engine can count'
    )
