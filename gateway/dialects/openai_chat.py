"""OpenAI chat completions: `POST /v1/chat/completions`.

The rule: an agent's body is checked here and only here; what leaves has one cap, under the one name that its engine honours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.body_fields import flag, invalid, list_of_objects, object_of, smallest_cap, text_of, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, Reply, Wording
from gateway.dialects.guard import GUARDED, guard_fields, guard_spelling, guard_tools
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.openai_chunks import ChunkReader
from gateway.dialects.openai_messages import LateTexts, read_messages
from gateway.dialects.openai_replies import DONE, data_event, error_event, reply

CAPS: Final = (
    "max_completion_tokens", "max_tokens", "n_predict", "max_output_tokens", "max_new_tokens", "max_length", "max_gen_len", "num_predict",
    "max_tokens_to_sample",
)  # fmt: skip
MINIMA: Final = ("min_tokens", "min_new_tokens", "min_completion_tokens", "min_length")
BUDGETS: Final = ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens", "thinking_budget", "reasoning_budget", "reasoning_tokens")
CHOICES_MAX: Final = 128
SETTINGS: Final = frozenset(
    {
        *CAPS, *MINIMA, *BUDGETS,
        "model", "stream", "stream_options", "n", "seed", "stop", "temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "tfs_z", "top_n_sigma",
        "presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "repeat_last_n", "length_penalty", "no_repeat_ngram_size",
        "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability", "xtc_threshold",
        "mirostat", "mirostat_mode", "mirostat_tau", "mirostat_eta", "dynatemp_range", "dynatemp_exponent", "smoothing_factor", "samplers", "penalize_nl",
        "logprobs", "top_logprobs", "n_probs", "post_sampling_probs", "logit_bias", "min_keep", "n_keep", "n_discard", "n_indent", "ignore_eos",
        "ban_eos_token",
        "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "stop_regex", "bad_words",
        "tool_choice", "parallel_tool_calls", "parallel_function_calls", "function_call", "parse_tool_calls", "modalities",
        "reasoning_effort", "reasoning", "reasoning_format", "thinking", "enable_thinking", "include_reasoning", "separate_reasoning", "stream_reasoning",
        "thinking_forced_open", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "continue_assistant_turn", "add_special_tokens",
        "verbosity", "service_tier", "store", "cache_prompt", "n_cache_reuse", "timings_per_token", "return_progress", "return_tokens", "return_token_ids",
        "return_tokens_as_token_ids", "truncate_prompt_tokens", "t_max_predict_ms", "speculative.n_max", "speculative.n_min", "speculative.p_min",
        "guided_decoding_backend", "do_sample", "num_beams", "num_ctx", "use_cache", "repetition_detection", "detokenize",
    }
)  # fmt: skip
_RENDERED_FIELDS: Final = ("response_format", "json_schema", "grammar", "documents", "chat_template_kwargs", "structured_outputs", "guided_json", "prefill")
_SPELLED: Final = SETTINGS | GUARDED.keys() | {"messages", "tools", "functions", "metadata", "user", *_RENDERED_FIELDS}


class OpenAIChat:
    """The dialect `openai.chat`."""

    name = "openai.chat"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def read_request(self, body: Mapping[str, Any], allowed: frozenset[str] = frozenset(), known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_spelling(body, _SPELLED)
        messages = list_of_objects(body, "messages") if known is None else body["messages"]
        if not messages:
            raise invalid("messages", "a list that is not empty")
        stream = flag(body, "stream")
        asked_usage = flag(object_of(body, "stream_options"), "include_usage", "stream_options.")
        tools = list_of_objects(body, "tools")
        functions = list_of_objects(body, "functions")
        names = (*guard_tools(tools, allowed), *(text_of(function, "name") for function in functions))
        texts: list[str] = []
        if known is None:
            read = read_messages(messages, texts, allowed)
        else:
            read = known.read + read_messages(list_of_objects({"messages": messages[known.messages :]}, "messages"), texts, allowed)
        others = [compact(item) for item in (*tools, *functions)]
        others += [compact(value) for name in _RENDERED_FIELDS if (value := body.get(name)) is not None]
        return CallRequest(
            model=model,
            stream=stream,
            asked_output=smallest_cap(body, CAPS),
            min_output=max((value for name in MINIMA if (value := whole_number(body, name, 0)) is not None), default=None),
            choices=_choices(body),
            prompts=1,
            usage_asked=stream and asked_usage,
            rendered_parts=(*texts, *others) if known is None else LateTexts(lambda: _texts(messages, others, allowed)),
            other_parts=tuple(others),
            read=read,
            pictures=read.pictures,
            has_tools=bool(tools or functions),
            tool_names=names,
            body=body,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields
        body = {name: value for name, value in request.body.items() if name not in removed and name not in CAPS and name not in _OURS}
        body["model"] = facts.model
        for name in (*MINIMA, *BUDGETS):
            value = body.get(name)
            if isinstance(value, int | float) and value > ceiling_per_choice:
                body[name] = ceiling_per_choice
        _lower_nested(body, ceiling_per_choice)
        if not request.stream:
            body.pop("stream_options", None)
        elif facts.asks_usage:
            body["stream_options"] = {**(request.body.get("stream_options") or {}), "include_usage": True}
        body[facts.cap_name] = ceiling_per_choice
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        if facts.request_id_field and call_id:
            body[facts.request_id_field] = call_id
        return body

    def reader(self, request: CallRequest, engine: str) -> ChunkReader:
        return ChunkReader(choices=request.choices, usage_asked=request.usage_asked, by_choice=engine == "llama.cpp")

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        """`usage`: what was settled, where it is more than the reading knows."""
        head: dict[str, Any] = {
            "id": reading.response_id or "",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": reading.model or request.model,
        }
        finished = dict(enumerate(reading.finish_reasons))
        pieces = [
            data_event({**head, "choices": [{"index": index, "delta": {}, "finish_reason": "length"}]})
            for index in range(max(request.choices, len(finished)))
            if not finished.get(index)
        ]
        used = usage if usage is not None else reading.usage
        given = used.input_tokens
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        if request.usage_asked and given is not None and output is not None:
            counts = {"prompt_tokens": given, "completion_tokens": output, "total_tokens": given + output}
            pieces.append(data_event({**head, "choices": [], "usage": counts}))
        return b"".join((*pieces, DONE))


_OURS: Final = frozenset({"rid", "request_id", "response_fields", "sse_ping_interval", "n_cmpl", "best_of"})
"""Never forwarded: the gateway's own to set, or without meaning but to mislead the meter."""


def _choices(body: Mapping[str, Any]) -> int:
    value = whole_number(body, "n", 1)
    if value is not None and value > CHOICES_MAX:
        raise invalid("n", "smaller")
    return value or 1


def _texts(messages: list[dict[str, Any]], others: list[str], allowed: frozenset[str]) -> tuple[str, ...]:
    texts: list[str] = []
    read_messages(messages, texts, allowed)
    return (*texts, *others)


def _lower_nested(body: dict[str, Any], ceiling: int) -> None:
    """Thinking budgets inside objects: copied before they are changed, for the body as received is read only."""
    for name, inside in (("reasoning", "max_tokens"), ("thinking", "budget_tokens"), ("chat_template_kwargs", "thinking_budget")):
        value = body.get(name)
        if isinstance(value, dict) and isinstance(value.get(inside), int | float) and value[inside] > ceiling:
            body[name] = {**value, inside: ceiling}
