"""The check of the ledger's order fails if either order breaks: shown on traces whose lines were moved."""

from __future__ import annotations

import pytest

from tests.support.order import calls_of, faults, steps_of
from tests.support.strace import parse

ENGINE = "TCP:[127.0.0.1:38622->127.0.0.1:9001]"
AGENT = "TCP:[127.0.0.1:8080->127.0.0.1:54428]"
OTHER_AGENT = "TCP:[127.0.0.1:8080->127.0.0.1:54429]"
WAL = "/l/gateway.ledger-wal"
HEAD = r"HTTP/1.1 200 OK\r\nx-request-id: {}\r\nContent-Type: {}\r\n\r\n"
A, B = "call-0a", "call-0b"


def wrote(kind: str, call: str) -> str:
    return rf'20 1.0 pwrite64(14<{WAL}>, "\r\0\0\0\1{kind}\1\242\"\210\216\333{call}{{\"at_ms\":1}}", 4096, 0) = 4096'


def sent(call: str) -> str:
    return rf'10 1.0 write(19<{ENGINE}>, "POST /v1/chat/completions HTTP/1.1\r\nX-Request-Id: {call}\r\n\r\n{{}}", 9) = 9'


def to_agent(data: str, agent: str = AGENT) -> str:
    return f'10 1.0 write(22<{agent}>, "{data}", 9) = 9'


SYNC = f"20 1.0 fdatasync(14<{WAL}>) = 0"
SYNC_OF_ANOTHER_FILE = "20 1.0 fdatasync(15</l/other>) = 0"
SYNC_THAT_FAILED = f"20 1.0 fdatasync(14<{WAL}>) = -1 EIO (Input/output error)"
SYNC_BEGINS = f"20 1.0 fdatasync(14<{WAL}> <unfinished ...>"
SYNC_RETURNS = "20 1.0 <... fdatasync resumed>) = 0"
DONE = to_agent(r"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
STREAM = [
    rf'10 1.0 write(19<{ENGINE}>, "POST /apply-template HTTP/1.1\r\n\r\n", 9) = 9',
    wrote("reserve", A),
    SYNC,
    sent(A),
    to_agent(HEAD.format(A, "text/event-stream")),
    to_agent(r"9\r\ndata: {}\n\n\r\n"),
    wrote("settle", A),
    SYNC,
    DONE,
]
WHOLE_ANSWER = to_agent(HEAD.format(B, "application/json") + "{}", OTHER_AGENT)
WHOLE = [wrote("reserve", B), SYNC, sent(B), wrote("settle", B), SYNC, WHOLE_ANSWER]


def found(lines: list[str]) -> list[str]:
    steps = steps_of(parse(lines), ledger="/l/gateway.ledger", data_port=8080, engine_port=9001)
    assert calls_of(steps, "sent")
    return faults(steps)


def with_line(lines: list[str], place: int, *instead: str) -> list[str]:
    return [*lines[:place], *instead, *lines[place + 1 :]]


def moved(lines: list[str], line: str, to: int) -> list[str]:
    rest = [one for one in lines if one != line]
    return [*rest[:to], line, *rest[to:]]


def test_a_trace_in_order_passes_and_all_of_it_was_seen() -> None:
    assert found(STREAM) == found(WHOLE) == found([*STREAM, *WHOLE]) == []
    steps = steps_of(parse(STREAM), ledger="/l/gateway.ledger", data_port=8080, engine_port=9001)
    assert [step.what for step in steps] == ["helper", "wrote reserve", "synced", "sent", "wrote settle", "synced", "ended"]


@pytest.mark.parametrize(("lines", "call"), [(STREAM, A), (WHOLE, B)])
def test_a_call_that_is_sent_before_it_is_reserved_is_found(lines: list[str], call: str) -> None:
    assert found(moved(lines, sent(call), 0)) == [f"{call} was sent before its ledger wrote reserve"]
    without = [line for line in lines if line != wrote("reserve", call)]
    assert found(without) == [f"{call} was sent before its ledger wrote reserve"]


def test_a_call_that_is_sent_before_the_sync_of_its_entry_is_found() -> None:
    wanted = [f"{A} was sent after its ledger wrote reserve and before a sync returned"]
    assert found(moved(STREAM, sent(A), 2)) == wanted
    assert found(with_line(STREAM, 2)) == wanted
    assert found(with_line(STREAM, 2, SYNC_OF_ANOTHER_FILE)) == wanted
    assert found(with_line(STREAM, 2, SYNC_THAT_FAILED)) == wanted


def test_a_call_that_is_sent_while_the_sync_still_runs_is_found() -> None:
    lines = [*STREAM[:2], SYNC_BEGINS, sent(A), SYNC_RETURNS, *STREAM[4:]]
    assert found(lines) == [f"{A} was sent after its ledger wrote reserve and before a sync returned"]
    assert found([*STREAM[:2], SYNC_BEGINS, SYNC_RETURNS, *STREAM[3:]]) == []


def test_a_sync_that_began_before_the_entry_was_written_does_not_count() -> None:
    lines = [STREAM[0], SYNC_BEGINS.replace("20 ", "21 "), STREAM[1], SYNC_RETURNS.replace("20 ", "21 "), *STREAM[3:]]
    assert found(lines) == [f"{A} was sent after its ledger wrote reserve and before a sync returned"]


@pytest.mark.parametrize(("lines", "call", "end"), [(STREAM, A, DONE), (WHOLE, B, WHOLE_ANSWER)])
def test_an_answer_that_is_ended_before_it_is_settled_is_found(lines: list[str], call: str, end: str) -> None:
    settled = lines.index(wrote("settle", call))
    assert found(moved(lines, end, settled)) == [f"{call} was ended before its ledger wrote settle"]
    assert found(moved(lines, end, settled + 1)) == [f"{call} was ended after its ledger wrote settle and before a sync returned"]


def test_the_first_byte_of_the_terminal_event_counts_where_it_goes_out_in_two_sends() -> None:
    first, second = to_agent(r"e\r\ndata: [DO"), to_agent(r"NE]\n\n\r\n0\r\n\r\n")
    assert found([*STREAM[:6], first, *STREAM[6:8], second]) == [f"{A} was ended before its ledger wrote settle"]
    assert found([*STREAM[:8], first, second]) == []


def test_an_error_event_is_an_end_as_well() -> None:
    error = to_agent(r"9\r\ndata: {\"error\":{}}\n\n\r\n")
    assert found([*STREAM[:8], error, DONE]) == []
    assert found([*STREAM[:6], error, *STREAM[6:]]) == [f"{A} was ended before its ledger wrote settle"]


def test_another_calls_sync_serves_only_what_was_written_before_it() -> None:
    both = [wrote("reserve", A), SYNC, wrote("reserve", B), sent(A), sent(B), SYNC, *STREAM[4:], *WHOLE[3:]]
    assert found(both) == [f"{B} was sent after its ledger wrote reserve and before a sync returned"]


def test_a_second_answer_on_the_same_connection_is_a_call_of_its_own() -> None:
    second = [line.replace(OTHER_AGENT, AGENT) for line in WHOLE]
    assert found([*STREAM, *second]) == []
    assert found([*STREAM, *moved(second, second[-1], 3)]) == [f"{B} was ended before its ledger wrote settle"]
