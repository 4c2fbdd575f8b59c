"""The fields of an OpenAI-shaped body that are settings, on any server; and a body as it is sent on.

The rule: what leaves has one cap, under the one name that its engine honours, and asks for usage where its engine must be asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import orjson

from gateway.dialects.body_fields import invalid, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA, OURS, lower

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


def choices_of(body: Mapping[str, Any]) -> int:
    value = whole_number(body, "n", 1)
    if value is not None and value > CHOICES_MAX:
        raise invalid("n", "at most one hundred and twenty-eight")
    return value or 1


def forwarded(
    request: CallRequest,
    facts: ForwardFacts,
    ceiling_per_choice: int,
    call_id: str,
    *,
    asks_usage: bool = True,
    dropped: Collection[str] = (),
) -> dict[str, Any]:
    """`asks_usage`: the format has `stream_options.include_usage`. `dropped`: fields of the format that are never sent on."""
    removed = facts.strip_fields
    body = {name: value for name, value in request.body.items() if name not in removed and name not in CAPS and name not in OURS and name not in dropped}
    body["model"] = facts.model
    lower(body, ceiling_per_choice)
    if asks_usage and not request.stream:
        body.pop("stream_options", None)
    elif asks_usage and facts.asks_usage:
        body["stream_options"] = {**(request.body.get("stream_options") or {}), "include_usage": True}
    if request.generates and facts.cap_name:
        body[facts.cap_name] = ceiling_per_choice
    for name, text in facts.pin_fields.items():
        body[name] = orjson.loads(text)
    if facts.request_id_field and call_id:
        body[facts.request_id_field] = call_id
    return body
