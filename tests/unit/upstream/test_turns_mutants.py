"""Each rule of a wait is held by a scene: with that rule one off, some scene must go otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from gateway.upstream import turns
from tests.unit.upstream import test_turns_counting, test_turns_engines, test_turns_rules

MUTANTS = {
    "a call that arrives after the deadline is not told": ("if self._shut else ticket.check(now)", "if self._shut else None"),
    "whoever arrives goes before those who wait": ("elif len(self.queue) or not self._at_once(waiter, now):", "elif not self._at_once(waiter, now):"),
    "a full queue takes one more": ("if len(self.queue) >= self._queue_length:", "if len(self.queue) > self._queue_length:"),
    "a queue is full one too early": ("if len(self.queue) >= self._queue_length:", "if len(self.queue) + 1 >= self._queue_length:"),
    "sent without a slot": ("case Send() if slot and not halted:", "case Send() if not halted:"),
    "sent though halted": (
        "if isinstance(verdict, Send) and self.queue.finds_slot(waiter) and not waiter.ticket.halted():",
        "if isinstance(verdict, Send) and self.queue.finds_slot(waiter):",
    ),
    "room is set aside before a slot was free": ("case Wait() if not halted and (slot or waiter.asides):", "case Wait() if not halted:"),
    "who has room set aside takes no broader accounts without a slot": (
        "case Wait() if not halted and (slot or waiter.asides):",
        "case Wait() if not halted and slot:",
    ),
    "a wait lasts a millisecond longer": ("if now >= waiter.ends_ms:", "if now > waiter.ends_ms:"),
    "enough will do a millisecond later": ("elif now >= waiter.clamp_ms and", "elif now > waiter.clamp_ms and"),
    "enough never will do": ("waiter.patience = Patience.ENOUGH", "waiter.patience = Patience.REACH"),
    "at its end a call still wants enough": ("waiter.over, waiter.patience = True, Patience.LEAST", "waiter.over, waiter.patience = True, Patience.ENOUGH"),
    "at its end the deadline is not asked": (
        "if (refusal := waiter.ticket.check(self._now_ms())) is not None:\n            self.refuse(waiter, refusal, Cause.ENDED)\n        elif",
        "if",
    ),
    "at its end anyone of a flow may go": ("case Send() if not halted and self.queue.flows.is_head(waiter) and", "case Send() if not halted and"),
    "at its end a call goes without a slot": (
        "self.queue.flows.is_head(waiter) and self.queue.finds_slot(waiter):",
        "self.queue.flows.is_head(waiter):",
    ),
    "at its end a halted call is told that it is busy": ("in_vain(verdict, halted,", "in_vain(verdict, False,"),
    "a bound alone says what can never be": ("if demand.can_count and not demand.exact:\n            return None", "if False:\n            return None"),
    "what can never be is not looked at": (
        "refusal = self._hopeless(waiter)\n        if refusal is not None or",
        "pass\n        if refusal is not None or",
    ),
    "a deadline that begins is not heard": ("self.queue.clock_begun(waiter.run)", "pass"),
    "an engine that is out keeps its asides": ("self.queue.engine_is_out(engine)", "pass"),
    "a call arrives though no engine takes any": ("if refusal is not None or self.queue.homes.out(waiter):", "if refusal is not None:"),
    "the end of its patience for one engine is not heard": ("self.wake(Cause.AWAY)", "pass"),
    "a call goes where its turn was not looked for": ("self._slots.take(waiter.engine)", "self._slots.take(waiter.ticket.engines[0])"),
    "a failed commit keeps its slot": ("self.free(engine, Cause.FAILED)", "self.wake(Cause.FAILED)"),
    "a resume is not heard": ("if waiter.ticket.campaign == campaign and waiter.halted != waiter.ticket.halted():", "if False:"),
}
SCENES: list[Callable[[], None]] = [
    scene
    for module in (test_turns_rules, test_turns_counting, test_turns_engines)
    for name, scene in vars(module).items()
    if name.startswith("test_") and not inspect.signature(scene).parameters
]


def put_in_place(patch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Our class gets the methods of the one that is written otherwise."""
    source = inspect.getsource(turns)
    assert source.count(old) == 1, f"{source.count(old)} times in the source: {old}"
    names = dict(vars(turns))
    exec(compile(source.replace(old, new), "mutant", "exec"), names)
    for name, method in vars(names["Turns"]).items():
        if inspect.isfunction(method):
            patch.setattr(turns.Turns, name, method)


def broken() -> list[str]:
    found = []
    for scene in SCENES:
        try:
            scene()
        except (AssertionError, KeyError, IndexError, ValueError):
            found.append(scene.__name__)
    return found


def test_the_methods_as_they_are_break_no_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, "self._sequence += 1", "self._sequence += 1")
    assert len(SCENES) > 30 and broken() == []


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS.keys())
def test_a_rule_that_is_one_off_breaks_a_scene(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, old, new)
    assert broken()
