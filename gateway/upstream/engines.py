"""All engines of a gateway: the way to each, whether it gets calls, who it says it is, and the counter of each of its models.

An engine that comes back is asked again who it is, and its counters measure anew: it may be another build or another model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Final

from gateway.accounting.commands import Fingerprint
from gateway.engines import ENGINES
from gateway.errors import EngineFailure, NotFound
from gateway.logs import log
from gateway.settings.settings import Settings
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenizer import Counter
from gateway.upstream.circuit import Circuit, Standing
from gateway.upstream.forward import Upstream
from gateway.upstream.health import Health, HealthProbe, State
from gateway.upstream.identity import Identity, identify, missing_models
from gateway.upstream.watch import Timeouts

FALLBACK_ENCODING = "o200k_base"
"""Counts delivered text where the model's own counter can't be asked."""
LOOK_AGAIN_S: Final = 60.0
"""How often an engine is asked who it is while nothing else gives reason to: one that was restarted between two probes may be another."""


class Engines:
    """Inside a running loop. `start()`, and `close()` at the end."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """Raises ConfigurationError for an upstream that can't be used."""
        self._settings = settings
        self.upstreams = {name: _upstream(settings, name, environment) for name in settings.upstreams}
        self._circuits = {name: Circuit(declared.slots, now_ms, declared.circuit_failures) for name, declared in settings.upstreams.items()}
        self._told = dict.fromkeys(settings.upstreams, Standing.SERVES)
        self._probes = {
            name: HealthProbe(upstream, now_ms, path=settings.upstreams[name].health_path, on_change=self._on_change(name), on_answer=self._on_answer(name))
            for name, upstream in self.upstreams.items()
        }
        self._identities: dict[str, Identity] = {}
        self._named: dict[tuple[str, str], str] = {}
        """What an answer of an upstream said that it is, where it was asked for a model of ours."""
        self._encodings = Encodings()
        self._cache = RenderedCache()
        self._counters: dict[tuple[str, str, str, int | None, int | None], Counter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._cap_ignored: set[str] = set()
        self.fallback = self._encodings.get(FALLBACK_ENCODING)
        self.on_fingerprint: Callable[[str], None] = lambda _upstream: None
        """Called when an engine's fingerprint has changed."""
        self.on_slots: Callable[[str, int], None] = lambda _upstream, _slots: None
        """Called when an upstream may have another number of calls: 0 while it gets none."""

    async def start(self) -> None:
        """Asks each once; then looks after them until `close()`."""
        for name, upstream in self.upstreams.items():
            log.info("prompt caches", extra={"fields": {"upstream": name, "engine": upstream.engine.kind, "sharing": upstream.engine.cache_sharing}})
        await asyncio.gather(*(probe.probe() for probe in self._probes.values()))
        for probe in self._probes.values():
            self._spawn(probe.run())
        self._spawn(self._look_again())

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()))
        self._encodings.close()

    def counter(self, upstream: str, model: str, word: str, image_tokens_max: int | None = None, overhead_tokens: int | None = None) -> Counter:
        """Of one model on one upstream, as one policy declares it. Raises ConfigurationError where the engine can't be counted that way."""
        key = (upstream, model, word, image_tokens_max, overhead_tokens)
        found = self._counters.get(key)
        if found is None:
            way = self.upstreams[upstream]
            own_name = self._settings.upstreams[upstream].models.get(model, model)
            found = choose_counter(word, way.engine, way.post_json, self._encodings, self._cache, image_tokens_max, overhead_tokens, own_name)
            self._counters[key] = found
        return found

    def context(self, upstream: str) -> int | None:
        """Tokens of prompt and output together that the engine itself allows a call; None where it does not say."""
        identity = self._identities.get(upstream)
        return None if identity is None else identity.context_tokens

    # Whether it gets calls.

    def usable(self, upstream: str) -> bool:
        return self._circuits[upstream].slots > 0

    def slots(self, upstream: str) -> int:
        """How many calls it may have now."""
        return self._circuits[upstream].slots

    def standing(self, upstream: str) -> Standing:
        return self._circuits[upstream].standing

    def health(self, upstream: str) -> Health:
        return self._probes[upstream].health

    def reason(self, upstream: str) -> str:
        """Why it gets no calls, or what is wrong although it does. For people; without addresses."""
        standing, health = self.standing(upstream), self.health(upstream)
        if standing is Standing.DRAINED:
            return "drained: `gateway upstream resume` lets it have calls again"
        return self._circuits[upstream].reason or health.reason

    def unreachable(self, upstream: str) -> None:
        """A call found that it refuses connections."""
        self._circuits[upstream].refused()
        self._probes[upstream].refused()
        self._changed(upstream)

    def answered(self, upstream: str) -> None:
        """A call got the head of an answer that is no failure of the engine's: enough for one that is tried."""
        if self._circuits[upstream].standing is Standing.TRIED:
            self.went_well(upstream)

    def went_well(self, upstream: str) -> None:
        self._circuits[upstream].went_well()
        self._changed(upstream)

    def failed(self, upstream: str, run: str, what: str, *, connected: bool = True) -> None:
        """A call of that run failed for reasons of the engine's."""
        pause_ms = self._circuits[upstream].failed(run, what, connected=connected)
        self._changed(upstream)
        if pause_ms is not None:
            asyncio.get_running_loop().call_later(pause_ms / 1000, self._probes[upstream].look_soon)

    def drain(self, upstream: str, drained: bool) -> None:
        """Whether a person wants no calls there; what runs goes on. Not kept over a restart. Raises NotFound."""
        if upstream not in self._circuits:
            raise NotFound(f"there is no upstream {upstream!r}; there are: {', '.join(self._circuits)}")
        self._circuits[upstream].drained = drained
        self._changed(upstream)
        if not drained:
            self._spawn(self._identify(upstream))

    def not_ready(self, models: Iterable[str]) -> list[str]:
        """Of these models those that no upstream serves at this moment, each with the reasons."""
        found = []
        for model in models:
            serving = self._settings.serving(model)
            if serving and not any(map(self.usable, serving)):
                found.append(f"model {model}: {'; '.join(f'upstream {name}: {self.reason(name) or self.standing(name)}' for name in serving)}")
        return found

    def _on_answer(self, name: str) -> Callable[[Health], None]:
        def answered(health: Health) -> None:
            self._circuits[name].probed(health.usable)
            self._changed(name)

        return answered

    def _on_change(self, name: str) -> Callable[[Health], None]:
        def changed(health: Health) -> None:
            say = log.warning if health.reason else log.info
            say("upstream", extra={"fields": {"upstream": name, "health": str(health.state), "reason": health.reason}})
            if health.state is State.HEALTHY:
                self._spawn(self._identify(name))

        return changed

    def _changed(self, name: str) -> None:
        standing = self._circuits[name].standing
        if standing is not self._told[name]:
            self._told[name] = standing
            log.warning("an upstream stands otherwise", extra={"fields": {"upstream": name, "standing": str(standing), "reason": self.reason(name)}})
            self.on_slots(name, self._circuits[name].slots)

    # Who it says it is.

    def mismatch(self, upstream: str, model: str) -> str:
        """In which way an upstream does not seem to have a model that it is declared to serve. For people; empty where nothing speaks against it."""
        own, identity = self._own(upstream, model), self._identities.get(upstream)
        if identity is not None and missing_models([own], identity):
            return f"declared as {own}, and it lists {', '.join(identity.models[:5])}"
        named = self._named.get((upstream, model))
        return f"declared as {own}, and it answers as {named}" if named is not None else ""

    def mismatches(self, upstream: str) -> dict[str, str]:
        return {model: found for model in self._settings.upstreams[upstream].models if (found := self.mismatch(upstream, model))}

    def answers_as(self, upstream: str, model: str, named: str) -> bool:
        """The model that an answer names. True where that is another one than was declared."""
        own, identity = self._own(upstream, model), self._identities.get(upstream)
        if named == own or (identity is not None and identity.same(own, named)):
            self._named.pop((upstream, model), None)
            return False
        if self._named.get((upstream, model)) != named:
            self._named[(upstream, model)] = named[:200]
            log.warning("an engine answers as another model", extra={"fields": {"upstream": upstream, "model": model, "declared": own, "named": named[:200]}})
            self._spawn(self._identify(upstream, keep=True))
        return True

    def ran_past_its_ceiling(self, upstream: str) -> bool:
        """Marks the engine; True where it was not marked yet."""
        new = upstream not in self._cap_ignored
        self._cap_ignored.add(upstream)
        return new

    def cap_ignored(self, upstream: str) -> bool:
        """Since the start: what is asked of this engine is no promise of what it makes."""
        return upstream in self._cap_ignored

    def fingerprint(self, campaign: str, upstream: str, at_ms: int) -> Fingerprint | None:
        identity = self._identities.get(upstream)
        if identity is None:
            return None
        details = {**identity.fingerprint, "gateway_slots": self._settings.upstreams[upstream].slots}  # how many it gets at once, whatever it could do
        return Fingerprint(campaign=campaign, upstream=upstream, at_ms=at_ms, details=details)

    def fingerprints(self, campaign: str, at_ms: int) -> Sequence[Fingerprint]:
        """Of every engine that said who it is."""
        found = (self.fingerprint(campaign, name, at_ms) for name in self.upstreams)
        return [fingerprint for fingerprint in found if fingerprint is not None]

    def _own(self, upstream: str, model: str) -> str:
        return self._settings.upstreams[upstream].models.get(model, model)

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            for name, probe in self._probes.items():
                if probe.health.state is State.HEALTHY:
                    await self._identify(name, keep=True)

    async def _identify(self, name: str, *, keep: bool = False) -> None:
        """`keep`: it was there all the time, so what its answers named stands."""
        wanted = self._settings.upstreams[name].models
        try:
            found = await identify(self.upstreams[name], wanted.values())
        except EngineFailure as failure:
            log.warning("an engine does not say who it is", extra={"fields": {"upstream": name, "failure": failure.kind}})
            return
        before = self._identities.get(name)
        self._identities[name] = found
        changed = before is not None and before.fingerprint != found.fingerprint
        if not keep or changed:
            for model in wanted:
                self._named.pop((name, model), None)
        if (missing := missing_models(wanted.values(), found)) and (before is None or before.models != found.models):
            log.warning("an engine does not list its declared models", extra={"fields": {"upstream": name, "missing": ", ".join(missing)}})
        if changed:
            for key, counter in self._counters.items():
                if key[0] == name:
                    counter.forget()
            self.on_fingerprint(name)
        self.on_slots(name, self._circuits[name].slots)  # it may be what a waiting call's policy takes, or not any more

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _upstream(settings: Settings, name: str, environment: Mapping[str, str]) -> Upstream:
    declared = settings.upstreams[name]
    times = declared.timeouts
    return Upstream(
        name=name,
        address=declared.address,
        engine=ENGINES[declared.engine],
        timeouts=Timeouts(connect_s=times.connect_s, first_byte_s=times.first_byte_s, between_chunks_s=times.between_chunks_s, whole_s=times.whole_s),
        credential=settings.credential(name, environment),
        ca_file=str(declared.ca_file) if declared.ca_file is not None else None,
        helper_calls=settings.bounds.helper_calls,
    )
