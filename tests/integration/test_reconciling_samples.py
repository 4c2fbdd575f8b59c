"""Every sample of a real agent's record, reconciled with a ledger made of its server's log: each row in its class, by hand from the log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.accounting.commands import Command
from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.match import By
from gateway.reconcile.reconciling import document, reconcile
from tests.support.dispatch_ledger import commands_of, open_campaign, write_ledger
from tests.support.dispatch_samples import DATABASE_ROWS, SAMPLES, opencode_database
from tests.support.reconciled import example, said, sample


def _refused(first: int, last: int) -> list[str]:
    return [f"{number} refused" for number in range(first, last + 1)]


TWO = ["1 equal response_id", "2 equal response_id"]
EDIT, COMMITS = ["1 own_estimate order"], ["2 side_call", "3 side_call"]
FIRST = TWO[:1]

EXPECTED: dict[str, list[str]] = {
    "claude/ok": TWO,
    "claude/ok_multi": TWO,
    "claude/ok_sigint": [*FIRST, "- aborted_partial"],  # the server was stopped amid its second answer and noted nothing of it
    "claude/400ca": [*FIRST, *_refused(2, 6), "7 refused request_id"],  # drops one beta after the other, and records the last failure
    "claude/429ca": [*FIRST, "2 refused request_id"],
    "claude/529a": [*FIRST, *(f"{number} refused request_id" for number in range(2, 10))],  # records every try
    "claude-old/ok": ["1 side_call", "2 equal response_id", "3 equal response_id"],
    "codex/ok": TWO,
    "codex/ok_sigint": [*FIRST, "- aborted_partial"],
    "codex/400c": [*FIRST, "2 refused order"],
    "codex/429c": [*FIRST, "2 refused order"],
    "codex/sse_failed_r": [*FIRST, "2 engine_cut order"],
    "opencode/ok": ["1 side_call", "2 equal tool_call_id", "3 equal usage_and_order"],
    "opencode/402c": ["1 side_call", "2 refused request_id"],
    "opencode/429c": ["1 side_call", *_refused(2, 6), "7 refused request_id"],
    "opencode/sse_budget": ["1 side_call", "2 engine_cut tool_call_id"],
    "opencode-responses/ok": ["1 side_call", "2 equal item_id", "3 equal item_id"],
    "opencode-responses/sse_failed_c": ["1 side_call", "2 engine_cut tool_call_id"],
    "opencode-export/ok": ["1 side_call", "2 equal tool_call_id", "3 equal usage_and_order"],
    "copilot/ok": TWO,
    "copilot/402c": [*FIRST, "2 refused order"],
    "qwen/ok": TWO,
    "qwen/402c": [*FIRST, "2 refused request_id"],
    "qwen/429c": [*FIRST, *(f"{number} refused request_id" for number in range(2, 8))],
    "qwen/t429": [*FIRST, "2 refused", "3 equal response_id"],  # tried again inside its SDK: no row
    "gemini/ok": ["1 equal usage_and_order", "2 equal usage_and_order"],
    "gemini/402c": ["1 equal usage_and_order", "2 refused"],
    "pi/ok": TWO,
    "pi/402c": [*FIRST, "2 refused order"],
    "pi/429c_noRA": [*FIRST, "2 refused order"],
    "pi-responses/ok": TWO,
    "mini/ok": TWO,
    "mini/400c": [*FIRST, *_refused(2, 10), "11 refused order"],  # ten tries, then the exception
    "mini/402c": [*FIRST, *_refused(2, 7)],  # killed amid its tries
    "inspect/ok": TWO,
    "inspect/400c": [*FIRST, "2 refused request_id"],
    "inspect/402c": [*FIRST, "2 refused request_id"],
    "aider/ok": [*EDIT, *COMMITS],
    "aider/ok_force": [*EDIT, *COMMITS],
    "aider/402c": [*EDIT, *_refused(2, 9)],
    "aider/429c": [*EDIT, *_refused(2, 9)],
}
NO_READER = {"sdk-openai", "sdk-anthropic"}
"""What a script printed of its SDK's answers: no agent's record."""


THERE = {f"{log.parent.parent.name}/{log.parent.name}" for log in SAMPLES.glob("*/*/mock-requests.jsonl")}
OTHERS = sorted(name for name in THERE - set(EXPECTED) if name.split("/")[0] not in NO_READER)


def test_what_is_expected_is_there() -> None:
    assert set(EXPECTED) <= THERE


@pytest.mark.parametrize("name", OTHERS)
def test_each_row_of_any_other_sample_is_explained(name: str, tmp_path: Path) -> None:
    made = sample(name, tmp_path)
    matches = made.matched()
    assert all(each.explained for each in matches), said(matches, made.calls)
    assert {record.source for each in matches for record in each.records} == {row.source for row in made.rows}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_row_of_a_sample_is_in_its_class(name: str, tmp_path: Path) -> None:
    made = sample(name, tmp_path)
    matches = made.matched()
    assert said(matches, made.calls) == EXPECTED[name]
    assert all(each.explained for each in matches)
    assert sorted(record.source for each in matches for record in each.records) == sorted(row.source for row in made.rows)
    right = [(each.call.response_id, each.records[0].response_id) for each in matches if each.by is By.RESPONSE_ID and each.call]
    assert all(ours == theirs for ours, theirs in right)


_ID = re.compile(r"((?:chatcmpl|resp|msg|call|toolu|fc|req)[-_])([0-9a-f]{20,})")


def with_its_own_ids(number: int) -> Callable[[str], str]:
    """The samples' servers counted alike; engines do not."""
    turned = str.maketrans("0123456789abcdef", ("0123456789abcdef" * 2)[number % 16 :][:16])

    def changed(text: str) -> str:
        return _ID.sub(lambda found: found[1] + found[2].translate(turned)[:-2] + f"{number:02x}", text)

    return changed


def test_a_campaign_of_all_agents_in_one_folder_finds_which_session_is_of_which_run(tmp_path: Path) -> None:
    """Records under names that say nothing, in one folder, of seventeen runs in one campaign."""
    names = sorted(name for name in EXPECTED if "/ok" in name)
    folder = tmp_path / "records"
    folder.mkdir()
    runs: list[tuple[int, list[Command]]] = []
    for number, name in enumerate(names):
        own = with_its_own_ids(number)
        log = [json.loads(own(line)) for line in (SAMPLES / name / "mock-requests.jsonl").read_text().splitlines() if line.strip()]
        runs.append((round(log[0]["t_start"] * 1000), list(commands_of(log, run=f"run-{number}"))))
        for place, source in enumerate(sorted((SAMPLES / name).glob("record.*"))):
            copy = tmp_path / "rows.jsonl" if source.name == DATABASE_ROWS else folder / f"{number * 7 % len(names)}-{place}{source.suffix}"
            copy.write_text(own(source.read_text()))
            if source.name == DATABASE_ROWS:
                opencode_database(copy, folder / f"{number}.db")
    runs.sort(key=lambda run: run[0])
    ledger = write_ledger(tmp_path / "ledger.db", [open_campaign("c", runs[0][0] - 2_000), *(command for _, commands in runs for command in commands)])
    with LedgerReader(ledger) as reader:
        done = reconcile(reader, find_records([folder]), "c")
    told = document(done)
    assert done.clean, [each for each in told["matches"] if not each["explained"]]  # type: ignore[attr-defined]
    expected = [row.partition(" ")[2].partition(" ")[0] for name in names for row in EXPECTED[name]]
    assert {name: of["count"] for name, of in told["classes"].items()} == {name: expected.count(name) for name in dict.fromkeys(expected)}  # type: ignore[attr-defined]
    homes = [set(each["runs"]) for each in told["sessions"]]  # type: ignore[attr-defined]
    assert all(len(home) == 1 for home in homes) and set.union(*homes) == {f"run-{number}" for number in range(len(names))}


DOCUMENT = (SAMPLES.parents[2] / "docs" / "reconciliation.md").read_text()
SHOWN = re.findall(r"<!-- sample: (\S+) -->\n```\n(.*?)\n```", DOCUMENT, re.DOTALL)


def test_the_document_has_an_example_of_each_agent() -> None:
    assert {name.partition("/")[0] for name, _ in SHOWN} == {"claude", "codex", "opencode", "qwen", "gemini", "copilot", "pi", "mini", "inspect", "aider"}


@pytest.mark.parametrize(("name", "shown"), SHOWN, ids=[name for name, _ in SHOWN])
def test_an_example_of_the_document_is_what_comes_out(name: str, shown: str, tmp_path: Path) -> None:
    assert example(name, tmp_path) == shown
