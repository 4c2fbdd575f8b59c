"""What every reader of agents' records keeps, over the table of all there are: the rows that the server's log says there must be, no more and no other."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.errors import RecordProblem
from gateway.reconcile.finding import find_records
from gateway.reconcile.readers import READERS
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from tests.support.dispatch_samples import SAMPLES, Seen, eval_archive, records, seen

SLACK_MS = 5_000
"""Between the server's clock readings and an agent's line: one machine, one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What of its server's answer an agent keeps."""

    agent: str
    response_id: bool = True
    items: bool = False
    request_ids: bool = False
    status: bool = False
    servers_model: bool = False
    model_of_errors: bool = False
    error_ids: bool = False
    error_status: bool = True
    finish: bool = False
    words: dict[str, str] | None = None
    """Its own words for the server's reasons to end."""
    session_header: str = ""


_OPENCODE = Habit(
    agent="opencode",
    response_id=False,
    model_of_errors=True,
    error_ids=True,
    finish=True,
    words={"tool_calls": "tool-calls", "stop": "stop", "tool": "tool-calls", "text": "stop"},
    session_header="x-session-id",
)
_CLAUDE = Habit(agent="claude", request_ids=True, servers_model=True, error_ids=True, finish=True, session_header="x-claude-code-session-id")
_INSPECT = Habit(agent="inspect", servers_model=True, request_ids=True, error_ids=True, status=True, finish=True)
HABITS = {
    "claude": _CLAUDE,
    "claude-old": _CLAUDE,
    "codex": Habit(agent="codex", items=True, error_status=False, session_header="session-id"),
    "opencode": _OPENCODE,
    "opencode-export": _OPENCODE,
    "opencode-responses": replace(_OPENCODE, items=True),
    "qwen": Habit(agent="qwen", servers_model=True, model_of_errors=True, error_ids=True, status=True),
    "gemini": Habit(agent="gemini", response_id=False),
    "copilot": Habit(agent="copilot"),
    "pi": Habit(agent="pi", model_of_errors=True, finish=True),
    "pi-responses": Habit(agent="pi", model_of_errors=True, items=True, finish=True, session_header="session-id"),
    "mini": Habit(agent="mini-swe-agent", servers_model=True, finish=True),
    "inspect": _INSPECT,
    "inspect-eval": replace(_INSPECT, session_header="x-irid"),
}

# Which of the server's calls stand in the record, in order: A answered, E refused or failed. What is missing here the agent does not write down.
WRITTEN: dict[str, list[tuple[int, str]]] = {
    "claude/ok": [(1, "A"), (2, "A")],
    "claude/ok_multi": [(1, "A"), (2, "A")],
    "claude/400ca": [(1, "A"), (7, "E")],
    "claude/429ca": [(1, "A"), (2, "E")],
    "claude/529a": [(1, "A"), *((n, "E") for n in range(2, 10))],
    "claude-old/ok": [(2, "A"), (3, "A")],
    "codex/ok": [(1, "A"), (2, "A")],
    "codex/400c": [(1, "A"), (2, "E")],
    "codex/429c": [(1, "A"), (2, "E")],
    "codex/sse_failed_r": [(1, "A"), (2, "E")],
    "opencode/ok": [(2, "A"), (3, "A")],
    "opencode/402c": [(2, "E")],
    "opencode/429c": [(7, "E")],
    "opencode/sse_budget": [(2, "E")],
    "opencode-export/ok": [(2, "A"), (3, "A")],
    "opencode-responses/ok": [(2, "A"), (3, "A")],
    "opencode-responses/sse_failed_c": [(2, "E")],
    "qwen/ok": [(1, "A"), (2, "A")],
    "qwen/402c": [(1, "A"), (2, "E")],
    "qwen/429c": [(1, "A"), *((n, "E") for n in range(2, 8))],
    "qwen/t429": [(1, "A"), (3, "A")],
    "gemini/ok": [(1, "A"), (2, "A")],
    "gemini/402c": [(1, "A")],
    "copilot/ok": [(1, "A"), (2, "A")],
    "copilot/402c": [(1, "A"), (2, "E")],
    "pi/ok": [(1, "A"), (2, "A")],
    "pi/402c": [(1, "A"), (2, "E")],
    "pi/429c_noRA": [(1, "A"), (2, "E")],
    "pi-responses/ok": [(1, "A"), (2, "A")],
    "mini/ok": [(1, "A"), (2, "A")],
    "mini/400c": [(1, "A"), (11, "E")],
    "mini/402c": [(1, "A")],
    "inspect/ok": [(1, "A"), (2, "A")],
    "inspect/400c": [(1, "A"), (2, "E")],
    "inspect/402c": [(1, "A"), (2, "E")],
    "inspect-eval/402c": [(1, "A"), (2, "A"), (3, "E")],
}
INTERRUPTED = ("claude/ok_sigint", "codex/ok_sigint")
FORKED = "claude/fork"
AIDER = tuple(f"aider/{scenario}" for scenario in ("ok", "ok_force", "402c", "429c"))
NO_AGENT = ("sdk-openai", "sdk-anthropic")
EVERY_SAMPLE = (*WRITTEN, *INTERRUPTED, FORKED, *AIDER)


def usage_of(n: int, kind: str) -> Usage:
    """The scripted server's usage of its nth call, in the ledger's form."""
    if kind == "messages":
        return Usage(input_tokens=1000 + 10 * n + 100 + n + 30 + n, output_tokens=40 + n, cached_tokens=100 + n, cache_write_tokens=30 + n)
    return Usage(input_tokens=1000 + 10 * n, output_tokens=40 + n, cached_tokens=100 + n, reasoning_tokens=5 + n)


def ids(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else ()


def expected(sample: str, call: Seen, what: str) -> DispatchRecord:
    """From the server's log alone."""
    habit, answer = HABITS[sample.split("/")[0]], call.answer
    asked = str(call.body.get("model") or call.target.split("/models/")[-1].split(":")[0])
    sent = call.headers.get(habit.session_header) or call.body.get("prompt_cache_key") if habit.session_header else None
    row = DispatchRecord(agent=habit.agent, source="", session_ids=ids(sent), request_ids=ids(answer["request_id"]) if habit.request_ids else ())
    if what == "E":
        failed_inside = answer["status"] == 200
        return replace(
            row,
            kind=RecordKind.ERROR,
            model=asked if habit.model_of_errors else "",
            request_ids=ids(answer["request_id"]) if habit.error_ids and not failed_inside else (),
            status=int(str(answer["status"])) if habit.error_status and not failed_inside else None,
            tool_call_ids=ids(answer.get("call_id")) if habit.agent == "opencode" else (),
        )
    kind = "messages" if "/messages" in call.target else "gemini" if "/models/" in call.target else "chat"
    finish = str(answer["finish"])
    return replace(
        row,
        usage=usage_of(call.n, kind),
        response_id=str(answer["id"]) if habit.response_id else "",
        item_ids=ids(answer.get("item_id")) if habit.items else (),
        tool_call_ids=ids(answer.get("call_id")),
        model=str(answer["model"]) if habit.servers_model else asked,
        model_is_servers=habit.servers_model,
        status=200 if habit.status else None,
        finish=(habit.words.get(finish) or habit.words[str(answer["reply"])] if habit.words else finish) if habit.finish else "",
    )


def bare(row: DispatchRecord) -> DispatchRecord:
    """Without what the server's log can't know: places, moments and an error's words."""
    return replace(row, source="", session="", order=0, begun_ms=None, at_ms=None, message="", copy_key="")


def read(folder: Path) -> list[DispatchRecord]:
    return sorted(find_records([folder]).read().records, key=lambda row: (row.order, row.begun_ms or 0))


@pytest.mark.parametrize("sample", WRITTEN)
def test_a_record_gives_exactly_the_rows_that_the_servers_log_implies(sample: str, tmp_path: Path) -> None:
    records(sample, tmp_path)
    rows, calls = read(tmp_path), seen(sample)
    assert [bare(row) for row in rows] == [expected(sample, calls[n], what) for n, what in WRITTEN[sample]]
    for row, (n, what) in zip(rows, WRITTEN[sample], strict=True):
        call = calls[n]
        if row.at_ms is not None:
            assert call.begun_ms - SLACK_MS <= row.at_ms <= (call.ended_ms or call.begun_ms) + SLACK_MS
        assert not row.message or what == "E"
        assert "hello.txt" not in row.message


def test_every_sample_of_an_agent_is_in_the_table() -> None:
    found = {f"{path.parent.name}/{path.name}" for path in SAMPLES.glob("*/*") if path.is_dir() and path.parent.name not in NO_AGENT}
    assert found == set(EVERY_SAMPLE)


def test_every_reader_has_a_sample_of_its_own_but_ours() -> None:
    assert {reader.name for reader in READERS} == {habit.agent for habit in HABITS.values()} | {"aider", "gateway-dispatch"}


def test_claudes_interrupted_stream_is_an_aborted_row_with_what_had_come(tmp_path: Path) -> None:
    records("claude/ok_sigint", tmp_path)
    calls = seen("claude/ok_sigint")
    whole = seen("claude/ok")[2]  # the same ids: the server's are a function of the call's number
    session = ids(calls[1].headers["x-claude-code-session-id"])
    aborted = replace(expected("claude/ok", whole, "A"), kind=RecordKind.ABORTED, finish="", session_ids=session)
    aborted = replace(aborted, usage=replace(aborted.usage, output_tokens=1))
    assert [bare(row) for row in read(tmp_path)] == [expected("claude/ok_sigint", calls[1], "A"), aborted]


def test_claudes_forked_session_repeats_its_parents_rows_and_each_is_counted_once(tmp_path: Path) -> None:
    records(FORKED, tmp_path)
    found, calls = find_records([tmp_path]).read(), seen(FORKED)
    rows = [expected(FORKED, calls[n], what) for n, what in ((1, "A"), (2, "A"), (3, "A"), (4, "E"), (5, "A"))]
    both = tuple(sorted({*rows[0].session_ids, *rows[2].session_ids}))
    rows[:2] = (replace(row, session_ids=both) for row in rows[:2])
    assert [bare(row) for row in sorted(found.records, key=lambda row: row.at_ms or 0)] == rows
    assert found.copies == 2


def test_codexs_interrupted_turn_is_an_aborted_row_without_a_number(tmp_path: Path) -> None:
    records("codex/ok_sigint", tmp_path)
    call = seen("codex/ok_sigint")[1]
    aborted = DispatchRecord(agent="codex", source="", kind=RecordKind.ABORTED, model="mock-model", session_ids=ids(call.headers["session-id"]))
    assert [bare(row) for row in read(tmp_path)] == [expected("codex/ok_sigint", call, "A"), aborted]


@pytest.mark.parametrize("sample", AIDER)
def test_aiders_rows_are_its_own_estimates_and_only_its_edit_calls(sample: str, tmp_path: Path) -> None:
    records(sample, tmp_path)
    (row,) = read(tmp_path)
    assert bare(row) == DispatchRecord(agent="aider", source="", usage=Usage(input_tokens=719, output_tokens=12), usage_is_own=True)
    call = seen(sample)[1]
    assert row.usage.input_tokens != call.answer["usage"]["prompt_tokens"]  # type: ignore[index]
    assert row.at_ms is not None and abs(row.at_ms - (call.ended_ms or 0)) <= SLACK_MS


@pytest.mark.parametrize("sample", ["inspect/ok", "inspect/400c", "inspect/402c"])
def test_an_inspect_archive_says_what_its_json_says(sample: str, tmp_path: Path) -> None:
    (log,) = records(sample, tmp_path)
    plain = read(tmp_path)
    eval_archive(log, tmp_path / "log.eval")
    log.unlink()
    packed = read(tmp_path)
    assert [replace(row, source="") for row in packed] == [replace(row, source="") for row in plain]


def test_opencodes_export_and_database_of_one_session_are_one(tmp_path: Path) -> None:
    (database,) = records("opencode/ok", tmp_path)
    alone = read(tmp_path)
    lines = [json.loads(line) for line in (SAMPLES / "opencode/ok/record.opencode-db-rows.jsonl").read_text().splitlines()]
    session = next(row for row in lines if row["table"] == "session")
    messages = [
        {
            "info": {**row["data"], "id": row["id"], "sessionID": row["session_id"]},
            "parts": [{**part["data"], "id": part["id"]} for part in lines if part.get("message_id") == row["id"]],
        }
        for row in lines
        if row["table"] == "message"
    ]
    info = {"id": session["id"], "slug": session["slug"], "projectID": session["project_id"], "version": session["version"]}
    (tmp_path / "export.json").write_text(json.dumps({"info": info, "messages": messages}))
    found = find_records([tmp_path])
    assert {file.path.name for file in found.files} == {database.name, "export.json"}
    both = found.read()
    assert both.copies == 2
    assert [replace(row, source="") for row in both.records] == [replace(row, source="") for row in alone]


@pytest.mark.parametrize("sample", EVERY_SAMPLE)
def test_each_file_is_claimed_by_one_reader_alone(sample: str, tmp_path: Path) -> None:
    for path in records(sample, tmp_path):
        claimed = [reader.name for reader in READERS if reader.claims(path)]
        assert len(claimed) == 1 or "usage_record" in path.name, path.name


@pytest.mark.parametrize("sample", EVERY_SAMPLE)
def test_naming_the_agent_gives_the_same_as_finding_out(sample: str, tmp_path: Path) -> None:
    records(sample, tmp_path)
    found = find_records([tmp_path])
    (agent,) = found.agents()
    assert find_records([tmp_path], agent=agent).read() == found.read()
    other = next(reader.name for reader in READERS if reader.name != agent)
    with pytest.raises(RecordProblem, match="no dispatch record under"):
        find_records([tmp_path], agent=other)


def one_of_each(tmp_path: Path) -> list[Path]:
    folders = []
    for sample in EVERY_SAMPLE:
        folder = tmp_path / sample.replace("/", "-")
        folder.mkdir()
        records(sample, folder)
        folders.append(folder)
    return folders


def test_the_order_of_files_and_paths_changes_nothing(tmp_path: Path) -> None:
    folders = one_of_each(tmp_path)
    whole = find_records([tmp_path]).read()
    assert len({row.agent for row in whole.records}) == len(READERS) - 1
    shuffling = random.Random(6)
    paths = [file.path for file in find_records([tmp_path]).files]
    for _ in range(2):
        shuffling.shuffle(paths)
        assert find_records(paths).read() == whole
    assert find_records([tmp_path, *folders, tmp_path]).read() == whole


def rows_of(path: Path) -> Iterator[DispatchRecord | Skipped]:
    for reader in READERS:
        if reader.claims(path):
            yield from reader.read(path)
            return


def key(row: DispatchRecord) -> tuple[object, ...]:
    """What a row is about; its usage may still be an earlier snapshot where the file ends."""
    return row.kind, row.response_id, row.copy_key, row.request_ids


# A row that its agent writes over several lines may be told in part where the file ends between them: these are the ones.
GROWING = {"claude", "gemini", "qwen", "copilot", "codex", "opencode"}


@pytest.mark.parametrize("sample", EVERY_SAMPLE)
def test_a_record_cut_anywhere_gives_its_first_rows_and_never_an_exception(sample: str, tmp_path: Path) -> None:
    cutting = random.Random(sample)
    for path in records(sample, tmp_path):
        raw = path.read_bytes()
        reader = next((each for each in READERS if each.claims(path)), None)
        if reader is None:
            continue
        whole = [row for row in reader.read(path) if isinstance(row, DispatchRecord)]
        ends = {0, 1, len(raw) - 1, *(raw.find(b"\n", cutting.randrange(len(raw))) + 1 for _ in range(5)), *(cutting.randrange(len(raw)) for _ in range(20))}
        for end in sorted(ends):
            path.write_bytes(raw[:end])
            rows = [row for row in reader.read(path) if isinstance(row, DispatchRecord)]
            assert len(rows) <= len(whole)
            for part, row in zip(rows, whole, strict=False):
                if reader.name in GROWING:
                    assert key(part) == key(row) or (part.kind, part.response_id) == (RecordKind.ANSWER, "")
                    assert part.usage in (row.usage, UNKNOWN_USAGE)
                else:
                    assert part == row
        path.write_bytes(raw)
