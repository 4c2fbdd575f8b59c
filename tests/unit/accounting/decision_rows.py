"""Rows of the decision table, each with what it says; shared by the table's test and by the mutants that must break one of them."""

from __future__ import annotations

from gateway.accounting.decision import Demand, LimitView, Patience
from gateway.accounting.limit import Account, Balance, Limit, Scope
from gateway.accounting.quantity import Quantity

Row = tuple[str, list[LimitView], Demand, Patience, tuple[object, ...]]


def limit_of(scope: Scope, quantity: Quantity, ceiling: int, lane: str = "", window_end_ms: int | None = None) -> Limit:
    account = Account(scope=scope, subject="" if scope is Scope.GATEWAY else "c", quantity=quantity, lane=lane, window="day" if window_end_ms else "")
    name = ".".join(part for part in (scope.value, lane, account.window, quantity.value) if part)
    return Limit(name=name, account=account, ceiling=ceiling, window_end_ms=window_end_ms)


def demand_of(
    want: int = 100,
    *,
    prompt: int = 10,
    multiple: int = 1,
    least: int | None = None,
    enough: int = 40,
    exact: bool = True,
    lowered: bool = False,
    countable: bool = True,
) -> Demand:
    return Demand(
        prompt_tokens=prompt,
        exact=exact,
        can_count=not exact and countable,
        multiple=multiple,
        want=want,
        least=min(want, 10 * multiple) if least is None else least,
        bound_lowered_want=lowered,
        ceiling_from="asked",
        enough=enough,
    )


def one(quantity: Quantity, ceiling: int, settled: int = 0, reserved: int = 0, scope: Scope = Scope.RUN, **more: int | bool) -> LimitView:
    return LimitView(limit=limit_of(scope, quantity, ceiling), balance=Balance(reserved, settled), **more)  # type: ignore[arg-type]


O, T, R, I, C = Quantity.OUTPUT_TOKENS, Quantity.TOTAL_TOKENS, Quantity.REQUESTS, Quantity.INPUT_TOKENS, Quantity.CONCURRENT  # noqa: E741
U = Quantity.TOOL_CALLS

TABLE: list[Row] = [
    # what the row says, limits, demand, patience, verdict
    ("a prompt is not part of an output limit's need", [one(O, 20_000)], demand_of(1_000, prompt=30_000), Patience.REACH, ("send", 1_000, None)),
    (
        "across quantities there is no tightest limit: a spent request limit refuses",
        [one(R, 1, 1), one(T, 2 + 10)],
        demand_of(4),
        Patience.REACH,
        ("final", "run.requests"),
    ),
    ("the run's own reservations count", [one(O, 1_500, 0, 1_500)], demand_of(1_000), Patience.LEAST, ("wait", "run.output_tokens", 10)),
    ("a bound decides nothing but a plain send", [one(I, 30_000)], demand_of(100, prompt=36_000, exact=False), Patience.REACH, ("count",)),
    ("an exact prompt that can never fit is final", [one(I, 30_000)], demand_of(100, prompt=36_000), Patience.REACH, ("final", "run.input_tokens")),
    ("a spent limit needs no count", [one(I, 30_000, 30_000)], demand_of(100, prompt=36_000, exact=False), Patience.REACH, ("final", "run.input_tokens")),
    ("requests held by running calls are not waited for", [one(R, 1, 0, 1)], demand_of(), Patience.REACH, ("final", "run.requests")),
    ("a place among the concurrent is waited for", [one(C, 1, 0, 1)], demand_of(), Patience.LEAST, ("wait", "run.concurrent", 10)),
    ("clamped at once to what is left for good", [one(O, 100, 40)], demand_of(100), Patience.REACH, ("send", 60, "run.output_tokens")),
    ("not clamped at once for what others only hold", [one(O, 100, 0, 50)], demand_of(100), Patience.REACH, ("wait", "run.output_tokens", 100)),
    ("clamped to enough after a while", [one(O, 100, 0, 50)], demand_of(100), Patience.ENOUGH, ("send", 50, "run.output_tokens")),
    ("never clamped to a stub before the wait is over", [one(O, 100, 0, 70)], demand_of(100), Patience.ENOUGH, ("wait", "run.output_tokens", 40)),
    ("but then it is", [one(O, 100, 0, 70)], demand_of(100), Patience.LEAST, ("send", 30, "run.output_tokens")),
    ("less than least is left for good", [one(O, 100, 95)], demand_of(100), Patience.REACH, ("final", "run.output_tokens")),
    ("a fair part where others wait", [one(O, 300, 90, 0, other_flows=2)], demand_of(300), Patience.REACH, ("send", 70, "run.output_tokens")),
    ("no less than enough", [one(O, 300, 210, 0, other_flows=2)], demand_of(300), Patience.REACH, ("send", 40, "run.output_tokens")),
    ("all of it at the end of the wait", [one(O, 300, 90, 0, other_flows=2)], demand_of(300), Patience.LEAST, ("send", 210, "run.output_tokens")),
    ("rounded to choices times prompts", [one(O, 100, 1, 0)], demand_of(120, multiple=4), Patience.REACH, ("send", 96, "run.output_tokens")),
    ("a window that opens in time is waited for", [one(O, 100, 99, 0, reopens=True)], demand_of(100), Patience.ENOUGH, ("wait", "run.output_tokens", 40)),
    ("a total holds the prompt too", [one(T, 60)], demand_of(100, prompt=10), Patience.REACH, ("send", 50, "run.total_tokens")),
    (
        "what is settled is named before what is only held",
        [one(O, 100, 0, 40), one(O, 100, 40, 0, Scope.CAMPAIGN)],
        demand_of(100),
        Patience.REACH,
        ("send", 60, "campaign.output_tokens"),
    ),
    ("a call that needs nothing of a limit passes it", [one(T, 10, 0, 15)], demand_of(4, prompt=0, least=0), Patience.LEAST, ("send", 0, "run.total_tokens")),
    ("asked for nothing, an output limit does not concern it", [one(O, 5, 5)], demand_of(0, prompt=10), Patience.REACH, ("send", 0, None)),
    (
        "of several the narrowest is named",
        [one(O, 60, scope=Scope.GATEWAY), one(O, 60, scope=Scope.CAMPAIGN)],
        demand_of(100),
        Patience.REACH,
        ("send", 60, "campaign.output_tokens"),
    ),
    # tool calls: one left is enough, and nobody holds any
    ("one tool call left is enough, whatever runs", [one(U, 5, 4)], demand_of(), Patience.REACH, ("send", 100, None)),
    ("no tool call left is final", [one(U, 5, 5)], demand_of(), Patience.REACH, ("final", "run.tool_calls")),
    ("an answer may have gone past it", [one(U, 5, 7)], demand_of(0, prompt=0), Patience.LEAST, ("final", "run.tool_calls")),
    ("tool calls of a day about to end are waited for", [one(U, 5, 5, reopens=True)], demand_of(), Patience.ENOUGH, ("wait", "run.tool_calls", 40)),
    ("spent tool calls need no count", [one(U, 5, 5)], demand_of(exact=False), Patience.REACH, ("final", "run.tool_calls")),
    # one off, each way
    ("exactly enough is sent as it is", [one(O, 150, 20, 30)], demand_of(100), Patience.REACH, ("send", 100, None)),
    ("a bound that fits to the last token is sent", [one(O, 150, 20, 30)], demand_of(100, exact=False), Patience.REACH, ("send", 100, None)),
    ("a bound is not counted for a limit of which it needs nothing", [one(I, 5, 5)], demand_of(prompt=0, exact=False), Patience.REACH, ("send", 100, None)),
    ("a total with room for the output alone", [one(T, 105)], demand_of(100, prompt=10), Patience.REACH, ("send", 95, "run.total_tokens")),
    ("one too few is not", [one(O, 149, 20, 30)], demand_of(100), Patience.REACH, ("wait", "run.output_tokens", 100)),
    ("what is set aside for another is not there", [one(O, 150, 20, 30, aside=1)], demand_of(100), Patience.REACH, ("wait", "run.output_tokens", 100)),
    ("the last request", [one(R, 3, 1, 1)], demand_of(), Patience.REACH, ("send", 100, None)),
    ("the last place among the concurrent", [one(C, 3, 0, 2)], demand_of(), Patience.REACH, ("send", 100, None)),
    ("an exact prompt that just fits", [one(I, 30, 10, 10)], demand_of(100, prompt=10), Patience.REACH, ("send", 100, None)),
    (
        "an exact prompt that is one above what others leave now",
        [one(I, 29, 10, 10)],
        demand_of(100, prompt=10),
        Patience.REACH,
        ("wait", "run.input_tokens", 100),
    ),
    ("an exact prompt that is one above what is left for good", [one(I, 19, 10, 5)], demand_of(100, prompt=10), Patience.LEAST, ("final", "run.input_tokens")),
    ("just least is left for good", [one(O, 100, 90)], demand_of(100), Patience.REACH, ("send", 10, "run.output_tokens")),
    ("one less than least", [one(O, 100, 91)], demand_of(100), Patience.REACH, ("final", "run.output_tokens")),
    ("one token left of a limit is not nothing left", [one(O, 100, 99)], demand_of(100, least=1), Patience.REACH, ("send", 1, "run.output_tokens")),
    ("just enough is free", [one(O, 100, 0, 60)], demand_of(100), Patience.ENOUGH, ("send", 40, "run.output_tokens")),
    ("one less than enough", [one(O, 100, 0, 61)], demand_of(100), Patience.ENOUGH, ("wait", "run.output_tokens", 40)),
    ("just least is free at the end", [one(O, 100, 0, 90)], demand_of(100), Patience.LEAST, ("send", 10, "run.output_tokens")),
    ("one less than least at the end", [one(O, 100, 0, 91)], demand_of(100), Patience.LEAST, ("wait", "run.output_tokens", 10)),
    ("enough is no more than what is left for good", [one(O, 100, 70, 5)], demand_of(100), Patience.ENOUGH, ("wait", "run.output_tokens", 30)),
    (
        "least goes before an enough that is smaller",
        [one(O, 100, 0, 45)],
        demand_of(100, least=60, enough=20),
        Patience.ENOUGH,
        ("wait", "run.output_tokens", 60),
    ),
    (
        "a fair part is never less than least",
        [one(O, 300, 200, other_flows=9)],
        demand_of(300, least=80, enough=20),
        Patience.REACH,
        ("send", 80, "run.output_tokens"),
    ),
    ("a fair part is rounded to choices", [one(O, 310, 0, 0, other_flows=2)], demand_of(400, multiple=4), Patience.REACH, ("send", 100, "run.output_tokens")),
    ("a bound that lowered want is counted though all of it is free", [one(O, 500)], demand_of(50, exact=False, lowered=True), Patience.REACH, ("count",)),
    ("a bound without a counter decides", [one(I, 5)], demand_of(50, exact=False, countable=False), Patience.REACH, ("final", "run.input_tokens")),
    ("a total that leaves the prompt and no output", [one(T, 10)], demand_of(100, prompt=10, least=0), Patience.REACH, ("send", 0, "run.total_tokens")),
    ("a total one short of the prompt", [one(T, 9)], demand_of(100, prompt=10, least=0), Patience.REACH, ("final", "run.total_tokens")),
    (
        "a spent limit of which nothing is needed does not refuse",
        [one(I, 5, 5), one(O, 60)],
        demand_of(100, prompt=0),
        Patience.REACH,
        ("send", 60, "run.output_tokens"),
    ),
    (
        "of several spent ones the narrowest is named",
        [one(R, 1, 1, scope=Scope.CAMPAIGN), one(R, 1, 1)],
        demand_of(),
        Patience.REACH,
        ("final", "run.requests"),
    ),
    ("a window that reopens gives all of it once more", [one(R, 1, 1, reopens=True)], demand_of(), Patience.LEAST, ("wait", "run.requests", 10)),
]
