"""Everything that the doctor looks at, in order. The engines are asked side by side, one call each at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.doctor.context_lines import context_lines, counters_of, tokenizer_lines
from gateway.doctor.engine import look_at
from gateway.doctor.engine_lines import engine_lines
from gateway.doctor.line import Line, Status, fail, ok, warn
from gateway.doctor.machine import look_at_machine
from gateway.doctor.machine_lines import machine_lines, token_line
from gateway.doctor.networks import listener_lines
from gateway.doctor.seen import EngineSeen
from gateway.errors import ConfigurationError
from gateway.ledger.clock import system_ms
from gateway.policy.loading import LoadedPolicy, load_policy
from gateway.settings.declaration import TOKEN_MIN
from gateway.settings.settings import Settings

ENGINE_S = 240.0
"""Of one engine, all its questions."""
LISTED_MAX = 3
"""Problems of policy files that a line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    lines: Sequence[Line]
    gateway_runs: bool

    @property
    def good(self) -> bool:
        return not self.count(Status.FAIL)

    def count(self, status: Status) -> int:
        return sum(line.status is status for line in self.lines)


async def examine(settings: Settings, environment: Mapping[str, str], *, upstream: str = "", system_ms: Callable[[], int] = system_ms) -> Examination:
    """`upstream`: only that one. Raises ConfigurationError for a name that is none."""
    if upstream and upstream not in settings.upstreams:
        raise ConfigurationError(f"{settings.file}: there is no upstream {upstream!r}; there are {', '.join(settings.upstreams)}")
    seen = look_at_machine(settings, system_ms)
    policies, policy_line = _policies(settings)
    names = [upstream] if upstream else list(settings.upstreams)
    of_engines = await asyncio.gather(*(_engine(settings, name, environment, policies) for name in names))
    token = token_line(settings, environment, TOKEN_MIN)
    lines = [
        *(line for lines in of_engines for line in lines),
        policy_line,
        *machine_lines(settings, seen),
        *([token] if token else []),
        *listener_lines(settings.data, settings.control, seen.networks),
    ]
    return Examination(lines=lines, gateway_runs=seen.running is not None)


async def _engine(settings: Settings, name: str, environment: Mapping[str, str], policies: Sequence[LoadedPolicy]) -> list[Line]:
    declared = settings.upstreams[name]
    try:
        credential = settings.credential(name, environment)
    except ConfigurationError as error:
        mend = f"export {declared.credential_env}=…, where the gateway is started too"
        return [fail("credential", name, f"{error}; nothing was asked of it", mend)]
    try:
        async with asyncio.timeout(ENGINE_S):
            seen = await look_at(name, declared, credential, counters_of(declared, policies))
    except TimeoutError:
        return [fail("reachability", name, f"its answers took longer than {ENGINE_S:g} s in all", "look at the engine's load, then ask again")]
    return list(_lines_of(name, settings, seen, policies, presented=credential is not None))


def _lines_of(name: str, settings: Settings, seen: EngineSeen, policies: Sequence[LoadedPolicy], *, presented: bool) -> Iterator[Line]:
    declared = settings.upstreams[name]
    concerned = [loaded for loaded in policies if set(loaded.policy.models) & set(declared.models)]
    all_share = bool(concerned) and all(loaded.policy.cache_sharing == "all" for loaded in concerned)
    yield from engine_lines(name, declared, seen, all_share=all_share, credential=presented)
    if seen.probed is not None and not seen.probed.shut:
        yield from context_lines(name, declared, seen, concerned)
        yield from tokenizer_lines(name, seen)


def _policies(settings: Settings) -> tuple[list[LoadedPolicy], Line]:
    good, wrong = [], []
    files = sorted(settings.policies.glob("*.toml")) if settings.policies.is_dir() else []
    for file in files:
        try:
            loaded = load_policy(file)
            settings.check_policy(loaded)
        except ConfigurationError as error:
            wrong += str(error).splitlines()
        else:
            good.append(loaded)
    if wrong:
        more = f" (and {len(wrong) - LISTED_MAX} more)" if len(wrong) > LISTED_MAX else ""
        line = fail("policies", "policies", "; ".join(wrong[:LISTED_MAX]) + more, "`gateway policy check` says all of it")
    elif not files:
        line = warn(
            "policies", "policies", f"there is none in {settings.policies}", "write one: no campaign is opened without; policies/reference.toml shows every key"
        )
    else:
        line = ok("policies", "policies", f"{len(good)} can be kept by these settings")
    return good, line
