"""Nothing that a limit counts exactly is ever one over, whatever comes in between: real decisions over real books, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.commands import Adjust, Expire, Reserve, Settle, Void
from gateway.accounting.decision import Count, Demand, Final, LimitView, Patience, Send, Wait, decide
from gateway.accounting.limit import Account, Balance, Limit, Scope
from gateway.accounting.quantity import Amounts, Quantity, measure
from gateway.accounting.usage import Outcome, Source, Usage
from tests.support.paper_books import PaperBooks, open_campaign, open_run, reserve

CALLED = (Quantity.REQUESTS, Quantity.INPUT_TOKENS, Quantity.OUTPUT_TOKENS, Quantity.TOTAL_TOKENS, Quantity.CONCURRENT, Quantity.TOOL_CALLS)
EXACT = (Quantity.REQUESTS, Quantity.INPUT_TOKENS, Quantity.OUTPUT_TOKENS, Quantity.TOTAL_TOKENS, Quantity.CONCURRENT, Quantity.RUNS)
SUBJECTS = {Scope.RUN: "c/r", Scope.CAMPAIGN: "c", Scope.GATEWAY: ""}


@st.composite
def limits(draw: st.DrawFn) -> list[Limit]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(list(SUBJECTS)), st.sampled_from(CALLED)), min_size=1, max_size=6, unique=True))
    found = []
    for scope, quantity in kinds:
        account = Account(scope=scope, subject=SUBJECTS[scope], quantity=quantity)
        few = quantity in (Quantity.REQUESTS, Quantity.CONCURRENT, Quantity.TOOL_CALLS)
        found.append(Limit(name=f"{scope}.{quantity}", account=account, ceiling=draw(st.integers(0, 5 if few else 120))))
    return found


@dataclass
class World:
    """Many callers, each step of one of them at a time, in the order that the test draws."""

    limits: list[Limit]
    paper: PaperBooks = field(default_factory=PaperBooks)
    running: dict[str, Reserve] = field(default_factory=dict)
    sent: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.paper.post(open_campaign())
        self.paper.post(open_run())

    def balance(self, limit: Limit) -> Balance:
        return self.paper.balances.get(limit.account, Balance())

    def arrive(self, call_id: str, prompt: int, want: int, multiple: int, patience: Patience) -> None:
        demand = Demand(
            prompt_tokens=prompt,
            exact=True,
            can_count=True,
            multiple=multiple,
            want=want * multiple,
            least=min(want, 3) * multiple,
            bound_lowered_want=False,
            ceiling_from="asked",
            enough=5 * multiple,
        )
        before = {limit.name: self.balance(limit) for limit in self.limits}
        decision = decide([LimitView(limit=limit, balance=before[limit.name]) for limit in self.limits], demand, patience)
        match decision:
            case Send():
                command = reserve(call_id, decision.output, prompt, accounts=tuple(limit.account for limit in self.limits))
                if not self.paper.post(command).standing:
                    self.running[call_id] = command
                    self.sent += 1
                for limit in self.limits:
                    if limit.account.quantity is Quantity.TOOL_CALLS:
                        assert before[limit.name].settled < limit.ceiling, "a call was sent though no tool call was left"
            case Final() | Wait():
                self.refused += 1
            case Count():
                raise AssertionError("the prompt is exact")

    def end(self, how: str, part: float, tools: int) -> None:
        if not self.running:
            return
        call_id, held = next(iter(self.running.items()))
        del self.running[call_id]
        output = round(held.amounts.output_tokens * part)
        charge = Amounts(requests=1, input_tokens=held.amounts.input_tokens, output_tokens=output, tool_calls=tools)
        usage = Usage(input_tokens=charge.input_tokens, output_tokens=output, tool_calls=tools)
        settled = Settle(call_id=call_id, at_ms=4, outcome=Outcome.COMPLETED, source=Source.REPORTED, usage=usage, charge=charge)
        match how:
            case "settle":
                self.paper.post(settled)
            case "void":
                self.paper.post(Void(call_id=call_id, at_ms=4, reason="connect failed"))
            case "expire":
                self.paper.post(Expire(call_id=call_id, at_ms=4, reason="lost"))
            case "expire, then settle":
                self.paper.post(Expire(call_id=call_id, at_ms=4, reason="lost"))
                self.paper.post(settled)
            case "settle, then less":
                self.paper.post(settled)
                less = Amounts(requests=1, input_tokens=charge.input_tokens, output_tokens=output // 2, tool_calls=tools // 2)
                self.paper.post(Adjust(call_id=call_id, at_ms=5, usage=usage, charge=less, reason="counted twice", evidence="log"))

    def check(self) -> None:
        held = {call_id: command.amounts for call_id, command in self.running.items()}
        for limit in self.limits:
            quantity, balance = limit.account.quantity, self.balance(limit)
            expected = 0 if quantity is Quantity.TOOL_CALLS else sum(measure(quantity, amounts) for amounts in held.values())
            assert balance.reserved == expected, f"{limit.name} holds what no running call holds"
            if quantity in EXACT:
                assert balance.reserved + balance.settled <= limit.ceiling, f"{limit.name} is over"


HOW = st.sampled_from(["settle", "void", "expire", "expire, then settle", "settle, then less"])
ARRIVALS = st.tuples(st.just("arrive"), st.integers(0, 30), st.integers(0, 40), st.integers(1, 3), st.sampled_from(Patience))
ENDS = st.tuples(st.just("end"), HOW, st.floats(0, 1), st.integers(0, 3))


@given(limits(), st.lists(st.one_of(ARRIVALS, ARRIVALS, ENDS), min_size=5, max_size=60))
@settings(max_examples=120, deadline=None)
def test_no_interleaving_of_arrivals_and_endings_puts_a_limit_one_over(limits: list[Limit], steps: list[tuple[object, ...]]) -> None:
    world = World(limits)
    for number, step in enumerate(steps):
        if step[0] == "arrive":
            world.arrive(f"c{number}", *step[1:])  # type: ignore[arg-type]
        else:
            world.end(*step[1:])  # type: ignore[arg-type]
        world.check()
    while world.running:
        world.end("settle", 1.0, 0)
    world.check()
    assert all(world.balance(limit).reserved == 0 for limit in limits)


@given(st.integers(0, 6), st.lists(st.booleans(), max_size=20))
@settings(max_examples=60, deadline=None)
def test_runs_are_opened_to_the_last_one_that_is_left_and_never_one_more(ceiling: int, calls: list[bool]) -> None:
    """Decided as openings are: one more must fit. A run that never calls counts too."""
    paper, runs = PaperBooks(), Account(scope=Scope.CAMPAIGN, subject="c", quantity=Quantity.RUNS)
    paper.post(open_campaign())
    opened = 0
    for number, it_calls in enumerate(calls):
        if ceiling - paper.balances.get(runs, Balance()).settled < 1:
            continue
        paper.post(open_run(f"r{number}", accounts=(runs,)))
        opened += 1
        if it_calls:
            paper.post(reserve(f"c{number}", 5, run=f"r{number}"))
    assert opened == paper.balances.get(runs, Balance()).settled == min(ceiling, len(calls))


@given(st.integers(1, 6), st.lists(st.integers(0, 3), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_one_caller_after_the_other_never_gets_a_call_once_its_tool_calls_are_spent(ceiling: int, answers: list[int]) -> None:
    limit = Limit(name="run.tool_calls", account=Account(scope=Scope.RUN, subject="c/r", quantity=Quantity.TOOL_CALLS), ceiling=ceiling)
    world, called = World([limit]), 0
    for number, tools in enumerate(answers):
        world.arrive(f"c{number}", 1, 10, 1, Patience.REACH)
        assert bool(world.running) == (called < ceiling), "the answer that crosses is delivered, the next call is refused"
        if world.running:
            world.end("settle", 0.5, tools)
            called += tools
    assert world.balance(limit) == Balance(0, called)


def test_two_hundred_callers_at_once_take_exactly_what_there_is() -> None:
    for quantity, ceiling, each in (
        (Quantity.REQUESTS, 140, 1),
        (Quantity.CONCURRENT, 16, 1),
        (Quantity.OUTPUT_TOKENS, 1_000, 10),
        (Quantity.TOTAL_TOKENS, 999, 11),
    ):
        limit = Limit(name=f"campaign.{quantity}", account=Account(scope=Scope.CAMPAIGN, subject="c", quantity=quantity), ceiling=ceiling)
        world = World([limit])
        for number in range(200):
            world.arrive(f"c{number}", 1, 10, 1, Patience.REACH)
        held = world.balance(limit).reserved
        assert held <= ceiling < held + each, f"{quantity}: all that fits was given, and no more"
