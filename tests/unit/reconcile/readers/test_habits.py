"""What agents do to their own records that a naive reader counts wrongly: one habit a test, each on lines of the agent's form."""

from __future__ import annotations

import json
from pathlib import Path

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.reconcile.finding import Rows, find_records
from gateway.reconcile.record import DispatchRecord, RecordKind

T = "2026-11-30T07:04:{:02}.000Z"
T0_MS = 1796022240000


def lines(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> Rows:
    return find_records([path]).read()


def ids(rows: Rows) -> list[str]:
    return [row.response_id for row in rows.records]


# Claude Code


def claude(message: str, second: int, *, session: str = "s-1", request: str = "req_1", output: int = 5, tool: str = "", **more: object) -> dict[str, object]:
    content = [{"type": "tool_use", "id": tool}] if tool else [{"type": "text", "text": "x"}]
    usage = {"input_tokens": 10, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": output}
    told = {"id": message, "model": "m", "content": content, "stop_reason": None, "usage": usage}
    row = {"type": "assistant", "sessionId": session, "isSidechain": False, "uuid": f"u-{second}", "requestId": request, "timestamp": T.format(second)}
    return {**row, "message": told, **more}


def test_claudes_lines_of_one_message_are_one_row_and_the_last_usage_counts(tmp_path: Path) -> None:
    first = claude("msg_1", 1, output=1, tool="toolu_1")
    last = claude("msg_1", 2, output=41, tool="toolu_2")
    last["message"]["stop_reason"] = "tool_use"  # type: ignore[index]
    (row,) = read(lines(tmp_path / "s.jsonl", first, last)).records
    assert row.usage == Usage(input_tokens=15, output_tokens=41, cached_tokens=3, cache_write_tokens=2)
    assert row.tool_call_ids == ("toolu_1", "toolu_2")
    assert row.finish == "tool_use"
    assert row.source.endswith("s.jsonl:1")


def test_claudes_lines_copied_into_a_forked_session_are_counted_once(tmp_path: Path) -> None:
    lines(tmp_path / "one.jsonl", claude("msg_1", 1), claude("msg_2", 2, request="req_2"))
    forked = (claude("msg_1", 1, session="s-2"), claude("msg_2", 2, session="s-2", request="req_2"), claude("msg_3", 3, session="s-2", request="req_3"))
    lines(tmp_path / "two.jsonl", *forked)
    rows = read(tmp_path)
    assert sorted(ids(rows)) == ["msg_1", "msg_2", "msg_3"]
    assert rows.copies == 2


def test_an_engines_short_id_used_again_in_another_session_is_another_row(tmp_path: Path) -> None:
    lines(tmp_path / "one.jsonl", claude("msg_1", 1, request="req_1"))
    lines(tmp_path / "two.jsonl", claude("msg_1", 9, session="s-2", request="req_9"))
    assert ids(read(tmp_path)) == ["msg_1", "msg_1"]


def test_claudes_synthetic_row_is_a_placeholder_without_a_number_or_an_id(tmp_path: Path) -> None:
    row = claude("b2f7", 1, request="")
    row["message"] |= {"model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}  # type: ignore[operator]
    (found,) = read(lines(tmp_path / "s.jsonl", row)).records
    assert (found.kind, found.usage, found.response_id, found.model) == (RecordKind.PLACEHOLDER, UNKNOWN_USAGE, "", "")


def test_claudes_failure_that_no_server_heard_of_is_a_local_error(tmp_path: Path) -> None:
    row = claude("b2f7", 1, request="", isApiErrorMessage=True, error="unknown")
    row["message"] |= {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: Connection error."}]}  # type: ignore[operator]
    (found,) = read(lines(tmp_path / "s.jsonl", row)).records
    assert (found.kind, found.message) == (RecordKind.LOCAL_ERROR, "API Error: Connection error.")


def test_claudes_last_try_and_the_words_shown_for_it_are_one_row(tmp_path: Path) -> None:
    tried = {"type": "system", "subtype": "api_error", "sessionId": "s", "isSidechain": False, "uuid": "u", "timestamp": T.format(1)}
    shown = claude("b2f7", 2, request="req_9", isApiErrorMessage=True, apiErrorStatus=529)
    shown["message"] |= {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 529 Overloaded"}]}  # type: ignore[operator]
    rows = read(lines(tmp_path / "s.jsonl", {**tried, "error": {"status": 529, "requestId": "req_9"}}, shown)).records
    assert [(row.kind, row.status, row.request_ids) for row in rows] == [(RecordKind.ERROR, 529, ("req_9",))]


def test_a_subagents_file_is_a_session_of_its_own_that_was_sent_as_its_parents(tmp_path: Path) -> None:
    lines(tmp_path / "s.jsonl", claude("msg_1", 1))
    lines(tmp_path / "s" / "subagents" / "agent-7.jsonl", claude("msg_2", 2, request="req_2", isSidechain=True, agentId="7"))
    assert [(row.session, row.session_ids, row.order) for row in read(tmp_path).records] == [("s-1", ("s-1",), 0), ("s-1/7", ("s-1",), 0)]


# Codex

META = {"type": "session_meta", "timestamp": T.format(0), "payload": {"id": "t-1", "cli_version": "0.98.0"}}


def codex(kind: str, second: int, **payload: object) -> dict[str, object]:
    return {"type": kind, "timestamp": T.format(second), "payload": payload}


def snapshot(second: int, total: int, last: int) -> dict[str, object]:
    told = [{"input_tokens": 10 * each, "output_tokens": each, "cached_input_tokens": 0, "reasoning_output_tokens": 0} for each in (total, last)]
    return codex("event_msg", second, type="token_count", info={"total_token_usage": told[0], "last_token_usage": told[1]})


def test_codexs_cumulative_snapshots_repeated_at_will_give_a_row_where_the_total_moved(tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", META, snapshot(1, 4, 4), snapshot(2, 4, 4), snapshot(3, 9, 5), snapshot(4, 9, 5))
    assert [row.usage.output_tokens for row in read(path).records] == [4, 5]


def test_codexs_snapshot_beside_its_usage_line_is_no_second_row(tmp_path: Path) -> None:
    told = {"input_tokens": 40, "output_tokens": 4}
    path = lines(
        tmp_path / "r.jsonl",
        META,
        codex("token_usage_record", 1, thread_id="t-1", response_id="resp_1", usage=told),
        snapshot(2, 4, 4),
        snapshot(3, 9, 5),
    )
    assert [(row.response_id, row.usage.output_tokens) for row in read(path).records] == [("resp_1", 4), ("", 5)]


def test_codexs_answer_without_usage_is_the_row_of_its_items_and_they_do_not_pass_to_the_next(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "r.jsonl",
        META,
        codex("response_item", 1, type="function_call", id="fc_1", call_id="call_1"),
        codex("response_item", 2, type="function_call_output", call_id="call_1"),
        codex("response_item", 3, type="message", role="assistant", id="msg_2"),
        codex("token_usage_record", 4, thread_id="t-1", response_id="resp_2", usage={"input_tokens": 1, "output_tokens": 1}),
        codex("response_item", 5, type="message", role="assistant", id="msg_3"),
        codex("event_msg", 6, type="turn_aborted", reason="interrupted"),
    )
    rows = read(path).records
    assert [(row.kind, row.response_id, row.item_ids) for row in rows] == [
        (RecordKind.ANSWER, "", ("fc_1",)),
        (RecordKind.ANSWER, "resp_2", ("msg_2",)),
        (RecordKind.ABORTED, "", ("msg_3",)),
    ]
    assert rows[0].usage == UNKNOWN_USAGE


def test_codexs_forked_thread_repeats_its_parents_rows_and_they_are_counted_once(tmp_path: Path) -> None:
    told = codex("token_usage_record", 1, thread_id="t-1", response_id="resp_1", usage={"input_tokens": 1, "output_tokens": 1})
    lines(tmp_path / "one.jsonl", META, told)
    fork = {**META, "payload": {**META["payload"], "id": "t-2"}}  # type: ignore[dict-item]
    own = codex("token_usage_record", 9, thread_id="t-2", response_id="resp_2", usage={"input_tokens": 1, "output_tokens": 1})
    lines(tmp_path / "two.jsonl", fork, META, {**told, "timestamp": T.format(8)}, own)
    rows = read(tmp_path)
    assert sorted(ids(rows)) == ["resp_1", "resp_2"]
    assert rows.copies == 1


def test_codexs_error_keeps_status_and_request_id_where_its_words_have_them(tmp_path: Path) -> None:
    error = {"message": "unexpected status 402 Payment Required, request id: req_0b86", "codex_error_info": {"response_failed": {"http_status_code": 402}}}
    (row,) = read(lines(tmp_path / "r.jsonl", META, codex("event_msg", 1, type="task_complete", error=error))).records
    assert (row.kind, row.status, row.request_ids) == (RecordKind.ERROR, 402, ("req_0b86",))


# Qwen Code


def qwen_answer(second: int, response: str, output: int = 4) -> dict[str, object]:
    event = {"event.name": "qwen-code.api_response", "event.timestamp": T.format(second), "response_id": response, "model": "m", "duration_ms": 500}
    event |= {"input_token_count": 40, "output_token_count": output, "cached_content_token_count": 0, "thoughts_token_count": 0}
    row = {"uuid": "u", "sessionId": "s", "timestamp": T.format(second), "type": "system", "subtype": "ui_telemetry", "version": "0.24.4"}
    return {**row, "systemPayload": {"uiEvent": event}}


def monthly(second: int, output: int = 4) -> dict[str, object]:
    row = {"schemaVersion": 1, "id": f"m-{second}", "timestamp": T.format(second), "localMonth": "2026-11", "sessionId": "s", "model": "m"}
    return {**row, "inputTokens": 40, "outputTokens": output, "cachedTokens": 0, "thoughtsTokens": 0, "apiDurationMs": 500}


def test_qwens_monthly_usage_says_again_what_the_chat_says_and_counts_only_where_that_lacks_it(tmp_path: Path) -> None:
    lines(tmp_path / "chat.jsonl", qwen_answer(1, "chatcmpl-1"), qwen_answer(5, "chatcmpl-2"))
    totals = lines(tmp_path / "token-usage-2026-11.jsonl", monthly(1), monthly(5), monthly(20), monthly(30, output=9))
    rows = read(tmp_path)
    assert sorted((row.response_id, row.at_ms) for row in rows.records) == [
        ("", T0_MS + 20_000),
        ("", T0_MS + 30_000),
        ("chatcmpl-1", T0_MS + 1_000),
        ("chatcmpl-2", T0_MS + 5_000),
    ]
    assert rows.copies == 2
    assert len(read(totals).records) == 4


def test_qwens_answers_without_telemetry_are_read_from_the_answers_themselves(tmp_path: Path) -> None:
    answer = {"uuid": "u", "sessionId": "s", "timestamp": T.format(1), "type": "assistant", "version": "0.24.4", "model": "m"}
    answer |= {"message": {"role": "model", "parts": [{"functionCall": {"id": "call_1"}}]}}
    answer |= {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 1}}
    (row,) = read(lines(tmp_path / "chat.jsonl", answer)).records
    assert row.usage == Usage(input_tokens=9, output_tokens=4, reasoning_tokens=1)
    assert row.tool_call_ids == ("call_1",)


# Gemini CLI

GEMINI = {"sessionId": "s", "projectHash": "h", "startTime": T.format(0), "kind": "main"}


def gemini(key: str, second: int, output: int = 3, **more: object) -> dict[str, object]:
    tokens = {"input": 10, "output": output, "cached": 0, "thoughts": 2, "tool": 1, "total": 13 + output}
    return {"id": key, "timestamp": T.format(second), "type": "gemini", "content": "x", "tokens": tokens, "model": "g", **more}


def test_geminis_rewritten_lines_and_patches_are_one_row_an_id_and_the_last_usage_counts(tmp_path: Path) -> None:
    call = {"name": "run_shell_command", "id": "run_shell_command__1"}
    path = lines(
        tmp_path / "session-1.jsonl",
        GEMINI,
        gemini("a", 1, tokens=None),
        {"$set": {"messages": [gemini("a", 1, output=7), {"id": "u", "type": "user"}, gemini("b", 2)]}},
        gemini("b", 2, toolCalls=[call, {"name": "run_shell_command", "id": "call_7"}]),
        gemini("b", 2, tokens=None),
    )
    rows = read(path).records
    assert [row.usage.output_tokens for row in rows] == [9, 5]
    assert rows[0].usage == Usage(input_tokens=11, output_tokens=9, reasoning_tokens=2)
    assert rows[1].tool_call_ids == ("call_7",)  # the other is the CLI's own invention


def test_geminis_older_document_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps({**GEMINI, "messages": [{"id": "u", "type": "user"}, gemini("a", 1), gemini("b", 2)]}, indent=2))
    assert [row.usage.output_tokens for row in read(path).records] == [5, 5]


# Copilot CLI


def test_copilots_abort_and_its_error_without_a_status_are_told_apart(tmp_path: Path) -> None:
    start = {"type": "session.start", "data": {"sessionId": "s", "version": 1, "copilotVersion": "1.0.95"}, "id": "1", "parentId": None}
    abort = {"type": "abort", "data": {"reason": "user_initiated"}, "timestamp": T.format(1)}
    error = {"type": "session.error", "data": {"message": "connect ECONNREFUSED"}, "timestamp": T.format(2)}
    rows = read(lines(tmp_path / "events.jsonl", start, abort, error)).records
    assert [(row.kind, row.message) for row in rows] == [(RecordKind.ABORTED, "user_initiated"), (RecordKind.LOCAL_ERROR, "connect ECONNREFUSED")]


# pi


def pi(second: int, **message: object) -> dict[str, object]:
    told = {"role": "assistant", "content": [], "api": "openai-completions", "model": "m", "stopReason": "stop", **message}
    return {"type": "message", "id": f"e{second}", "timestamp": T.format(second), "message": told}


def test_pis_all_zeros_are_an_unknown_usage_and_its_ends_are_told_apart(tmp_path: Path) -> None:
    zeros = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
    path = lines(
        tmp_path / "s.jsonl",
        {"type": "session", "version": 3, "id": "s", "cwd": "/"},
        pi(1, usage=zeros, responseId="chatcmpl-1"),
        pi(2, usage=zeros, responseId="chatcmpl-2", stopReason="error", errorMessage="Run budget reached."),
        pi(3, usage=zeros, stopReason="aborted"),
        pi(4, usage={"input": 5, "output": 2, "cacheRead": 3, "cacheWrite": 1}),
    )
    rows = read(path).records
    assert [row.kind for row in rows] == [RecordKind.ANSWER, RecordKind.ERROR, RecordKind.ABORTED, RecordKind.ANSWER]
    assert [row.response_id for row in rows] == ["chatcmpl-1", "chatcmpl-2", "", ""]
    assert [row.usage for row in rows[:3]] == [UNKNOWN_USAGE] * 3
    assert rows[3].usage == Usage(input_tokens=9, output_tokens=2, cached_tokens=3, cache_write_tokens=1)


# OpenCode


def opencode(path: Path, *messages: tuple[dict[str, object], list[dict[str, object]]]) -> tuple[DispatchRecord, ...]:
    info = {"id": "ses_1", "slug": "x", "projectID": "p", "version": "1.18.33"}
    told = [{"info": {"role": "assistant", "id": f"msg_{n}", "sessionID": "ses_1", **message}, "parts": parts} for n, (message, parts) in enumerate(messages)]
    path.write_text(json.dumps({"info": info, "messages": told}))
    return read(path).records


def opencode_tokens(output: int) -> dict[str, object]:
    return {"input": 5, "output": output, "reasoning": 1, "cache": {"read": 3, "write": 0}}


def test_opencodes_message_of_several_steps_is_several_calls(tmp_path: Path) -> None:
    steps = [
        {"type": "tool", "callID": "call_1"},
        {"type": "step-finish", "tokens": opencode_tokens(4)},
        {"type": "text", "metadata": {"openai": {"itemId": "msg_2"}}},
        {"type": "step-finish", "tokens": opencode_tokens(6)},
    ]
    rows = opencode(tmp_path / "export.json", ({"finish": "stop", "tokens": opencode_tokens(6)}, steps))
    assert [(row.usage.output_tokens, row.tool_call_ids, row.item_ids) for row in rows] == [(5, ("call_1",), ()), (7, (), ("msg_2",))]
    assert rows[0].usage.input_tokens == 8


def test_opencodes_tries_aborts_and_placeholders_are_told_apart(tmp_path: Path) -> None:
    zeros = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    refused = {"name": "APIError", "data": {"message": "busy", "statusCode": 429, "responseHeaders": {"x-request-id": "req_1"}}}
    rows = opencode(
        tmp_path / "export.json",
        ({"finish": "stop", "tokens": opencode_tokens(4)}, [{"type": "retry", "error": refused, "time": {"created": T0_MS}}]),
        ({"tokens": zeros, "error": {"name": "MessageAbortedError", "data": {"message": "aborted"}}, "time": {"completed": T0_MS}}, []),
        ({"tokens": zeros, "time": {"created": T0_MS}}, []),
        ({"tokens": zeros, "time": {"created": T0_MS, "completed": T0_MS}}, []),
        ({"tokens": zeros, "finish": "stop"}, []),
    )
    assert [row.kind.value for row in rows] == ["error", "answer", "aborted", "aborted", "placeholder", "answer"]
    assert (rows[0].status, rows[0].request_ids, rows[0].at_ms) == (429, ("req_1",), T0_MS)
    assert rows[-1].usage == UNKNOWN_USAGE


# Inspect


def test_inspects_nested_cached_and_pending_events_are_told_apart(tmp_path: Path) -> None:
    def event(key: str, **more: object) -> dict[str, object]:
        usage = {"input_tokens": 9, "output_tokens": 2, "input_tokens_cache_read": 1}
        return {"event": "model", "uuid": key, "timestamp": T.format(1), "output": {"model": "m", "usage": usage, "response_id": f"chatcmpl-{key}"}, **more}

    tool = {"event": "tool", "events": [event("b")]}
    events = [event("a"), tool, event("b"), event("c", cache="read"), event("d", pending=True), event("e", error="boom", output={})]
    log = {"version": 2, "eval": {"run_id": "r", "task": "t", "packages": {"inspect_ai": "0.3.285"}}, "samples": [{"uuid": "u", "events": events}]}
    (tmp_path / "log.json").write_text(json.dumps(log))
    rows = read(tmp_path / "log.json").records
    assert [(row.response_id.removeprefix("chatcmpl-"), row.kind.value) for row in rows] == [
        ("a", "answer"),
        ("b", "answer"),
        ("c", "placeholder"),
        ("d", "aborted"),
        ("", "local_error"),
    ]
    assert [row.order for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0].usage == Usage(input_tokens=10, output_tokens=2, cached_tokens=1)


# Our own form


def test_a_line_of_ours_with_the_id_of_an_earlier_one_replaces_it(tmp_path: Path) -> None:
    base = {"form": "gateway-dispatch-1", "driver": "d", "session": "s", "id": "1"}
    rows = read(lines(tmp_path / "d.jsonl", base, {**base, "id": "2"}, {**base, "usage": {"input_tokens": 3, "output_tokens": 1}})).records
    assert [row.usage.input_tokens for row in rows] == [3, None]


def test_a_line_of_ours_that_breaks_its_schema_is_skipped_with_the_field(tmp_path: Path) -> None:
    base = {"form": "gateway-dispatch-1", "driver": "d"}
    wrong = [
        ({"kind": "win"}, "kind is 'win', not one of answer, error"),
        ({"usage": {"input_tokens": -1}}, "input_tokens is -1: no count"),
        ({"usage": {"input_tokens": 5, "cached_tokens": 6}}, "usage.cached_tokens is more than usage.input_tokens"),
        ({"usage": 5}, "usage is no object"),
        ({"response_id": "x" * 300}, "response_id is no name"),
        ({"tool_call_ids": "call_1"}, "tool_call_ids is no list of names"),
        ({"ended_ms": "now"}, "ended_ms is now: no moment"),
        ({"status": 42}, "status is 42: no HTTP status"),
        ({"form": "other"}, "no line of the form gateway-dispatch-1"),
    ]
    rows = read(lines(tmp_path / "d.jsonl", base, *({**base, **change} for change, _ in wrong)))
    assert len(rows.records) == 1
    found = {each.source.rpartition(":")[2]: each.why for each in rows.skipped}
    for number, (_, words) in enumerate(wrong, 2):
        assert words in found[str(number)]
