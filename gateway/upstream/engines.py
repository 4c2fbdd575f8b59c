"""All engines of a gateway: the way to each, whether it is healthy, who it says it is, and the counter of each of its models.

An engine that comes back is asked again who it is, and its counters measure anew: it may be another build or another model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence

from gateway.accounting.commands import Fingerprint
from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.logs import log
from gateway.settings.settings import Settings
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenizer import Counter
from gateway.upstream.forward import Upstream
from gateway.upstream.health import Health, HealthProbe, State
from gateway.upstream.identity import Identity, identify, missing_models
from gateway.upstream.watch import Timeouts

FALLBACK_ENCODING = "o200k_base"
"""Counts delivered text where the model's own counter can't be asked."""


class Engines:
    """Inside a running loop. `start()`, and `close()` at the end."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """Raises ConfigurationError for an upstream that can't be used."""
        self._settings = settings
        self.upstreams = {name: _upstream(settings, name, environment) for name in settings.upstreams}
        self._probes = {
            name: HealthProbe(upstream, now_ms, path=settings.upstreams[name].health_path, on_change=self._on_change(name))
            for name, upstream in self.upstreams.items()
        }
        self._identities: dict[str, Identity] = {}
        self._encodings = Encodings()
        self._cache = RenderedCache()
        self._counters: dict[tuple[str, str, str, int | None, int | None], Counter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._cap_ignored: set[str] = set()
        self.fallback = self._encodings.get(FALLBACK_ENCODING)
        self.on_fingerprint: Callable[[str], None] = lambda _upstream: None
        """Called when an engine's fingerprint has changed."""

    async def start(self) -> None:
        """Asks each once; then looks after them until `close()`."""
        for name, upstream in self.upstreams.items():
            log.info("prompt caches", extra={"fields": {"upstream": name, "engine": upstream.engine.kind, "sharing": upstream.engine.cache_sharing}})
        await asyncio.gather(*(self._first_look(name) for name in self.upstreams))
        for probe in self._probes.values():
            self._spawn(probe.run())

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

    def unreachable(self, upstream: str) -> None:
        """A call found it so: it is asked at once."""
        self._probes[upstream].look_soon()

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
        return None if identity is None else Fingerprint(campaign=campaign, upstream=upstream, at_ms=at_ms, details=dict(identity.fingerprint))

    def fingerprints(self, campaign: str, at_ms: int) -> Sequence[Fingerprint]:
        """Of every engine that said who it is."""
        found = (self.fingerprint(campaign, name, at_ms) for name in self.upstreams)
        return [fingerprint for fingerprint in found if fingerprint is not None]

    def health(self, upstream: str) -> Health:
        return self._probes[upstream].health

    def not_ready(self) -> list[str]:
        return [f"upstream {name}: {probe.health.reason or probe.health.state}" for name, probe in self._probes.items() if not probe.health.usable]

    def _on_change(self, name: str) -> Callable[[Health], None]:
        def changed(health: Health) -> None:
            log.info("upstream", extra={"fields": {"upstream": name, "health": str(health.state), "reason": health.reason}})
            if health.state is State.HEALTHY:
                self._spawn(self._identify(name))

        return changed

    async def _first_look(self, name: str) -> None:
        await self._probes[name].probe()

    async def _identify(self, name: str) -> None:
        try:
            found = await identify(self.upstreams[name])
        except EngineFailure as failure:
            log.warning("an engine does not say who it is", extra={"fields": {"upstream": name, "failure": failure.kind}})
            return
        wanted = self._settings.upstreams[name].models.values()
        if missing := missing_models(wanted, found):
            log.warning("an engine does not list its declared models", extra={"fields": {"upstream": name, "missing": ", ".join(missing)}})
        changed = name in self._identities and self._identities[name].fingerprint != found.fingerprint
        self._identities[name] = found
        if changed:
            for key, counter in self._counters.items():
                if key[0] == name:
                    counter.forget()
            self.on_fingerprint(name)

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
