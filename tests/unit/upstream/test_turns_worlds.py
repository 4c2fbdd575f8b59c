"""Random worlds: calls come, end, leave and fail, days end, campaigns halt, runs close. After every step all promises hold."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.turns import Turns
from gateway.upstream.waiter import Waiter
from tests.unit.upstream.promises import all_promises
from tests.unit.upstream.world import World

RANGES = {
    "run.requests": (1, 8),
    "run.output_tokens": (20, 400),
    "run.f.output_tokens": (20, 300),
    "run.total_tokens": (40, 500),
    "run.concurrent": (1, 3),
    "campaign.requests": (3, 20),
    "campaign.output_tokens": (60, 900),
    "campaign.day.output_tokens": (60, 400),
    "campaign.day.requests": (2, 9),
    "campaign.input_tokens": (50, 400),
    "run.tool_calls": (1, 6),
    "campaign.day.tool_calls": (1, 9),
    "gateway.concurrent": (1, 5),
    "gateway.output_tokens": (100, 1_200),
}
CEILINGS = st.fixed_dictionaries({}, optional={name: st.integers(*ends) for name, ends in RANGES.items()})
ARRIVE = ("arrive",) * 8
REST = ("settle",) * 5 + ("leave", "commit", "commit", "fail", "adjust", "halt", "resume", "close", "count", "count", "second", "second", "wait", "slots")
STEPS = st.lists(st.tuples(st.sampled_from(ARRIVE + REST), st.integers(0, 10**9)), min_size=1, max_size=70)


class Script:
    """Plays steps; a number picks whatever a step needs."""

    def __init__(self, ceilings: dict[str, int], commits: bool, kind: type[Turns] = Turns) -> None:
        self.world = World(ceilings, {"a": 2, "b": 1}, commits=commits, queue_length=25, kind=kind)
        self.world.walls_ms = {"r1": 45_000}
        self.waiters: dict[str, Waiter] = {}
        self.flow_order: dict[tuple[str, ...], int] = {}
        self.seen = 0
        self.flows: dict[str, tuple[str, ...]] = {}

    def play(self, step: str, number: int) -> None:
        getattr(self, step)(number)
        self.world.time.tick()
        self.order_within_a_flow_is_arrival_order()
        all_promises(self.world)

    def order_within_a_flow_is_arrival_order(self) -> None:
        for name in self.world.order[self.seen :]:
            sequence = int(name)
            flow = self.flows[name]
            assert sequence > self.flow_order.get(flow, -1)
            self.flow_order[flow] = sequence
        self.seen = len(self.world.order)

    def arrive(self, number: int) -> None:
        name = str(len(self.world.outcomes))
        picks: list[int] = []
        for base in (3, 2, 3, 2, 5, 4, 3, 6, 4):
            number, pick = divmod(number, base)
            picks.append(pick)
        campaign = "cd"[picks[8] == 3]
        flow = (campaign, f"r{picks[0]}", "fg"[picks[1]], ("a", "b", "ab")[picks[2]])
        self.flows[name] = flow
        prompt = (0, 5, 10, 30)[picks[5]]
        more: dict[str, Any] = {"bound": prompt * 3} if picks[3] else {}
        if picks[7] == 5:
            more["deadline_ms"] = self.world.time.now_ms + 15_000
        asked = (0, 15, 40, 100, 250)[picks[4]]
        self.waiters[name] = self.world.call(
            name, campaign=campaign, run=flow[1], lane=flow[2], engine=flow[3], asked=asked, prompt=prompt, multiple=1 + picks[6] // 2, **more
        )

    def settle(self, number: int) -> None:
        running = [name for name, sent in self.world.running.items() if sent.committed]
        if running:
            self.world.settle(running[number % len(running)], (0, 3, 40, None)[number // 97 % 4], (0, 0, 1, 3)[number // 389 % 4])

    def leave(self, number: int) -> None:
        waiting = self.world.waiting()
        if waiting:
            self.world.leave(self.waiters[waiting[number % len(waiting)]])

    def commit(self, number: int) -> None:
        for sent in self.world.running.values():
            sent.committed = True

    def fail(self, number: int) -> None:
        pending = [name for name, sent in self.world.running.items() if not sent.committed]
        if pending:
            self.world.fail_commit(pending[number % len(pending)])
            self.seen = len(self.world.order)

    def adjust(self, number: int) -> None:
        if self.world.settled:
            self.world.adjust(number % len(self.world.settled), number // 7 % 60)

    def halt(self, number: int) -> None:
        self.world.halt("cd"[number % 2])

    def resume(self, number: int) -> None:
        self.world.resume("cd"[number % 2])

    def close(self, number: int) -> None:
        self.world.close(f"r{number % 3}")

    def count(self, number: int) -> None:
        if self.world.counts:
            self.world.counted(list(self.world.counts)[number % len(self.world.counts)])

    def second(self, number: int) -> None:
        self.world.time.advance(1_000 * (1 + number % 5))

    def wait(self, number: int) -> None:
        self.world.time.advance(1_000 * (20 + number % 60))

    def slots(self, number: int) -> None:
        self.world.set_slots("ab"[number // 4 % 2], number % 4)

    def finish(self) -> None:
        """All that runs ends, all counts come back, all waits pass: then nobody waits and nothing is held."""
        for campaign in "cd":
            self.world.resume(campaign)
        for engine in "ab":
            if not self.world.slots[engine]:
                self.world.set_slots(engine, 1)
        for _ in range(400):
            self.commit(0)
            self.count(0)
            self.settle(0)
            all_promises(self.world)
            if not self.world.running and not self.world.counts:
                break
        self.world.time.advance(130_000)
        self.count(0)
        while self.world.running or self.world.counts:
            self.commit(0)
            self.count(0)
            self.settle(0)
        self.world.time.advance(130_000)
        all_promises(self.world)
        assert self.world.waiting() == []
        assert all(balance.reserved == 0 for _, balance in self.world.balances)


def random_world(random: Random, kind: type[Turns] = Turns) -> Counter[str]:
    """A long one. Returns how its calls ended."""
    ceilings = {name: random.randint(*ends) for name, ends in RANGES.items() if random.random() < 0.35}
    script = Script(ceilings, random.random() < 0.5, kind)
    for _ in range(random.randint(20, 90)):
        script.play(random.choice(ARRIVE + REST), random.randrange(10**9))
    script.finish()
    counts = script.world.turns.counts
    return Counter(outcome for outcomes in script.world.outcomes.values() for outcome in outcomes) + Counter(clamped=counts.clamped, counted=counts.counted)


def test_all_promises_hold_in_long_worlds_in_which_everything_happens() -> None:
    ends: Counter[str] = Counter()
    for seed in range(100):
        ends.update(random_world(Random(seed)))
    assert all(ends[end] > 15 for end in ("sent", "final", "passing", "left", "failed", "clamped", "counted")), ends


@settings(max_examples=100, deadline=None)
@given(CEILINGS, st.booleans(), STEPS)
def test_all_promises_hold_after_every_step_of_any_world(ceilings: dict[str, int], commits: bool, steps: list[tuple[str, int]]) -> None:
    script = Script(ceilings, commits)
    for step, number in steps:
        script.play(step, number)
    script.finish()


@settings(max_examples=30, deadline=None)
@given(CEILINGS, STEPS)
def test_a_shutdown_answers_every_waiter_and_all_who_come_later(ceilings: dict[str, int], steps: list[tuple[str, int]]) -> None:
    script = Script(ceilings, True)
    for step, number in steps:
        script.play(step, number)
    waiting = script.world.waiting()
    script.world.turns.shutdown()
    script.world.call("late")
    assert script.world.waiting() == []
    assert {script.world.refusals[name].code for name in [*waiting, "late"]} == {"shutting_down"}
    assert not any(script.world.refusals[name].final for name in [*waiting, "late"])
    all_promises(script.world)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("arrive", "arrive", "settle", "second")), st.integers(0, 10**9)), max_size=60))
def test_what_a_run_s_calls_cost_does_not_change_its_next_wait(steps: list[tuple[str, int]]) -> None:
    """13: the same arrivals and endings, everything used or nothing: the same order."""
    orders = []
    for output in (0, None):
        script = Script({"campaign.output_tokens": 10**6}, True)
        for step, number in steps:
            if step == "settle":
                running = list(script.world.running)
                if running:
                    script.world.settle(running[number % len(running)], output)
            else:
                script.play(step, number - number % 60 if step == "arrive" else number)
        orders.append(script.world.order)
    assert orders[0] == orders[1]
