"""Whether an upstream gets calls, from what its health path, its calls and a person say."""

from __future__ import annotations

from gateway.upstream.circuit import FAILURES, PAUSE_FIRST_MS, PAUSE_LONGEST_MS, Circuit, Standing

SLOTS = 4


class Upstream:
    def __init__(self, failures: int = FAILURES) -> None:
        self.now_ms = 0
        self.circuit = Circuit(SLOTS, lambda: self.now_ms, failures)

    @property
    def stands(self) -> tuple[Standing, int]:
        return self.circuit.standing, self.circuit.slots

    def fail(self, times: int, *runs: str, connected: bool = True) -> int | None:
        pause = None
        for number in range(times):
            pause = self.circuit.failed((runs or ("r1", "r2"))[number % len(runs or "12")], "status 500", connected=connected)
        return pause

    def opened(self) -> Upstream:
        assert self.fail(FAILURES) == PAUSE_FIRST_MS
        return self

    def tried(self) -> Upstream:
        self.opened().now_ms += PAUSE_FIRST_MS
        self.circuit.probed(True)
        return self


def test_it_serves_until_something_speaks_against_it() -> None:
    upstream = Upstream()
    upstream.circuit.probed(True)
    assert upstream.stands == (Standing.SERVES, SLOTS)


def test_one_failure_less_in_a_row_does_not_open_it_and_one_that_went_well_begins_anew() -> None:
    upstream = Upstream()
    assert upstream.fail(FAILURES - 1) is None
    upstream.circuit.went_well()
    assert upstream.fail(FAILURES - 1) is None and upstream.stands == (Standing.SERVES, SLOTS)
    assert upstream.fail(1) == PAUSE_FIRST_MS
    assert upstream.stands == (Standing.OPEN, 0)
    assert f"{FAILURES} calls in a row failed, the last: status 500" in upstream.circuit.reason


def test_one_run_alone_can_t_open_it_for_the_others() -> None:
    upstream = Upstream()
    assert upstream.fail(50, "r1") is None
    assert upstream.fail(1, "r2") == PAUSE_FIRST_MS


def test_what_no_prompt_can_cause_counts_whoever_it_was() -> None:
    assert Upstream().fail(FAILURES, "r1", connected=False) == PAUSE_FIRST_MS


def test_a_refused_connection_is_enough_and_the_health_path_brings_it_back_whole() -> None:
    upstream = Upstream()
    upstream.circuit.refused()
    assert upstream.stands == (Standing.UNHEALTHY, 0)
    upstream.circuit.probed(False)
    assert upstream.stands == (Standing.UNHEALTHY, 0)
    upstream.circuit.probed(True)
    assert upstream.stands == (Standing.SERVES, SLOTS)


def test_while_it_is_open_a_good_health_path_lets_nothing_through_before_the_pause_is_over() -> None:
    upstream = Upstream().opened()
    upstream.now_ms += PAUSE_FIRST_MS - 1
    upstream.circuit.probed(True)
    assert upstream.stands == (Standing.OPEN, 0)
    upstream.now_ms += 1
    upstream.circuit.probed(True)
    assert upstream.stands == (Standing.TRIED, 1)


def test_one_call_that_goes_well_closes_it() -> None:
    upstream = Upstream().tried()
    upstream.circuit.went_well()
    assert upstream.stands == (Standing.SERVES, SLOTS) and upstream.circuit.reason == ""


def test_one_that_fails_while_it_is_tried_opens_it_for_twice_as_long_but_not_without_end() -> None:
    upstream, pauses = Upstream().tried(), []
    for _ in range(6):
        pause = upstream.fail(1, "r1")
        assert pause is not None and upstream.stands == (Standing.OPEN, 0)
        pauses.append(pause)
        upstream.now_ms += pause
        upstream.circuit.probed(True)
    assert pauses[:3] == [2_000, 4_000, 8_000] and set(pauses[3:]) == {PAUSE_LONGEST_MS}


def test_a_call_that_was_begun_before_it_opened_neither_closes_nor_prolongs_it() -> None:
    upstream = Upstream().opened()
    upstream.circuit.went_well()
    assert upstream.fail(3) is None and upstream.stands == (Standing.OPEN, 0)


def test_no_number_of_failures_opens_one_that_is_set_never_to() -> None:
    assert Upstream(failures=0).fail(100) is None


def test_a_drained_one_is_drained_whatever_else_and_stands_as_before_when_it_is_resumed() -> None:
    upstream = Upstream().opened()
    upstream.circuit.drained = True
    assert upstream.stands == (Standing.DRAINED, 0)
    upstream.circuit.drained = False
    assert upstream.stands == (Standing.OPEN, 0)
