"""The ledger's clock: never behind the last entry, runs with the boot clock, and doubts a system clock that goes its own way."""

import pytest

from gateway.errors import ClockUncertain
from gateway.ledger.clock import DRIFT_MAX_MS, LedgerClock

HOUR_MS = 3_600_000


class Times:
    def __init__(self) -> None:
        self.system = 1_000 * HOUR_MS
        self.boot = 5_000

    def pass_ms(self, ms: int) -> None:
        self.system += ms
        self.boot += ms


def started(last_entry_ms: int = 0) -> tuple[Times, LedgerClock]:
    times = Times()
    clock = LedgerClock(lambda: times.system, lambda: times.boot)
    clock.start(last_entry_ms)
    return times, clock


def test_it_runs_with_the_boot_clock_so_a_suspended_machine_s_time_counts():
    times, clock = started()
    before = clock.now_ms()
    times.pass_ms(8 * HOUR_MS)
    assert clock.now_ms() == before + 8 * HOUR_MS
    clock.check()


def test_a_small_correction_of_the_system_clock_does_not_move_it():
    times, clock = started()
    before = clock.now_ms()
    times.system -= DRIFT_MAX_MS
    assert clock.now_ms() == before
    clock.check()


@pytest.mark.parametrize("jump", [DRIFT_MAX_MS + 1, -DRIFT_MAX_MS - 1])
def test_a_system_clock_more_than_five_minutes_off_is_doubted_until_a_person_accepts(jump):
    times, clock = started()
    before = clock.now_ms()
    times.system += jump
    with pytest.raises(ClockUncertain, match="--accept"):
        clock.check()
    times.system -= jump
    with pytest.raises(ClockUncertain):
        clock.check()
    times.system += jump
    assert clock.accept(before) == max(before, times.system)
    clock.check()
    times.pass_ms(HOUR_MS)
    clock.check()
    assert clock.doubt == ""


def test_at_start_it_is_never_behind_the_last_entry_and_says_that_something_is_wrong():
    times, clock = started(last_entry_ms=1_000 * HOUR_MS + 7)
    assert clock.now_ms() == 1_000 * HOUR_MS + 7
    with pytest.raises(ClockUncertain, match="7 ms behind the last entry"):
        clock.check()
    clock.accept(1_000 * HOUR_MS + 7)
    clock.check()
    times.pass_ms(5)
    assert clock.now_ms() == 1_000 * HOUR_MS + 12


def test_after_a_long_step_back_was_accepted_only_a_further_step_is_doubted():
    times, clock = started(last_entry_ms=1_010 * HOUR_MS)
    clock.accept(1_010 * HOUR_MS)
    times.pass_ms(HOUR_MS)
    clock.check()
    times.system += DRIFT_MAX_MS + 1
    assert "clock" in clock.doubt
