"""What a receipt says: totals with what is unknown, what the gateway saw, and where a declaration can't be true."""

import pytest

from gateway.accounting.commands import Adjust, BeginClosing, CloseCampaign, Declare, Expire, RefusalSummary, Results, Settle, Void, WriteReceipt
from gateway.accounting.quantity import Amounts
from gateway.accounting.tally import added
from gateway.accounting.usage import Outcome, Source, Usage
from tests.support.paper_books import PaperBooks, open_campaign, open_run, refuse, reserve, settle


def books(**opening) -> PaperBooks:
    paper = PaperBooks()
    paper.post(open_campaign(planned_runs=4))
    paper.post(open_run(label="engineering", task="t-1", limits_hash="cd" * 32, **opening))
    return paper


def receipt(paper: PaperBooks, run: str = "r"):
    if paper.standing.campaigns["c"].runs[run].status == "open":
        paper.post(BeginClosing(campaign="c", run=run, at_ms=50))
    return paper.post(WriteReceipt(campaign="c", run=run, at_ms=60))


def test_totals_keep_usage_and_charge_apart_and_count_what_is_unknown():
    paper = books()
    for call_id in "abcd":
        paper.post(reserve(call_id, 100, 40))
    paper.post(settle("a", 30, 20))
    unknown = Usage(input_tokens=25)
    paper.post(Settle(call_id="b", at_ms=5, outcome=Outcome.ENGINE_DIED, source=Source.UNKNOWN, usage=unknown, charge=Amounts(requests=1, input_tokens=25)))
    paper.post(Expire(call_id="c", at_ms=5, reason="process ended"))
    paper.post(Void(call_id="d", at_ms=5, reason="connect failed"))
    paper.post(refuse("e"))
    paper.post(refuse("f", "", code="not_allowed"))
    said = receipt(paper).content
    totals = said["totals"]
    assert (totals["calls"], totals["voided"]) == (3, 1)
    assert totals["usage"]["input_tokens"] == {"sum": 45, "unknown": 1}
    assert totals["usage"]["output_tokens"] == {"sum": 30, "unknown": 2}
    assert totals["usage"]["reasoning_tokens"] == {"sum": 0, "unknown": 3}
    assert totals["charge"] == {"requests": 3, "input_tokens": 20 + 25 + 40, "output_tokens": 30 + 0 + 100}
    assert totals["sources"] == {
        "reported": {"calls": 1, "input_tokens": 20, "output_tokens": 30},
        "unknown": {"calls": 2, "input_tokens": 25, "output_tokens": 0},
    }
    assert totals["refused"] == {"run_budget_reached": 1, "not_allowed": 1}
    assert totals["outcomes"] == {"completed": 1, "engine_died": 1, "lost": 1}
    assert (said["label"], said["task"], said["policy_hash"], said["limits_hash"]) == ("engineering", "t-1", "ab" * 32, "cd" * 32)
    assert said["head"]["hash"] == paper.written[-3].hash.hex()


def test_what_was_charged_above_what_was_reserved_is_summed_and_never_netted_with_what_was_below():
    paper = books()
    for call_id, output, prompt in (("a", 100, 40), ("b", 100, 40), ("c", 10, 40)):
        paper.post(reserve(call_id, output, prompt))
    paper.post(settle("a", 30, 45))
    paper.post(settle("b", 30, 20))
    paper.post(settle("c", 12, 41))
    totals = receipt(paper).content["totals"]
    assert totals["overshoot"] == {"calls": 2, "input_tokens": 5 + 1, "output_tokens": 2}


def test_where_nothing_was_overshot_nothing_is_said_of_it():
    paper = books()
    paper.post(reserve("a", 100, 40))
    paper.post(settle("a", 100, 40))
    assert "overshoot" not in receipt(paper).content["totals"]


def test_the_next_receipt_names_the_one_it_replaces_and_its_hash_stands_in_the_campaign_s_chain():
    paper = books()
    paper.post(reserve("a", 100))
    paper.post(settle("a", 30))
    first = receipt(paper)
    usage = Usage(input_tokens=10, output_tokens=44)
    paper.post(Adjust(call_id="a", at_ms=70, usage=usage, charge=Amounts(requests=1, input_tokens=10, output_tokens=44), reason="late", evidence="log"))
    second = receipt(paper)
    assert second.content["receipt"] == 2
    assert second.content["replaces"] == {"receipt": 1, "hash": first.entries[0].hash.hex()}
    assert second.content["totals"]["usage"]["output_tokens"]["sum"] == 44
    assert second.content["totals"]["sources"] == {"corrected": {"calls": 1, "input_tokens": 10, "output_tokens": 44}}
    assert second.content["totals"]["outcomes"] == {"completed": 1}
    lines = [content for content in paper.contents("campaign:c") if content["kind"] == "run_receipt"]
    assert [line["hash"] for line in lines] == [first.entries[0].hash.hex(), second.entries[0].hash.hex()]


STOPPED = {
    "a lane that is spent does not stop the others": (["reserve a", "refuse run.background.requests", "reserve b"], ""),
    "the first final refusal after the last sent call": (["reserve a", "refuse run.requests", "refuse run.output_tokens"], "run.requests"),
    "before any call": (["refuse run.requests"], "run.requests"),
    "a call that was not sent does not count": (["reserve a", "refuse run.requests", "void b"], "run.requests"),
    "a passing refusal stops nothing": (["reserve a", "passing run.requests"], ""),
    "the guard names no limit": (["guard"], ""),
    "a sum of refusals that ended before the last call": (["summary run.requests 2", "reserve a late", "summary run.requests 3"], ""),
    "a sum of refusals after the last call": (["reserve a", "summary run.requests 9"], "run.requests"),
    "nothing was refused": (["reserve a"], ""),
}


def step(paper: PaperBooks, number: int, words: list[str]) -> None:
    match words:
        case ["reserve", call_id, *late]:
            paper.post(reserve(call_id, 10, at_ms=8 if late else 3))
            paper.post(settle(call_id, 1))
        case ["void", call_id]:
            paper.post(reserve(call_id, 10))
            paper.post(Void(call_id=call_id, at_ms=5, reason="connect failed"))
        case ["refuse", limit]:
            paper.post(refuse(f"x{number}", limit))
        case ["passing", limit]:
            paper.post(refuse(f"x{number}", limit, code="busy", final=False))
        case ["guard"]:
            paper.post(refuse(f"x{number}", "", code="not_allowed"))
        case ["summary", limit, until]:
            paper.post(
                RefusalSummary(
                    at_ms=9, campaign="c", run="r", code="run_budget_reached", final=True, limit_name=limit, count=5, since_ms=1, until_ms=int(until)
                )
            )


@pytest.mark.parametrize("name", STOPPED)
def test_stopped_by(name):
    steps, expected = STOPPED[name]
    paper = books()
    for number, words in enumerate(steps):
        step(paper, number, words.split())
    assert receipt(paper).content["seen"].get("stopped_by", "") == expected


CONFLICTS = {
    "all is well": (Results(turn_end="completed", exit=0), ["completed"], "", []),
    "the last sent call is what counts": (Results(turn_end="completed"), ["engine_died", "completed"], "", []),
    "its last call did not complete": (
        Results(turn_end="completed"),
        ["completed", "length"],
        "",
        ["declared completed, but its last sent call is length"],
    ),
    "it was stopped": (Results(turn_end="completed"), ["completed"], "run.requests", ["declared completed, but stopped by run.requests"]),
    "it failed by itself": (Results(turn_end="completed", exit=2), ["completed"], "", ["declared completed, but exit 2"]),
    "no token limit was seen": (Results(turn_end="token_limit"), ["completed"], "", ["declared token_limit, but the gateway saw none"]),
    "a token limit was seen": (Results(turn_end="token_limit"), ["length"], "", []),
    "no time limit was seen": (Results(turn_end="time_limit"), ["completed"], "", ["declared time_limit, but the gateway saw none"]),
    "a deadline was seen": (Results(turn_end="time_limit"), ["deadline_cut"], "", []),
    "no budget was seen": (Results(turn_end="budget"), ["completed"], "", ["declared budget, but the gateway saw none"]),
    "a budget was seen": (Results(turn_end="budget"), ["completed"], "run.output_tokens", []),
    "nothing declared is unknown, no conflict": (Results(), ["engine_died"], "run.requests", []),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict(name):
    results, outcomes, limit, expected = CONFLICTS[name]
    paper = books()
    for number, outcome in enumerate(outcomes):
        paper.post(reserve(f"c{number}", 10))
        paper.post(settle(f"c{number}", 1, outcome=Outcome(outcome)))
    if limit:
        paper.post(refuse("x", limit))
    paper.post(Declare(campaign="c", run="r", at_ms=9, results=results))
    assert receipt(paper).content["conflicts"] == expected


def test_completed_past_the_deadline_is_a_conflict():
    paper = books(details={"deadline_ms": 49})
    paper.post(Declare(campaign="c", run="r", at_ms=9, results=Results(turn_end="completed")))
    assert receipt(paper).content["conflicts"] == ["declared completed, but past its deadline"]


@pytest.mark.parametrize(("closing_at_ms", "late"), [(10_003, False), (10_004, True)])
@pytest.mark.parametrize("turn_end", ["completed", "time_limit"])
def test_a_deadline_counts_from_the_first_call_that_was_sent_where_the_opening_names_none(closing_at_ms: int, late: bool, turn_end: str):
    paper = books(details={"wall_seconds": 10})
    paper.post(reserve("never sent", 10, at_ms=2))
    paper.post(Void(call_id="never sent", at_ms=3, reason="connect failed"))
    for number in range(2):
        paper.post(reserve(f"c{number}", 10, at_ms=3 + number))
        paper.post(settle(f"c{number}", 5, at_ms=5))
    paper.post(Declare(campaign="c", run="r", at_ms=9, results=Results(turn_end=turn_end)))
    paper.post(BeginClosing(campaign="c", run="r", at_ms=closing_at_ms))
    found = paper.post(WriteReceipt(campaign="c", run="r", at_ms=60_000)).content["conflicts"]
    wrong = {"completed": ["declared completed, but past its deadline"], "time_limit": ["declared time_limit, but the gateway saw none"]}
    assert found == (wrong[turn_end] if late == (turn_end == "completed") else [])


def test_a_run_that_never_called_has_no_deadline_from_its_first_call():
    paper = books(details={"wall_seconds": 1})
    paper.post(Declare(campaign="c", run="r", at_ms=9, results=Results(turn_end="completed")))
    paper.post(BeginClosing(campaign="c", run="r", at_ms=3_600_000))
    assert paper.post(WriteReceipt(campaign="c", run="r", at_ms=3_600_001)).content["conflicts"] == []


def test_a_campaign_s_receipt_covers_its_runs_receipts_with_one_sum_a_label_and_what_never_opened():
    paper = books()
    paper.post(open_run("s", label="production"))
    paper.post(open_run("t", label="production"))
    for run in "rst":
        paper.post(reserve(f"c-{run}", 10, run=run))
        paper.post(settle(f"c-{run}", 5))
    hashes = {run: receipt(paper, run).entries[0].hash.hex() for run in "rst"}
    paper.post(CloseCampaign(campaign="c", at_ms=80))
    said = paper.post(WriteReceipt(campaign="c", run="", at_ms=90)).content
    assert {line["run"]: line["hash"] for line in said["runs"]} == hashes
    assert [(sums["label"], sums["runs"], sums["totals"]["charge"]["output_tokens"]) for sums in said["labels"]] == [
        ("engineering", 1, 5),
        ("production", 2, 10),
    ]
    assert (said["planned_runs"], said["opened_runs"], said["missing_runs"]) == (4, 3, 1)


def test_sums_are_added_at_every_depth():
    assert added({"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 1, "d": 4}}) == {"a": 3, "b": {"c": 3, "d": 4}}
