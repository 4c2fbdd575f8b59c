"""The first twenty of a run, code and limit stand singly, then one summing entry a minute."""

from gateway.ledger.refusals import RefusalSums
from tests.support.paper_books import refuse


def test_the_first_twenty_stand_singly_and_the_rest_is_summed_a_minute():
    sums = RefusalSums({})
    singly = [sums.stands_singly(refuse(f"x{number}", at_ms=1000 + number)) for number in range(50)]
    assert singly == [True] * 20 + [False] * 30
    assert sums.due(1020 + 59_999) == []
    (summary,) = sums.due(1020 + 60_000)
    assert (summary.count, summary.since_ms, summary.until_ms, summary.limit_name, summary.final) == (30, 1020, 1049, "run.requests", True)
    assert sums.due(10**9) == []


def test_each_run_code_and_limit_has_its_own_twenty():
    sums = RefusalSums({})
    for number in range(20):
        assert sums.stands_singly(refuse(f"a{number}"))
    assert not sums.stands_singly(refuse("a"))
    assert sums.stands_singly(refuse("b", "run.output_tokens"))
    assert sums.stands_singly(refuse("c", run="s"))
    assert sums.stands_singly(refuse("d", code="busy", final=False))


def test_what_stands_already_counts_after_a_restart():
    sums = RefusalSums({("c", "r", "run_budget_reached", "run.requests"): 19})
    assert sums.stands_singly(refuse("a"))
    assert not sums.stands_singly(refuse("b"))


def test_a_flush_is_of_one_run_or_of_all():
    sums = RefusalSums({(("c", run, "run_budget_reached", "run.requests")): 20 for run in "rs"})
    for run in "rrs":
        sums.stands_singly(refuse("a", run=run))
    assert [(summary.run, summary.count) for summary in sums.flush(99, "c", "r")] == [("r", 2)]
    assert [(summary.run, summary.count) for summary in sums.flush(99)] == [("s", 1)]
    assert len(sums) == 0


def test_a_sum_that_could_not_be_written_is_added_to_the_next():
    sums = RefusalSums({("c", "r", "run_budget_reached", "run.requests"): 20})
    sums.stands_singly(refuse("a", at_ms=5))
    (failed,) = sums.flush(9)
    sums.stands_singly(refuse("b", at_ms=11))
    sums.take_back(failed)
    assert [(summary.count, summary.since_ms, summary.until_ms) for summary in sums.flush(12)] == [(2, 5, 11)]
