"""Every sample of a real agent's record, reconciled with a ledger made of its server's log: each row in its class, by hand from the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.reconcile.match import By
from tests.support.dispatch_samples import SAMPLES
from tests.support.reconciled import said, sample


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
