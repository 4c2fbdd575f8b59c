"""Ollama's, llama.cpp's, SGLang's, TGI's and LM Studio's own formats: what their bodies may hold, what is forwarded, their words, answers without a fixture."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.accounting.usage import MeterSource, Reading, Usage
from gateway.dialects import DIALECTS
from gateway.dialects.dialect import BodyError, ForwardFacts, Rendering, ReplyKind, Wording
from gateway.dialects.native_replies import tags_reply
from gateway.dialects.output_caps import CAPS
from gateway.dialects.retry_words import is_final_wording
from tests.unit.dialects.answers import Case, replay

SAY: Any = [{"role": "user", "content": "Say hi."}]
PLAIN: dict[str, Any] = {
    "ollama.chat": {"model": "m", "messages": SAY},
    "ollama.generate": {"model": "m", "prompt": "hi"},
    "ollama.embed": {"model": "m", "input": ["a", "b"]},
    "llamacpp.completion": {"prompt": "hi"},
    "llamacpp.embedding": {"content": "hi"},
    "sglang.generate": {"text": "hi"},
    "tgi.generate": {"inputs": "hi"},
    "tgi.generate_stream": {"inputs": "hi"},
    "lmstudio.chat": {"model": "m", "input": "hi"},
}
NAMES = {"ollama": "num_predict", "llamacpp": "n_predict", "sglang": "max_new_tokens", "tgi": "max_new_tokens", "lmstudio": "max_output_tokens"}
INSIDE = {
    "ollama.chat": "options",
    "ollama.generate": "options",
    "sglang.generate": "sampling_params",
    "tgi.generate": "parameters",
    "tgi.generate_stream": "parameters",
}
GENERATES = [name for name in PLAIN if DIALECTS[name].read_request(PLAIN[name]).generates]


def facts(dialect: str) -> ForwardFacts:
    return ForwardFacts(model="engine-name", cap_name=NAMES[dialect.partition(".")[0]], strip_fields=frozenset({"id_slot"}))


def read(dialect: str, **fields: Any) -> Any:
    return DIALECTS[dialect].read_request({**PLAIN[dialect], **fields})


def forwarded(dialect: str, ceiling: int = 7, **fields: Any) -> Any:
    return DIALECTS[dialect].forward_body(read(dialect, **fields), facts(dialect), ceiling_per_choice=ceiling)


# -- bodies


@pytest.mark.parametrize("dialect", GENERATES)
@pytest.mark.parametrize("alias", CAPS)
def test_every_alias_of_the_cap_is_read_and_one_is_sent(dialect: str, alias: str) -> None:
    places: list[Any] = [{alias: 500}]
    if dialect in INSIDE:
        places.append({INSIDE[dialect]: {alias: 500, "temperature": 0}})
    for place in places:
        assert read(dialect, **place).asked_output == 500
        sent = forwarded(dialect, **place)
        found = {name: value for holder in (sent, sent.get(INSIDE.get(dialect, ""), {})) for name, value in holder.items() if name in CAPS}
        assert found == {facts(dialect).cap_name: 7}
        assert sent.get("model", "engine-name") == "engine-name"


def test_ollama_streams_unless_it_is_told_not_to() -> None:
    assert [read("ollama.chat", **told).stream for told in ({}, {"stream": None}, {"stream": True}, {"stream": False})] == [True, True, True, False]
    assert read("ollama.chat").json_lines
    assert not read("ollama.embed").stream


def test_where_nothing_is_generated_no_cap_is_sent() -> None:
    sent = DIALECTS["ollama.embed"].forward_body(
        read("ollama.embed", options={"num_predict": 5, "max_tokens": [1], "seed": 1}), ForwardFacts(model="m", cap_name=""), ceiling_per_choice=0
    )
    assert sent["options"] == {"seed": 1}


def test_every_negative_num_predict_means_none() -> None:
    assert [read("ollama.chat", options={"num_predict": number}).asked_output for number in (-2, -1, 0, 5)] == [None, None, 0, 5]


def test_what_ollama_can_render_is_among_the_parts() -> None:
    talk = [
        {"role": "user", "content": "one", "images": ["aGk="]},
        {"role": "assistant", "content": "", "thinking": "two", "tool_calls": [{"function": {"name": "three", "arguments": {"a": 4}}}]},
    ]
    request = read("ollama.chat", messages=talk, tools=[{"type": "function", "function": {"name": "five"}}], format={"type": "six"})
    text = " ".join(request.rendered_parts)
    assert all(word in text for word in ("one", "two", "three", "five", "six"))
    assert (request.pictures, request.tool_names) == (1, ("five",))
    told = read("ollama.generate", system="seven", suffix="eight", context=[1, 2, 3])
    assert (told.rendered_parts, told.prompt_ids) == (("hi", "seven", "eight"), 3)


@pytest.mark.parametrize("dialect", ["llamacpp.completion", "llamacpp.embedding", "sglang.generate"])
@pytest.mark.parametrize(
    ("prompt", "prompts", "texts", "ids"),
    [
        ("a", 1, ("a",), 0),
        ([1, 2], 1, (), 2),
        (["a", 1], 1, ("a",), 1),
        (["a", "b"], 2, ("a", "b"), 0),
        ([[1, 2], "b"], 2, ("b",), 2),
        ([[1], [2, 3]], 2, (), 3),
    ],
)
def test_a_plain_prompt_is_read_as_the_engine_reads_it(dialect: str, prompt: Any, prompts: int, texts: Any, ids: int) -> None:
    field = {"llamacpp.completion": "prompt", "llamacpp.embedding": "content", "sglang.generate": "text"}[dialect]
    request = read(dialect, **{field: prompt})
    assert (request.prompts, request.prompt_texts, request.prompt_ids, request.rendering) == (prompts, texts, ids, Rendering.PLAIN)


def test_media_beside_a_native_prompt_are_pictures_and_stand_in_the_body() -> None:
    assert read("llamacpp.completion", prompt={"prompt_string": "see", "multimodal_data": ["aGk="]}).pictures == 1
    with pytest.raises(BodyError):
        read("llamacpp.completion", prompt={"prompt_string": "see", "multimodal_data": ["https://example.org/a.png"]})


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("ollama.chat", {"keep_alive": "5m"}), ("ollama.chat", {"options": {"num_gpu": 0}}), ("ollama.chat", {"options": {"main_gpu": 1}}),
        ("ollama.chat", {"messages": [{"role": "user", "content": "x", "images": ["https://example.org/a.png"]}]}),
        ("ollama.chat", {"_debug_render_only": True}),
        ("ollama.chat", {"tools": [{"type": "web_search"}]}), ("ollama.generate", {"template": "{{ .System }}"}), ("ollama.generate", {"keep_alive": 0}),
        ("ollama.generate", {"images": ["/etc/passwd://"]}), ("ollama.embed", {"keep_alive": "5m"}), ("llamacpp.completion", {"id_slot": 2}),
        ("llamacpp.completion", {"n": 2}), ("llamacpp.completion", {"n_cmpl": 2}), ("llamacpp.completion", {"lora": [{"id": 0}]}),
        ("llamacpp.completion", {"image_data": [{"data": "https://example.org", "id": 1}]}), ("llamacpp.completion", {"@requestFormat": "chat"}),
        ("sglang.generate", {"lora_path": "x"}), ("sglang.generate", {"session_params": {}}), ("sglang.generate", {"custom_logit_processor": "x"}),
        ("sglang.generate", {"image_data": "https://example.org/a.png"}), ("sglang.generate", {"image_data": ["http://10.0.0.1/"]}),
        ("sglang.generate", {"input_embeds": [[0.1]]}), ("sglang.generate", {"bootstrap_host": "x"}), ("sglang.generate", {"return_hidden_states": True}),
        ("tgi.generate", {"parameters": {"adapter_id": "x"}}), ("tgi.generate", {"parameters": {"best_of": 3}}),
        ("tgi.generate", {"inputs": "![](https://example.org/a.png) what is it?"}), ("lmstudio.chat", {"integrations": ["mcp/x"]}),
        ("lmstudio.chat", {"previous_response_id": "resp_1"}), ("lmstudio.chat", {"store": True}), ("lmstudio.chat", {"ttl": 5}),
        ("lmstudio.chat", {"context_length": 9}), ("lmstudio.chat", {"input": [{"type": "image", "data_url": "https://example.org/a.png"}]}),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:60],
)  # fmt: skip
def test_nothing_makes_the_engine_fetch_load_act_or_remember(dialect: str, fields: Any) -> None:
    with pytest.raises(BodyError) as refused:
        read(dialect, **fields)
    assert refused.value.code == "not_allowed"
    assert refused.value.field_name and refused.value.allow_key.startswith("guard.")


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("ollama.chat", {"messages": []}), ("ollama.chat", {"messages": [{"role": "user", "content": [1]}]}), ("ollama.chat", {"stream": "yes"}),
        ("ollama.chat", {"options": []}), ("ollama.chat", {"options": {"num_predict": "5"}}), ("ollama.generate", {"prompt": ""}),
        ("ollama.generate", {"prompt": None}),
        ("ollama.generate", {"context": ["x"]}), ("ollama.embed", {"input": []}), ("ollama.embed", {"input": [1]}), ("llamacpp.completion", {"prompt": None}),
        ("llamacpp.completion", {"prompt": []}), ("llamacpp.completion", {"prompt": [-1]}), ("llamacpp.completion", {"prompt": {"prompt_string": 5}}),
        ("sglang.generate", {"text": 5}), ("sglang.generate", {"sampling_params": [{}]}), ("sglang.generate", {"sampling_params": {"n": 10_000}}),
        ("tgi.generate", {"inputs": 5}), ("tgi.generate", {"stream": True}), ("lmstudio.chat", {"input": []}), ("lmstudio.chat", {"input": [5]}),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:60],
)  # fmt: skip
def test_a_body_of_wrong_types_is_refused(dialect: str, fields: Any) -> None:
    with pytest.raises(BodyError) as refused:
        read(dialect, **fields)
    assert refused.value.code == "body_invalid"


def test_what_is_forwarded_keeps_the_rest_and_pins_what_must_be() -> None:
    assert forwarded("ollama.chat", options={"temperature": 0}) == {"model": "engine-name", "messages": SAY, "options": {"temperature": 0, "num_predict": 7}}
    assert forwarded("ollama.embed") == {"model": "engine-name", "input": ["a", "b"]}
    assert forwarded("llamacpp.completion", id_slot=-1, response_fields=["content"]) == {"model": "engine-name", "prompt": "hi", "n_predict": 7}
    assert forwarded("tgi.generate", parameters={"seed": 1}) == {"inputs": "hi", "parameters": {"seed": 1, "max_new_tokens": 7, "details": True}}
    assert forwarded("lmstudio.chat")["store"] is False
    assert forwarded("sglang.generate", rid="mine", sampling_params={"n": 2}) == {"text": "hi", "sampling_params": {"n": 2, "max_new_tokens": 7}}


# -- words


@pytest.mark.parametrize("dialect", PLAIN)
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (ReplyKind.FINAL, 400),
        (ReplyKind.PROMPT_ABOVE_CAP, 400),
        (ReplyKind.PASSING, 503),
        (ReplyKind.GUARD, 400),
        (ReplyKind.UNAVAILABLE, 503),
        (ReplyKind.NOT_FOUND, 404),
    ],
)
def test_refusals_have_the_native_form(dialect: str, kind: ReplyKind, status: int) -> None:
    wording = Wording(kind=kind, code="run_budget_reached", message="Run budget reached. No further model calls are allowed for this run.")
    reply = DIALECTS[dialect].reply(wording)
    assert reply.status == status
    assert json.loads(reply.body)["error"] == wording.message
    assert ("retry-after" in reply.headers) == (kind is ReplyKind.PASSING)
    assert (reply.headers.get("x-should-retry") == "false") == (status in (400, 404))
    if kind is ReplyKind.FINAL:
        assert is_final_wording(reply.body.decode())
        assert is_final_wording(DIALECTS[dialect].error_event(wording).decode())


def test_llama_cpp_says_in_its_own_words_that_a_prompt_is_too_long() -> None:
    wording = Wording(kind=ReplyKind.CONTEXT_OVERFLOW, code="context_overflow", message="x", engine="llama.cpp", prompt_tokens=20, context_tokens=10)
    error = json.loads(DIALECTS["llamacpp.completion"].reply(wording).body)["error"]
    assert (error["type"], error["n_prompt_tokens"], error["n_ctx"]) == ("exceed_context_size_error", 20, 10)


def test_ollamas_models_are_listed_in_its_form() -> None:
    assert [one["model"] for one in json.loads(tags_reply(["a", "b"]).body)["models"]] == ["a", "b"]


# -- answers that no fixture has


def reading(dialect: str, body: bytes, *, status: int = 200, kind: str = "", request: Any = None) -> Reading:
    kind = kind or ("application/x-ndjson" if dialect.startswith("ollama") else "text/event-stream")
    case = Case("made", request or PLAIN[dialect], "generic", status, {"content-type": kind}, body, {}, dialect=dialect)
    whole = replay(case).reading
    assert replay(case, range(1, len(body))).reading == whole
    return whole


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def sse(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


def counts(found: Reading) -> tuple[int | None, int | None, int | None, str, bool]:
    return found.usage.input_tokens, found.usage.output_tokens, found.usage.cached_tokens, str(found.source), found.completed


HI: Any = {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": False}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}, (5, 2, None, "reported", True)),
        ({"done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}, (5, 2, None, "reported", True)),
        ({"done": True, "prompt_eval_count": 5, "prompt_eval_cached_count": 9, "eval_count": 2}, (5, 2, 5, "reported", True)),
        ({"done": True, "eval_count": 2}, (None, 2, None, "missing", True)),
        ({"done": True, "prompt_eval_count": 0, "eval_count": 2}, (None, 2, None, "missing", True)),
        ({"done": True, "prompt_eval_count": 5}, (5, None, None, "missing", True)),
        ({"done": True, "prompt_eval_count": -5, "eval_count": 2}, (None, None, None, "missing", True)),
        ({"done": True, "prompt_eval_count": "5", "eval_count": 2}, (None, None, None, "missing", True)),
        ({"done": True}, (None, None, None, "missing", True)),
        ({"done": False}, (None, None, None, "missing", False)),
        ({"error": "x", "prompt_eval_count": 5, "eval_count": 2}, (5, 2, None, "estimated", False)),
    ],
)
def test_the_last_line_of_ollama_has_the_counts(last: Any, expected: Any) -> None:
    assert counts(reading("ollama.chat", lines(HI, {"model": "m", **last}))) == expected


def test_a_missing_output_is_zero_where_nothing_was_delivered() -> None:
    assert counts(reading("ollama.chat", lines({"model": "m", "done": True, "done_reason": "load", "prompt_eval_count": 5}))) == (5, 0, None, "reported", True)


def test_a_line_that_is_cut_in_the_middle_is_not_read() -> None:
    whole = lines(HI, {"model": "m", "done": True, "prompt_eval_count": 5, "eval_count": 2})
    found = reading("ollama.chat", whole[:-20])
    assert (found.completed, str(found.error_class), found.anomalies) == (False, "truncated", ("bad_json_frame",))
    assert reading("ollama.chat", whole[:-1]).completed, "only the line's end is missing"


def test_an_error_as_the_first_line_is_known_for_one() -> None:
    found = reading("ollama.chat", lines({"error": "server busy"}))
    assert (found.error_first, str(found.error_class), found.source) == (True, "mid_stream_error", MeterSource.MISSING)


def test_tool_calls_over_several_lines_add_up() -> None:
    call: Any = {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}]}}
    found = reading("ollama.chat", lines(call, call, {"done": True, "prompt_eval_count": 5, "eval_count": 9}))
    assert (found.usage.tool_calls, found.tool_call_ids, found.tool_argument_bytes) == (2, ("c1",), 2 * len('f{"a":1}'))


def part(content: str, number: int, index: int = 0, **more: Any) -> Any:
    return {"index": index, "content": content, "stop": False, "tokens_predicted": number, "tokens_evaluated": 9, **more}


def stop(number: int, index: int = 0, **more: Any) -> Any:
    return {**part("", number, index), "stop": True, "stop_type": "limit", "tokens_cached": 99, **more}


def test_a_native_stream_that_breaks_off_has_its_running_counts() -> None:
    found = reading("llamacpp.completion", sse(part("a", 1), part("b", 2)))
    assert counts(found) == (9, 2, None, "estimated", False)
    assert found.running_output == 2


def test_several_native_prompts_add_up_and_end_with_the_last() -> None:
    request = {"prompt": ["a", "b"]}
    events: list[Any] = [part("x", 1, 1), part("y", 1, 0), stop(2, 1, timings={"cache_n": 3, "prompt_n": 6}), stop(4, 0, timings={"cache_n": 0, "prompt_n": 9})]
    assert counts(reading("llamacpp.completion", sse(*events), request=request)) == (18, 6, 3, "reported", True)
    assert counts(reading("llamacpp.completion", sse(*events[:3]), request=request)) == (18, 3, None, "estimated", False)
    whole = json.dumps([stop(2, 0, content="x"), stop(4, 1, content="y")]).encode()
    assert counts(reading("llamacpp.completion", whole, kind="application/json", request=request)) == (18, 6, None, "reported", True)


def test_null_events_and_zero_progress_of_llama_cpp_are_nothing() -> None:
    progress = {"index": 0, "content": "", "stop": False, "tokens_predicted": 0, "tokens_evaluated": 0, "timings": {"cache_n": 0, "prompt_n": 0}}
    found = reading("llamacpp.completion", b"data: null\n\n" + sse(progress, part("a", 1), stop(2)))
    assert counts(found) == (9, 2, None, "reported", True)
    assert found.anomalies == ()


def test_timings_stand_in_where_a_native_answer_has_no_counts() -> None:
    bare = {"content": "x", "stop": True, "timings": {"cache_n": 4, "prompt_n": 5, "predicted_n": 3}}
    assert counts(reading("llamacpp.completion", json.dumps(bare).encode(), kind="application/json")) == (9, 3, 4, "reported", True)


def about(text: str, output: int, finish: str | None = None, index: int = 0, **more: Any) -> Any:
    told = {"id": "r1", "finish_reason": {"type": finish} if finish else None, "prompt_tokens": 5, "completion_tokens": output, "cached_tokens": 2, **more}
    return {"text": text, "index": index, "meta_info": told}


def test_sglangs_counts_and_text_are_cumulative() -> None:
    found = reading("sglang.generate", sse(about("H", 1), about("Hi", 2), about("Hi!", 3, "length")) + b"data: [DONE]\n\n")
    assert counts(found) == (5, 3, 2, "reported", True)
    assert (found.text_bytes, found.finish_reason, found.response_id) == (3, "length", "r1")
    assert counts(reading("sglang.generate", sse(about("H", 1), about("Hi", 2)))) == (5, 2, 2, "estimated", False)


def test_samples_of_one_sglang_prompt_share_it_and_prompts_add_up() -> None:
    request = {"text": ["a", "b"], "sampling_params": {"n": 2}}
    events = [about("x", 1, "stop", index) for index in range(4)]
    assert counts(reading("sglang.generate", sse(*events), request=request)) == (10, 4, 4, "reported", True)
    assert counts(reading("sglang.generate", json.dumps(events).encode(), kind="application/json", request=request)) == (10, 4, 4, "reported", True)


def test_tgi_without_details_is_incomplete_only_in_its_counts() -> None:
    token = {"index": 1, "token": {"id": 1, "text": "a", "special": False}, "generated_text": None}
    end = {"index": 2, "token": {"id": 2, "text": "b", "special": False}, "generated_text": "ab", "details": None}
    found = reading("tgi.generate_stream", sse(token, end))
    assert (found.completed, found.source, found.running_output) == (True, MeterSource.MISSING, 2)
    whole = {"generated_text": "ab", "details": {"finish_reason": "length", "generated_tokens": 2, "prefill": [{"id": 1}, {"id": 2}]}}
    assert counts(reading("tgi.generate", json.dumps(whole).encode(), kind="application/json")) == (2, 2, None, "reported", True)
    failed = {"error": "overloaded", "error_type": "overloaded"}
    assert str(reading("tgi.generate_stream", sse(token, failed)).error_class) == "mid_stream_error"


def test_lm_studio_in_one_piece() -> None:
    output = [{"type": "tool_call", "tool": "f", "arguments": {"a": 1}}, {"type": "message", "content": "Hi"}]
    whole = {"model_instance_id": "m", "response_id": "r", "output": output, "stats": {"input_tokens": 5, "total_output_tokens": 3}}
    found = reading("lmstudio.chat", json.dumps(whole).encode(), kind="application/json")
    assert counts(found) == (5, 3, None, "reported", True)
    assert (found.usage.tool_calls, found.text_bytes, found.response_id, found.model) == (1, 2, "r", "m")


@pytest.mark.parametrize("dialect", PLAIN)
@pytest.mark.parametrize("body", [b'{"error":"Unexpected endpoint or method. (POST /x)"}', b'{"ok":true}', b"5", b'{"broken', b""])
def test_a_good_status_is_no_proof(dialect: str, body: bytes) -> None:
    found = reading(dialect, body, kind="application/json")
    assert not found.completed
    assert found.source is MeterSource.MISSING


@pytest.mark.parametrize("dialect", GENERATES)
def test_a_forged_length_end_is_read_as_the_format_itself_would_say_it(dialect: str) -> None:
    request = read(dialect)
    begun: dict[str, bytes] = {
        "ollama.chat": lines(HI), "ollama.generate": lines({"model": "m", "response": "Hi", "done": False}), "llamacpp.completion": sse(part("Hi", 1)),
        "sglang.generate": sse(about("Hi", 1)), "lmstudio.chat": sse({"type": "message.delta", "content": "Hi"}),
    }  # fmt: skip
    cut = reading(dialect, begun.get(dialect, sse({"index": 1, "token": {"text": "Hi"}, "generated_text": None})))
    made = DIALECTS[dialect].length_end(cut, request, Usage(input_tokens=5, output_tokens=2))
    kind = "application/x-ndjson" if dialect.startswith("ollama") else "text/event-stream"
    ended = reading(dialect, begun.get(dialect, b"") + made, kind=kind)
    assert (ended.completed, ended.usage.input_tokens, ended.usage.output_tokens) == (True, 5, 2)
    assert ended.finish_reason in ("length", "limit") or dialect == "lmstudio.chat"
