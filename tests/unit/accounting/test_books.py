"""What may be written after what, as scripts that an auditor can read; then the same as properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.commands import (
    BeginClosing,
    CloseCampaign,
    Declare,
    Expire,
    Halt,
    IssueKey,
    Results,
    Resume,
    RevokeKey,
    Settle,
    Void,
    WriteReceipt,
)
from gateway.accounting.limit import Account, Balance
from gateway.accounting.quantity import Amounts
from gateway.accounting.standing import account_of
from gateway.accounting.usage import UNKNOWN_USAGE, Outcome, Source
from gateway.errors import CommandRejected
from tests.support.paper_books import PaperBooks, Script, account, adjust, open_campaign, open_run, refuse, reserve, settle

SCRIPTS = {
    "a settlement gives the rest of the reservation back": """
        account run:c/r output_tokens
        account run:c/r concurrent
        account campaign:c requests
        reserve c1 80 -> posted
        balance run:c/r output_tokens 80 0
        balance run:c/r concurrent 1 0
        settle c1 30 -> posted
        balance run:c/r output_tokens 0 30
        balance run:c/r concurrent 0 0
        balance campaign:c requests 0 1
    """,
    "what is lost sight of is charged in full until more is known": """
        account run:c/r output_tokens
        account run:c/r concurrent
        reserve c1 80 -> posted
        expire c1 -> posted
        balance run:c/r output_tokens 0 80
        balance run:c/r concurrent 0 0
        settle c1 30 -> posted
        balance run:c/r output_tokens 0 30
    """,
    "a void gives everything back": """
        account run:c/r total_tokens
        account run:c/r requests
        reserve c1 80 -> posted
        void c1 -> posted
        balance run:c/r total_tokens 0 0
        balance run:c/r requests 0 0
        settle c1 30 -> rejected
    """,
    "an engine that disobeyed is charged in full": """
        account run:c/r output_tokens
        reserve c1 80 -> posted
        settle c1 500 -> posted
        balance run:c/r output_tokens 0 500
    """,
    "a correction moves the charge both ways and may be corrected": """
        account run:c/r output_tokens
        reserve c1 80 -> posted
        adjust c1 9 log -> rejected
        settle c1 30 -> posted
        adjust c1 50 log -> posted
        balance run:c/r output_tokens 0 50
        adjust c1 20 other log -> posted
        balance run:c/r output_tokens 0 20
    """,
    "a command posted twice answers with the entry that stands": """
        account run:c/r output_tokens
        reserve c1 80 -> posted
        reserve c1 80 -> stands
        balance run:c/r output_tokens 80 0
        settle c1 30 -> posted
        settle c1 30 -> stands
        settle c1 99 -> stands
        reserve c1 80 -> stands
        balance run:c/r output_tokens 0 30
        adjust c1 40 log -> posted
        adjust c1 40 log -> stands
        settle c1 30 -> stands
        balance run:c/r output_tokens 0 40
        reserve c2 5 -> posted
        void c2 -> posted
        void c2 -> stands
        reserve c3 5 -> posted
        expire c3 -> posted
        expire c3 -> stands
    """,
    "what may not follow is rejected": """
        settle c1 30 -> rejected
        void c1 -> rejected
        reserve c1 80 -> posted
        settle c1 30 -> posted
        void c1 -> rejected
        expire c1 -> rejected
        reserve c2 80 -> posted
        expire c2 -> posted
        void c2 -> rejected
        reserve c3 1 -> posted
        void c3 -> posted
        expire c3 -> rejected
        adjust c3 1 log -> rejected
    """,
    "a run that closes admits nothing, lets its calls end, and then gets its receipt": """
        account run:c/r output_tokens
        receipt -> rejected
        reserve c1 80 -> posted
        closing -> posted
        closing -> stands
        reserve c2 80 -> rejected
        refuse c3 run.requests -> not written
        receipt -> rejected
        settle c1 30 -> posted
        receipt -> posted 1
        receipt -> stands 1
    """,
    "the next receipt follows a correction, a later result or a late settlement and nothing else": """
        account run:c/r output_tokens
        reserve c1 80 -> posted
        reserve c2 80 -> posted
        settle c1 30 -> posted
        expire c2 -> posted
        closing -> posted
        declare exit=0 -> posted
        receipt -> posted 1
        declare exit=0 -> stands
        receipt -> stands 1
        declare judge=pass -> posted
        receipt -> posted 2
        settle c2 10 -> posted
        receipt -> posted 3
        adjust c2 12 log -> posted
        receipt -> posted 4
        receipt -> stands 4
    """,
    "results that stand are only corrected with a reason": """
        declare exit=0 turn_end=completed -> posted
        declare exit=1 -> rejected
        declare judge=fail -> posted
        declare exit=1 reason=wrapper -> posted
    """,
    "a run with calls was not blocked": """
        declare turn_end=blocked -> posted
        reserve c1 80 -> posted
        declare turn_end=blocked reason=again -> rejected
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name):
    Script().run(SCRIPTS[name])


def opened() -> PaperBooks:
    paper = PaperBooks()
    paper.post(open_campaign())
    paper.post(open_run())
    return paper


def test_a_run_s_chain_begins_with_the_hash_of_its_opening():
    paper = opened()
    opening = next(entry for entry in paper.written if entry.kind == "open_run")
    first = paper.post(reserve("c1", 5)).entries[0]
    assert (opening.chain, first.chain, first.sequence) == ("campaign:c", "run:c/r", 1)
    assert first.previous_hash == opening.hash


def test_a_campaign_s_opening_stands_whole_and_is_vouched_for_in_the_gateway_s_chain():
    opening, line = PaperBooks().post(open_campaign(policy='{"schema":1}', planned_runs=3)).entries
    assert (opening.chain, opening.previous_hash, line.chain) == ("campaign:c", bytes(32), "gateway")
    assert b'"policy":"{\\"schema\\":1}"' in opening.body
    assert opening.hash.hex().encode() in line.body


def test_numbers_rise_over_the_whole_ledger_and_sequences_within_a_chain():
    paper = opened()
    paper.post(open_run("s"))
    for call_id, run in (("a", "r"), ("b", "s"), ("c", "r")):
        paper.post(reserve(call_id, 1, run=run))
    assert [entry.number for entry in paper.written] == list(range(1, len(paper.written) + 1))
    assert [(entry.chain, entry.sequence) for entry in paper.written[-3:]] == [("run:c/r", 1), ("run:c/s", 1), ("run:c/r", 2)]


def test_a_rejected_command_leaves_no_trace():
    paper = opened()
    paper.post(reserve("c1", 5))
    before = (paper.standing.number, {name: (head.sequence, head.hash) for name, head in paper.standing.heads.items()})
    bad = Settle(call_id="c1", at_ms=1, outcome=Outcome.COMPLETED, source=Source.REPORTED, usage=UNKNOWN_USAGE, charge=Amounts(), details={"text": "\ud800"})
    for command in (bad, settle("nobody", 1), reserve("c2", 1, run="other")):
        with pytest.raises(CommandRejected):
            paper.post(command)
    assert before == (paper.standing.number, {name: (head.sequence, head.hash) for name, head in paper.standing.heads.items()})
    assert not paper.post(settle("c1", 3)).standing


@pytest.mark.parametrize("charge", [Amounts(requests=1, concurrent=1), Amounts(requests=-1), Amounts(output_tokens=-5)])
def test_a_charge_is_never_negative_nor_goes_on_being_concurrent(charge):
    paper = opened()
    paper.post(reserve("c1", 5))
    with pytest.raises(CommandRejected):
        paper.post(Settle(call_id="c1", at_ms=1, outcome=Outcome.COMPLETED, source=Source.REPORTED, usage=UNKNOWN_USAGE, charge=charge))


def test_a_halted_campaign_admits_no_call_and_cancels_none():
    paper = opened()
    paper.post(reserve("c1", 5))
    paper.post(Halt(campaign="c", at_ms=5))
    assert paper.post(Halt(campaign="c", at_ms=6)).standing
    with pytest.raises(CommandRejected, match="halted"):
        paper.post(reserve("c2", 5))
    assert not paper.post(settle("c1", 3)).standing
    paper.post(Resume(campaign="c", at_ms=7))
    assert not paper.post(reserve("c2", 5)).standing


def test_another_version_of_the_policy_is_another_campaign():
    paper = opened()
    assert paper.post(open_campaign()).standing
    with pytest.raises(CommandRejected):
        paper.post(open_campaign(policy_hash="cd" * 32))


def test_a_repeated_opening_gives_the_same_run_and_other_arguments_are_an_error():
    paper = opened()
    first = paper.post(open_run("s", idempotency_key="k", arguments_hash="1"))
    again = paper.post(open_run("t", idempotency_key="k", arguments_hash="1"))
    assert again.standing
    assert again.content == first.content
    with pytest.raises(CommandRejected):
        paper.post(open_run("s", idempotency_key="k", arguments_hash="2"))
    with pytest.raises(CommandRejected):
        paper.post(open_run("s"))


def test_a_run_is_counted_at_opening_also_one_that_never_calls():
    paper = PaperBooks()
    paper.post(open_campaign())
    runs = account("campaign:c", "runs")
    paper.post(open_run("a", accounts=(runs,)))
    paper.post(open_run("b", accounts=(runs,)))
    assert paper.balances[runs] == Balance(0, 2)


def test_keys_are_issued_for_open_runs_and_revoked_once():
    paper = opened()
    issue = IssueKey(campaign="c", run="r", lane="foreground", key_id="key-1", digest="00", at_ms=3)
    assert paper.post(issue).entries[0].chain == "campaign:c"
    assert paper.post(issue).standing
    revoke = RevokeKey(key_id="key-1", campaign="c", at_ms=4)
    assert not paper.post(revoke).standing
    assert paper.post(revoke).standing
    paper.post(BeginClosing(campaign="c", run="r", at_ms=5))
    with pytest.raises(CommandRejected):
        paper.post(IssueKey(campaign="c", run="r", lane="foreground", key_id="key-2", digest="01", at_ms=6))


def test_a_closed_campaign_opens_no_run_and_its_receipt_waits_for_its_runs():
    paper = opened()
    paper.post(reserve("c1", 5))
    paper.post(CloseCampaign(campaign="c", at_ms=5))
    with pytest.raises(CommandRejected):
        paper.post(open_run("s"))
    with pytest.raises(CommandRejected, match="open runs"):
        paper.post(WriteReceipt(campaign="c", run="", at_ms=6))
    paper.post(BeginClosing(campaign="c", run="r", at_ms=7))
    early = paper.post(WriteReceipt(campaign="c", run="", at_ms=8))
    assert early.content["unsettled"] == [{"run": "r", "calls": 1}]
    paper.post(settle("c1", 3))
    paper.post(WriteReceipt(campaign="c", run="r", at_ms=9))
    late = paper.post(WriteReceipt(campaign="c", run="", at_ms=10))
    assert (late.content["receipt"], late.content["unsettled"]) == (2, [])
    assert late.content["replaces"] == {"receipt": 1, "hash": early.entries[0].hash.hex()}
    assert paper.post(WriteReceipt(campaign="c", run="", at_ms=11)).standing


def test_declared_results_are_added_to_what_stands():
    paper = opened()
    paper.post(Declare(campaign="c", run="r", at_ms=1, results=Results(exit=0, outcomes=(("tests", "12"),))))
    said = paper.post(Declare(campaign="c", run="r", at_ms=2, results=Results(judge="pass", outcomes=(("lint", "ok"),)))).content
    assert said["results"] == {"exit": 0, "judge": "pass", "outcomes": {"tests": "12", "lint": "ok"}}


QUANTITIES = ("requests", "input_tokens", "output_tokens", "total_tokens", "concurrent", "tool_calls")
ACCOUNTS = tuple(account(named, quantity) for named in ("run:c/r", "campaign:c", "gateway:") for quantity in QUANTITIES)
STEPS = st.lists(st.tuples(st.sampled_from(["reserve", "settle", "void", "expire", "adjust"]), st.sampled_from("abcd"), st.integers(0, 500)), max_size=40)


def command_of(kind: str, call_id: str, tokens: int):
    match kind:
        case "reserve":
            return reserve(call_id, tokens, accounts=ACCOUNTS)
        case "settle":
            return settle(call_id, tokens, prompt=tokens // 2, tool_calls=tokens % 5)
        case "void":
            return Void(call_id=call_id, at_ms=1, reason="connect failed")
        case "expire":
            return Expire(call_id=call_id, at_ms=1, reason="process ended")
    return adjust(call_id, tokens)


@given(STEPS)
@settings(max_examples=150)
def test_balances_are_the_sum_of_postings_and_nothing_is_held_once_every_call_is_closed(steps):
    paper = opened()
    for kind, call_id, tokens in steps:
        try:
            paper.post(command_of(kind, call_id, tokens))
        except CommandRejected:
            continue
    for call_id in list(paper.standing.calls):
        paper.post(settle(call_id, 7))
    sums: dict[Account, Balance] = {}
    for content in paper.contents("run:c/r"):
        for key, reserved, settled in content.get("postings", []):
            sums[account_of(key)] = sums.get(account_of(key), Balance()).plus(reserved, settled)
    assert sums == paper.balances
    assert all(balance.reserved == 0 for balance in paper.balances.values())
    charged = [call.charge for call in (paper.call(name) for name in "abcd") if call is not None and call.charge is not None]
    assert paper.balances.get(ACCOUNTS[0], Balance()).settled == sum(charge.requests for charge in charged)
    assert paper.balances.get(ACCOUNTS[3], Balance()).settled == sum(charge.input_tokens + charge.output_tokens for charge in charged)
    assert paper.balances.get(ACCOUNTS[5], Balance()) == Balance(0, sum(charge.tool_calls for charge in charged))


@given(st.text(max_size=12), st.text(max_size=12))
def test_an_account_is_had_back_from_its_name(model, window):
    plain = window.replace("|", "").replace("\\", "")
    whole = Account(scope=ACCOUNTS[0].scope, subject="c/r", quantity=ACCOUNTS[0].quantity, model=model, window=plain)
    assert account_of(whole.key) == whole


def test_tool_calls_are_held_by_nobody_charged_when_settled_and_moved_by_a_correction():
    paper, tools = opened(), account("run:c/r", "tool_calls")
    for call_id in ("c1", "c2", "c3"):
        paper.post(reserve(call_id, 50, accounts=(tools,)))
    assert paper.balances[tools] == Balance(0, 0)
    paper.post(settle("c1", 5, tool_calls=3))
    paper.post(settle("c2", 5))
    paper.post(Expire(call_id="c3", at_ms=5, reason="process ended"))
    assert paper.balances[tools] == Balance(0, 3)
    paper.post(settle("c3", 5, tool_calls=2))
    assert paper.balances[tools] == Balance(0, 5)
    paper.post(adjust("c1", 5))
    assert paper.balances[tools] == Balance(0, 2)


def test_a_charge_of_fewer_than_no_tool_calls_is_rejected():
    paper = opened()
    paper.post(reserve("c1", 5))
    with pytest.raises(CommandRejected, match="no charge is negative"):
        paper.post(settle("c1", 5, tool_calls=-1))


def test_a_charge_without_tool_calls_is_written_as_before_there_were_any():
    paper = opened()
    paper.post(reserve("c1", 5))
    paper.post(reserve("c2", 5))
    assert "tool_calls" not in paper.post(settle("c1", 5, tool_calls=0)).content["charge"]
    assert paper.post(settle("c2", 5, tool_calls=1)).content["charge"]["tool_calls"] == 1


def test_a_refusal_is_charged_to_nothing():
    posting = opened().post(refuse("c1"))
    assert posting.lines == ()
    assert posting.content["limit"] == {"name": "run.requests", "ceiling": 7, "settled": 7, "reserved": 0, "asked": 1}
