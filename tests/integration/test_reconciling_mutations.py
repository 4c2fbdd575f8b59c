"""One row removed, added, altered, swapped or slipped in: exactly one finding of the right class, whoever wrote the record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.accounting.usage import UNKNOWN_USAGE
from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.known_ids import read_known
from gateway.reconcile.ledger_side import read_ledger
from gateway.reconcile.match import Match
from gateway.reconcile.matching import match
from gateway.reconcile.record import DispatchRecord, RecordKind
from tests.support.dispatch_ledger import commands_of, open_campaign, server_log, write_ledger
from tests.support.dispatch_samples import SAMPLES, records
from tests.support.reconciled import Sample, sample

SAMPLES_OK = sorted(f"{log.parent.parent.name}/{log.parent.name}" for log in SAMPLES.glob("*/ok*/mock-requests.jsonl") if not log.parts[-3].startswith("sdk"))
MEASURED = [name for name in SAMPLES_OK if not name.startswith("aider")]
"""Where the record holds more than the agent's own estimate."""
WITH_IDS = [name for name in MEASURED if not name.startswith("gemini")]
HOUR_MS = 3_600_000
_HEX = str.maketrans("0123456789abcdef", "123456789abcdef0")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sample]:
    kept: dict[str, Sample] = {}

    def of(name: str) -> Sample:
        if name not in kept:
            kept[name] = sample(name, tmp_path_factory.mktemp("sample"))
        return kept[name]

    return of


def answers(of: Sample) -> list[int]:
    return [place for place, row in enumerate(of.rows) if row.kind is RecordKind.ANSWER]


def strange(ident: str) -> str:
    """Another id of the same form."""
    head, tail = re.fullmatch(r"(.*[-_])?([^-_]*)", ident).groups()  # type: ignore[union-attr]
    return (head or "") + tail.translate(_HEX)


def elsewhere(row: DispatchRecord, later_ms: int = 0) -> DispatchRecord:
    """What another run's row of the same kind would be."""
    moved = {name: getattr(row, name) + later_ms for name in ("begun_ms", "at_ms") if getattr(row, name) is not None}
    ids = {name: tuple(map(strange, getattr(row, name))) for name in ("item_ids", "tool_call_ids", "request_ids", "session_ids")}
    return replace(row, response_id=strange(row.response_id), **ids, **moved)


def shown(found: list[Match]) -> list[str]:
    return [each.name.value for each in found]


@pytest.mark.parametrize("name", MEASURED)
def test_a_row_that_was_removed_is_one_lost_record(name: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    for place in answers(of):
        found = of.findings([*of.rows[:place], *of.rows[place + 1 :]])
        assert shown(found) == ["record_lost"]
        wanted = of.rows[place].response_id
        assert not wanted or found[0].call.response_id == wanted  # type: ignore[union-attr]


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"])
@pytest.mark.parametrize("name", MEASURED)
def test_a_number_that_was_altered_is_one_difference_that_names_field_and_both(name: str, field: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    for place in answers(of):
        row = of.rows[place]
        value = getattr(row.usage, field)
        if value is None:
            continue
        altered = replace(row, usage=replace(row.usage, **{field: value + 7}))
        found = of.findings([*of.rows[:place], altered, *of.rows[place + 1 :]])
        assert shown(found) == ["differs"]
        assert [str(each) for each in found[0].differences] == [f"{field}: ledger {value}, record {value + 7}"]


@pytest.mark.parametrize("name", WITH_IDS)
def test_an_id_that_was_altered_is_one_difference(name: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    for place in answers(of):
        row = of.rows[place]
        if not (row.response_id or row.tool_call_ids or row.item_ids):
            continue
        altered = (
            replace(row, response_id=strange(row.response_id))
            if row.response_id
            else replace(row, tool_call_ids=tuple(map(strange, row.tool_call_ids)), item_ids=tuple(map(strange, row.item_ids)))
        )
        found = of.findings([*of.rows[:place], altered, *of.rows[place + 1 :]])
        assert shown(found) == ["differs"]
        assert {each.field for each in found[0].differences} <= {"response_id", "tool_call_ids", "item_ids"}


@pytest.mark.parametrize("name", MEASURED)
def test_a_model_that_was_altered_is_one_difference(name: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    for place in answers(of):
        found = of.findings([*of.rows[:place], replace(of.rows[place], model="another-model"), *of.rows[place + 1 :]])
        assert shown(found) == ["differs"]
        assert [each.field for each in found[0].differences] == ["model"]


@pytest.mark.parametrize("name", [name for name in MEASURED if not name.endswith("sigint")])
def test_two_rows_with_their_usage_swapped_are_two_differences(name: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    first, second = answers(of)[:2]
    rows = list(of.rows)
    rows[first], rows[second] = replace(rows[first], usage=rows[second].usage), replace(rows[second], usage=rows[first].usage)
    found = of.findings(rows)
    assert shown(found) == ["differs", "differs"]
    assert all({"input_tokens", "output_tokens"} <= {each.field for each in one.differences} for one in found)


@pytest.mark.parametrize("name", SAMPLES_OK)
def test_a_row_that_was_added_is_one_finding_and_an_alarm_where_it_bears_an_engines_id(name: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    for place in answers(of):
        row = of.rows[place]
        added = replace(
            elsewhere(row, 2_000), source=f"{row.source}9", order=len(of.rows), usage=replace(row.usage, output_tokens=77), session_ids=row.session_ids
        )
        bears = added.response_id or added.item_ids or added.tool_call_ids
        engines = bears and not name.startswith("gemini")
        expected = ["ambiguous", "unidentified"] if row.usage_is_own else ["foreign"] if engines else ["unidentified"]  # an estimate: by its second
        (found,) = shown(of.findings([*of.rows, added]))
        assert found in expected


@pytest.mark.parametrize("name", MEASURED)
def test_a_row_that_says_again_what_another_says_is_one_finding(name: str, made: Callable[[str], Sample]) -> None:
    of = made(name)
    for place in answers(of):
        row = of.rows[place]
        again = replace(row, source=f"{row.source}9", order=len(of.rows))
        assert shown(of.findings([*of.rows, again])) == ["ambiguous"], row.source


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sample]:
    """The sample's run `r`, and an hour later a run `s` of the same agent with ids of its own."""

    def of(name: str) -> Sample:
        folder = tmp_path_factory.mktemp("two")
        log = server_log(SAMPLES / name / "mock-requests.jsonl")
        other = [json.loads(re.sub(r'"[^"]*"', lambda text: _other(text[0]), json.dumps(line))) for line in log]
        for line in other:
            line["t_start"] += HOUR_MS / 1000
            line["t_end"] = (line.get("t_end") or line["t_start"]) + HOUR_MS / 1000
        start = round(log[0]["t_start"] * 1000) - 2_000
        ledger = write_ledger(folder / "ledger.db", [open_campaign("c", start), *commands_of(log), *commands_of(other, run="s")])
        return sample(name, folder, ledger)

    return of


_IDS = re.compile(r'"((?:chatcmpl|resp|msg|call|toolu|fc|req)[-_][0-9a-f]{20,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ses_\w+|gem[0-9a-f]+)"')


def _other(text: str) -> str:
    return f'"{strange(text[1:-1])}"' if _IDS.fullmatch(text) else text


@pytest.mark.parametrize("name", SAMPLES_OK)
def test_a_row_of_another_run_that_was_slipped_in_is_one_finding(name: str, two_runs: Callable[[str], Sample]) -> None:
    of = two_runs(name)
    for place in answers(of):
        row = elsewhere(of.rows[place], HOUR_MS)
        slipped = replace(row, source=f"{row.source}9", order=len(of.rows))
        expected = "unidentified" if row.usage_is_own else "other_run"  # without an id, by its numbers and time
        assert shown(of.findings([*of.rows, slipped])) == [expected]


@pytest.mark.parametrize("name", WITH_IDS)
def test_a_whole_record_of_another_run_in_the_same_folder_is_no_finding(name: str, two_runs: Callable[[str], Sample]) -> None:
    of = two_runs(name)
    others = [replace(elsewhere(row, HOUR_MS), source=re.sub(r"/[^/]*$", "/other.jsonl:1", row.source), session="other") for row in of.rows]
    matches = of.matched([*of.rows, *others])
    assert [each.name.value for each in matches if not each.explained] == []
    assert sum(each.name == "other_session" for each in matches) >= len(answers(of))


def test_a_record_of_another_time_that_the_ledger_never_heard_of_is_no_alarm(made: Callable[[str], Sample]) -> None:
    of = made("claude/ok")
    long_ago = [replace(elsewhere(row, -24 * HOUR_MS), source="/home/agent/old.jsonl:1", session="old") for row in of.rows]
    assert of.findings([*of.rows, *long_ago]) == []
    meanwhile = [replace(elsewhere(row), source="/home/agent/past.jsonl:1", session="past") for row in of.rows]
    assert shown(of.findings([*of.rows, *meanwhile])) == ["foreign", "foreign"]


LINES = {"claude/ok": '"message"', "codex/ok": "token_usage_record", "qwen/ok": "ui_telemetry", "gemini/ok": '"type": "gemini"', "pi/ok": '"responseId"'}
"""Of formats of lines: what the lines have in common that hold an answer's usage."""


@pytest.mark.parametrize("name", [name for name in LINES if name != "codex/ok"])
def test_a_line_of_the_file_itself_altered_or_removed_is_one_finding(name: str, tmp_path: Path) -> None:
    of = sample(name, tmp_path / "first")
    for number in range(len(answers(of))):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = records(name, folder)
        last = of.rows[answers(of)[number]]
        file = folder / last.source.rpartition(":")[0].rpartition("/")[2]
        lines = file.read_text().splitlines(keepends=True)
        output = last.usage.output_tokens
        assert output is not None
        wrong = [re.sub(rf"\b{_written(name, output)}\b", "977", line) if LINES[name] in line and _of(line, last) else line for line in lines]
        assert wrong != lines
        file.write_text("".join(wrong))
        rows = find_records(files).read().records
        assert shown(of.findings(rows)) == ["differs"]
        file.write_text("".join(line for line in lines if not (LINES[name] in line and _of(line, last))))
        told_again = name == "qwen/ok"  # its monthly file says the same
        assert shown(of.findings(find_records(files).read().records)) == ([] if told_again else ["record_lost"])


def _written(name: str, output: int) -> int:
    return 35 if name == "gemini/ok" else output  # the samples' candidates; thoughts come on top


def _of(line: str, row: DispatchRecord) -> bool:
    """Whether a line is one of those that the row is made of."""
    known = [each for each in (row.response_id, *row.tool_call_ids) if each and "__" not in each]
    return any(each in line for each in known) if known else f'"input": {row.usage.input_tokens}' in line


def test_what_came_after_the_entry_as_of_which_is_looked_is_later(made: Callable[[str], Sample]) -> None:
    of = made("codex/ok")
    second = of.side().calls[1].number
    matches = of.matched(as_of=second - 1)
    assert [each.name.value for each in matches] == ["equal", "later"]
    assert [each.name.value for each in of.matched(as_of=second)] == ["equal", "open", "later"]


def test_an_answer_without_numbers_is_matched_and_nothing_is_compared(made: Callable[[str], Sample]) -> None:
    of = made("claude/ok")
    matches = of.matched([replace(row, usage=UNKNOWN_USAGE) for row in of.rows])
    assert [(each.name.value, each.why) for each in matches] == [("equal", "the record has no numbers")] * 2


def test_ids_that_servers_count_alike_are_told_apart_by_session_time_and_numbers(tmp_path: Path) -> None:
    """Three agents' runs in one campaign, all with the same ids, since their scripted server counts alike."""
    names = ["qwen/ok", "mini/ok", "pi/ok"]
    logs = [server_log(SAMPLES / name / "mock-requests.jsonl") for name in names]
    start = min(round(log[0]["t_start"] * 1000) for log in logs) - 2_000
    commands = [open_campaign("c", start)]
    for name, log in sorted(zip(names, logs, strict=True), key=lambda pair: pair[1][0]["t_start"]):
        commands += commands_of(log, run=name.partition("/")[0], salt=f"{name} ")
    ledger = write_ledger(tmp_path / "ledger.db", commands)
    rows = [row for name in names for row in sample(name, tmp_path / name.partition("/")[0], ledger).rows]
    with LedgerReader(ledger) as reader:
        matches = match(read_ledger(reader, "c"), rows, lambda wanted: read_known(reader, wanted))
    found = [(each.items[0].run, each.records[0].agent.partition("-")[0], each.name.value) for each in matches]
    assert sorted(found) == [(name, name, "equal") for name in ("mini", "mini", "pi", "pi", "qwen", "qwen")]
