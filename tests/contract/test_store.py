"""What every store does, over the table of stores."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.accounting.chain import decode
from gateway.accounting.commands import AcceptClock, BeginClosing, Declare, Event, Expire, Fingerprint, Halt, IssueKey, Results, RevokeKey, Void, WriteReceipt
from gateway.accounting.limit import Balance
from gateway.accounting.standing import account_of
from gateway.errors import CommandRejected
from gateway.ledger.sqlite import SqliteStore
from gateway.ledger.store import Store
from tests.support.paper_books import account, adjust, open_campaign, open_run, refuse, reserve, settle

STORES: dict[str, Callable[[Path], Store]] = {"sqlite": lambda folder: SqliteStore(folder / "ledger.db")}
"""Each opens the same ledger again when it is called again with the same folder."""

ACCOUNTS = tuple(account(named, quantity) for named in ("run:c/r", "campaign:c") for quantity in ("requests", "output_tokens", "concurrent"))
OUTPUT = ACCOUNTS[1]


class Shelf:
    """A store that can be put away and opened again."""

    def __init__(self, make: Callable[[Path], Store], folder: Path) -> None:
        self._make, self._folder = make, folder
        self.store = make(folder)
        self.store.migrate()
        self.standing = self.store.load()

    def reopen(self) -> None:
        self.store.close()
        self.store = self._make(self._folder)
        self.standing = self.store.load()

    def post(self, *commands):
        return self.store.post(commands)


@pytest.fixture(params=STORES)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(STORES[request.param], tmp_path)
    shelf.post(open_campaign(), open_run(label="engineering", idempotency_key="k", arguments_hash="1"))
    yield shelf
    shelf.store.close()


def sums(store: Store) -> dict[object, Balance]:
    found: dict[object, Balance] = {}
    for entry in store.entries():
        for key, reserved, settled in decode(entry.body).get("postings", []):
            found[account_of(key)] = found.get(account_of(key), Balance()).plus(reserved, settled)
    return found


def test_what_was_posted_stands_after_opening_it_again(shelf: Shelf):
    shelf.post(
        IssueKey(campaign="c", run="r", lane="foreground", key_id="key-1", digest="00", at_ms=3),
        RevokeKey(key_id="key-1", campaign="c", at_ms=4),
        Fingerprint(campaign="c", upstream="u", at_ms=4, details={"build": "b1"}),
        Event(campaign="c", run="r", call_id="c1", name="count_drift", at_ms=5, details={"by": 3}),
        AcceptClock(at_ms=6, previous_ms=5),
        reserve("c1", 80, accounts=ACCOUNTS),
        reserve("c2", 80, accounts=ACCOUNTS),
        settle("c2", 30),
        Declare(campaign="c", run="r", at_ms=8, results=Results(exit=0, outcomes=(("a", "b"),))),
        Halt(campaign="c", at_ms=9, reason="lunch"),
    )
    before = shelf.standing
    shelf.reopen()
    assert shelf.standing == before


def test_migrating_twice_changes_nothing(shelf: Shelf):
    shelf.store.migrate()
    shelf.reopen()
    shelf.store.migrate()
    assert shelf.standing.number == 3


def test_balances_equal_the_sum_of_postings_at_every_commit(shelf: Shelf):
    batches = [
        [reserve("a", 80, accounts=ACCOUNTS), reserve("b", 80, accounts=ACCOUNTS)],
        [settle("a", 30), Void(call_id="b", at_ms=5, reason="connect failed"), reserve("c", 7, accounts=ACCOUNTS)],
        [Expire(call_id="c", at_ms=6, reason="process ended"), settle("c", 5), adjust("c", 9), adjust("a", 31)],
    ]
    for batch in batches:
        shelf.post(*batch)
        assert sums(shelf.store) == shelf.store.balances()
    assert shelf.store.balances()[OUTPUT] == Balance(0, 40)


def test_a_command_that_is_rejected_does_not_disturb_the_others(shelf: Shelf):
    first, second, third = shelf.post(reserve("a", 1), settle("nobody", 1), settle("a", 1))
    assert isinstance(second, CommandRejected)
    assert (first.entries[0].number, third.entries[0].number) == (4, 5)
    assert [entry.kind for entry in shelf.store.entries(chain="run:c/r")] == ["reserve", "settle"]


def test_a_command_posted_twice_answers_with_the_entry_that_stands(shelf: Shelf):
    made = shelf.post(reserve("a", 1), settle("a", 1), reserve("a", 1))
    assert [posting.standing for posting in made] == [False, False, True]
    shelf.reopen()
    again = shelf.post(reserve("a", 1), settle("a", 5), open_run("other", idempotency_key="k", arguments_hash="1"))
    assert all(posting.standing for posting in again)
    assert [posting.entries[0] for posting in again[:2]] == [posting.entries[0] for posting in made[:2]]
    assert again[2].content["run"] == "r"
    assert shelf.standing.number == 5


def test_a_call_that_was_lost_is_settled_late_after_opening_again(shelf: Shelf):
    shelf.post(reserve("a", 80, accounts=ACCOUNTS))
    shelf.reopen()
    assert list(shelf.standing.calls) == ["a"]
    shelf.post(Expire(call_id="a", at_ms=5, reason="process ended"))
    assert shelf.store.balances()[OUTPUT] == Balance(0, 80)
    shelf.reopen()
    (late,) = shelf.post(settle("a", 30))
    assert late.content["corrects"] == 5
    assert shelf.store.balances()[OUTPUT] == Balance(0, 30)


def test_a_receipt_counts_what_the_same_batch_holds(shelf: Shelf):
    *_, posting = shelf.post(
        reserve("a", 8), settle("a", 3), refuse("x"), BeginClosing(campaign="c", run="r", at_ms=8), WriteReceipt(campaign="c", run="r", at_ms=9)
    )
    assert posting.content["totals"]["charge"]["output_tokens"] == 3
    assert posting.content["totals"]["refused"] == {"run_budget_reached": 1}


def test_a_receipt_is_due_again_after_a_late_settlement_also_when_opened_again(shelf: Shelf):
    receipt = WriteReceipt(campaign="c", run="r", at_ms=9)
    shelf.post(reserve("a", 8), Expire(call_id="a", at_ms=7, reason="process ended"), BeginClosing(campaign="c", run="r", at_ms=8), receipt)
    shelf.reopen()
    assert shelf.post(receipt)[0].standing
    shelf.post(settle("a", 3))
    shelf.reopen()
    assert shelf.post(receipt)[0].content["receipt"] == 2


def test_entries_are_read_by_chain_and_after_a_number(shelf: Shelf):
    shelf.post(reserve("a", 8), settle("a", 3), Halt(campaign="c", at_ms=9))
    assert [entry.number for entry in shelf.store.entries()] == [1, 2, 3, 4, 5, 6]
    assert [entry.kind for entry in shelf.store.entries(chain="campaign:c", after=3)] == ["halt"]
    (first, *_) = shelf.store.entries(chain="run:c/r")
    assert (first.campaign, first.run, first.call_id) == ("c", "r", "a")


def test_single_refusals_are_counted_a_run_code_and_limit(shelf: Shelf):
    shelf.post(refuse("a"), refuse("b"), refuse("c", "", code="not_allowed"))
    assert shelf.store.refusal_counts() == {("c", "r", "run_budget_reached", "run.requests"): 2, ("c", "r", "not_allowed", ""): 1}


def test_a_probe_changes_nothing(shelf: Shelf):
    before = list(shelf.store.entries())
    shelf.store.probe()
    shelf.reopen()
    assert list(shelf.store.entries()) == before


def test_the_first_call_of_each_lane_that_was_not_voided_is_known_after_opening_it_again(shelf: Shelf):
    for call_id, at_ms, lane in (("v", 3, "foreground"), ("a", 4, "foreground"), ("b", 5, "foreground"), ("w", 6, "background")):
        shelf.post(replace(reserve(call_id, 10, at_ms=at_ms), lane=lane))
    shelf.post(Void(call_id="v", at_ms=7, reason="connect failed"), Void(call_id="w", at_ms=7, reason="connect failed"), settle("b", 5))
    shelf.reopen()
    assert shelf.standing.campaigns["c"].runs["r"].first_call_ms == {"foreground": 4}


@pytest.mark.parametrize("reopened", [False, True])
def test_a_call_that_stands_is_known_wherever_its_id_sorts(shelf: Shelf, reopened: bool):
    shelf.post(*(command for call_id in ("call-1", "call-3", "call-5") for command in (reserve(call_id, 10), settle(call_id, 3))))
    if reopened:
        shelf.reopen()
    ids = ("call-5", "call-4", "call-3", "call-0", "call-1", "call-6", "call-6")
    assert [posting.standing for posting in shelf.post(*(reserve(call_id, 10) for call_id in ids))] == [True, False, True, False, True, False, True]
    assert shelf.post(settle("call-6", 3), reserve("call-6", 10), reserve("call-7", 10))[1].standing
