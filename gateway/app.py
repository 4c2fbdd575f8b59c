"""The only place that builds: from settings to a gateway that serves, and back down without losing a call."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping

import uvloop

from gateway.accounting.usage import Outcome
from gateway.control.problems import limit_view
from gateway.control.services import ControlServices
from gateway.control.shelf import PolicyShelf
from gateway.control.surfaces import Surfaces
from gateway.errors import ConfigurationError
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.ledger.secret import kept_secret
from gateway.levels import Levels, waiting_reason
from gateway.logs import log, set_up
from gateway.metrics.metrics import Metrics
from gateway.proxy.listening import DataListener
from gateway.runs.deadline_watch import DeadlineWatch
from gateway.runs.in_flight import InFlight
from gateway.runs.runs import Runs
from gateway.services import Services
from gateway.settings.memory import keep_memory
from gateway.settings.open_files import allow_files, files_needed
from gateway.settings.settings import Settings
from gateway.upstream.engines import Engines
from gateway.upstream.gate import Gate
from gateway.upstream.queue import GateSettings
from gateway.upstream.waiter import WaitingView

CUT_S = 10.0
"""After the last cut: how long settlements may take before the process ends all the same."""
CLOSE_S = 60
"""How long closing a campaign waits for its runs where the driver names nothing else."""

SWITCH_S = 0.000_5
"""How long the ledger's thread may keep the interpreter while an event waits to go out: Python's own 5 ms would be seen in streams."""
GC_THRESHOLD = (20_000, 20, 50)
"""A call makes a thousand objects and no cycle: looking for some after every 700 costs more than it frees."""

OnReady = Callable[["Gateway"], Awaitable[None]]


class Gateway:
    """A gateway in this process. `await start()`, later `await stop()`."""

    def __init__(self, settings: Settings, environment: Mapping[str, str] = os.environ, *, accept_restore: bool = False) -> None:
        """Takes the ledger's lock. Raises ConfigurationError, LedgerUnavailable."""
        self.settings = settings
        self.metrics = Metrics()
        self.ledger = Ledger.open(settings.ledger.path, min_free_bytes=settings.ledger.min_free_bytes, accept_restore=accept_restore)
        self.engines = Engines(settings, environment, self.ledger.now_ms)
        slots = {name: upstream.slots for name, upstream in settings.upstreams.items()}
        bounds = settings.bounds
        rules = GateSettings(queue_length=bounds.queue_length, affinity_wait_ms=bounds.affinity_wait_ms)
        self.gate = Gate(self.ledger.balances, self.ledger.post, self.ledger.now_ms, slots, rules)
        self.runs = Runs(
            self.ledger,
            settings.limits,
            in_flight=InFlight(),
            on_change=self._changed,
            fingerprints=self.engines.fingerprints,
            gateway_origins=settings.origins,
        )
        self.shelf = PolicyShelf(settings.policies, settings.check_policy)
        self.deadlines = DeadlineWatch(self.runs, self.ledger.now_ms, self.gate.recheck)
        self.services = Services(
            settings=settings,
            ledger=self.ledger,
            gate=self.gate,
            runs=self.runs,
            engines=self.engines,
            metrics=self.metrics,
            cache_secret=kept_secret(settings.ledger.path),
        )
        self.levels = Levels(self.metrics, settings, self.ledger, self.gate, self.runs, self.engines, self._not_ready)
        self.data = DataListener(self.services, settings.data)
        self.control = Surfaces(settings.control, self._told(), environment)
        self.ledger.on_release(self.gate.wake)
        self.engines.on_fingerprint = self._fingerprint_changed
        self.engines.on_slots = self.gate.set_slots

    async def start(self) -> None:
        """Raises ConfigurationError where a listener can't be had."""
        await self.engines.start()
        for line in self.shelf.fill():
            log.warning("a policy can't be used", extra={"fields": {"reason": line}})
        self.runs.start()
        await asyncio.to_thread(self._remember)
        self.deadlines.start()
        await self.control.start()
        await self.data.start()
        gc.collect()
        gc.freeze()  # what was built lives as long as the process: the collector need not look at it again

    async def stop(self, grace_s: float) -> None:
        """New calls and waiting ones are refused, running ones may end within `grace_s`, then they are cut; all is settled before the ledger closes."""
        self.services.stopping.begun = True
        self.gate.shutdown()
        await _within(grace_s, self.runs.in_flight.drained())
        self.cut()
        loop = asyncio.get_running_loop()
        latest = loop.time() + CUT_S
        await _within(CUT_S, self.runs.in_flight.drained())
        await self.data.stop_accepting()
        await _within(max(0.0, latest - loop.time()), self.gate.settled())
        await self.services.background.finished(max(0.0, latest - loop.time()))
        await _within(max(1.0, latest - loop.time()), self.services.cancelling.stop())
        await self.data.stop()
        await self.control.stop()
        await self.deadlines.stop()
        await _within(CUT_S, self.runs.finish())
        await asyncio.to_thread(self.services.keeper.stop, CUT_S)
        await self.ledger.close()
        await self.engines.close()

    def cut(self) -> None:
        """What still runs ends now; what an engine does for nobody is not waited for."""
        self.runs.in_flight.cut_everything(Outcome.SHUTDOWN_CUT)
        self.services.drains.cancel()

    async def reload_policies(self) -> None:
        """As SIGHUP asks. What is wrong is in the log, and then the policies that were there stay."""
        try:
            reloaded = await self.shelf.reload()
        except ConfigurationError as error:
            for line in str(error).splitlines():
                log.error("policies were not reloaded", extra={"fields": {"reason": line}})
            return
        fields = {"policies": len(reloaded.hashes), "added": reloaded.added, "changed": reloaded.changed, "removed": reloaded.removed}
        log.info("policies were reloaded", extra={"fields": fields})

    def _changed(self) -> None:
        """A campaign, run or key has another state: waiting calls are asked again."""
        self.gate.recheck()
        for campaign in {view.campaign for view in self.gate.waiting()}:
            self.gate.halted_changed(campaign)

    def _fingerprint_changed(self, upstream: str) -> None:
        for campaign in self.runs.campaigns():
            fingerprint = self.engines.fingerprint(campaign.campaign, upstream, self.ledger.now_ms())
            if campaign.serves and fingerprint is not None:
                self.ledger.post(fingerprint).add_done_callback(lambda future: future.cancelled() or future.exception())

    def _told(self) -> ControlServices:
        return ControlServices(
            runs=self.runs,
            ledger=self.ledger,
            reader=lambda: LedgerReader(self.settings.ledger.path),
            shelf=self.shelf,
            gate_view=self._gate_view,
            upstream_view=self._upstream_view,
            drain=self.engines.drain,
            not_ready=self._not_ready,
            render_metrics=self.levels.render,
            reconciled=self.levels.findings.note,
            data_address=lambda: self.data.address,
            close_s=CLOSE_S,
        )

    def _gate_view(self) -> dict[str, object]:
        waiting = self.gate.waiting()
        return {"count": len(waiting), "calls": [waiting_view(view) for view in waiting[:100]]}

    def _upstream_view(self) -> list[dict[str, object]]:
        return [
            {
                "upstream": name,
                "engine": upstream.engine,
                "models": sorted(upstream.models),
                "slots": upstream.slots,
                "busy": self.gate.busy(name),
                "standing": str(self.engines.standing(name)),
                "health": str(self.engines.health(name).state),
                "wrong_health_path": self.engines.health(name).wrong_path,
                "reason": self.engines.reason(name),
                "mismatch": self.engines.mismatches(name),
                "cap_ignored": self.engines.cap_ignored(name),
            }
            for name, upstream in self.settings.upstreams.items()
        ]

    def _not_ready(self) -> list[str]:
        return [*(["the gateway is shutting down"] if self.services.stopping.begun else []), *self.engines.not_ready(self._wanted_models())]

    def _wanted_models(self) -> list[str]:
        """Those of open campaigns; while none is open, all that the upstreams serve."""
        served = dict.fromkeys(model for upstream in self.settings.upstreams.values() for model in upstream.models)
        wanted = {model for campaign in self.runs.campaigns() if campaign.serves for model in campaign.policy.models}
        return [model for model in served if not wanted or model in wanted]

    def _remember(self) -> None:
        with LedgerReader(self.settings.ledger.path) as reader:
            self.levels.remember(reader)


def waiting_view(waiting: WaitingView) -> dict[str, object]:
    """Who waits, at which place of its flow, how long, and for what: `halted`, `limit` with its numbers, `count` of its prompt, `engine` (none takes calls),
    `home` (the one that knows its prompt is full, another is not), or `slot` (also a turn).
    """
    view: dict[str, object] = {
        "call": waiting.call_id,
        "campaign": waiting.campaign,
        "run": waiting.run,
        "lane": waiting.lane,
        "engine": ", ".join(waiting.engines),
        "position": waiting.position,
        "waited_ms": waiting.waited_ms,
        "reason": waiting_reason(waiting),
    }
    if waiting.in_the_way is not None:
        view["limit"] = limit_view(waiting.in_the_way)
    if waiting.home:
        view["home"] = waiting.home
    if waiting.sets_aside:
        view["sets_aside"] = list(waiting.sets_aside)
    return view


async def _within(seconds: float, work: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


def _say(line: str) -> None:
    """A terminal may be closed while it is written to: then its SIGHUP is under way, and ends the process in order."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError as error:
        log.info("nobody reads what is printed", extra={"fields": {"error": str(error)}})


async def run(settings: Settings, on_ready: OnReady | None = None, *, accept_restore: bool = False) -> None:
    """Serves until SIGTERM or SIGINT, or until the terminal that it runs on is closed. A second signal cuts at once. SIGHUP reads policies anew."""
    loop = asyncio.get_running_loop()
    told, hurry = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (hurry if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    gateway = Gateway(settings, accept_restore=accept_restore)
    reloading: set[asyncio.Task[None]] = set()

    on_terminal = os.isatty(0)

    def hung_up() -> None:
        if on_terminal and not os.isatty(0):  # the terminal is gone, and with it the person: nobody asks for policies
            stop()
            return
        task = loop.create_task(gateway.reload_policies())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        await gateway.start()
        ready = f"ready data={gateway.data.address} control=unix:{settings.control.socket}"
        for name, listener in (("control-tcp", gateway.control.tcp), ("metrics", gateway.control.metrics)):
            ready += f" {name}={listener.address}" if listener is not None else ""
        if settings.data.socket is not None:
            ready += f" data-socket=unix:{settings.data.socket}"
        _say(ready)
        log.info("serving", extra={"fields": {"data": gateway.data.address, "ledger": str(settings.ledger.path)}})
        if on_ready is not None:
            await on_ready(gateway)
        await told.wait()
        log.info("stopping", extra={"fields": {"in_flight": len(gateway.runs.in_flight), "seconds": settings.bounds.shutdown_seconds}})
    finally:
        stopping = loop.create_task(gateway.stop(settings.bounds.shutdown_seconds))
        hurrying = loop.create_task(hurry.wait())
        await asyncio.wait({stopping, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            gateway.cut()
        await stopping
        hurrying.cancel()


def serve(settings: Settings, on_ready: OnReady | None = None, *, accept_restore: bool = False) -> None:
    """The process. Returns when it was told to stop and everything is settled."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLD)
    keep_memory()
    allow_files(files_needed(settings.table))
    set_up(os.environ.get("GATEWAY_LOG", "text" if sys.stderr.isatty() else "json"), os.environ.get("GATEWAY_LOG_LEVEL", "info"))
    uvloop.run(run(settings, on_ready, accept_restore=accept_restore))
