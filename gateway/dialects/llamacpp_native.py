"""llama.cpp's own API: `/completion` and `/embedding`.

The rule: one cap, the engine's own name of it, and no other alias; the prompt goes to the model as it is, so it is counted as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, smallest_cap, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, ReplyKind, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own, guard_part
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.llamacpp_events import CompletionReader
from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.native_replies import data_event, error_of, reply
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA, OURS, lower
from gateway.dialects.plain_prompt import PlainPrompt, read_prompt
from gateway.dialects.received import write
from gateway.dialects.vector_reader import VectorReader

SETTINGS: Final = frozenset(
    {
        *CAPS, *MINIMA, *BUDGETS,
        "model", "stream", "n", "seed", "stop", "temperature", "top_p", "top_k", "min_p", "typical_p", "top_n_sigma", "dynatemp_range", "dynatemp_exponent",
        "presence_penalty", "frequency_penalty", "repeat_penalty", "repeat_last_n", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
        "dry_sequence_breakers", "xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau", "mirostat_eta", "samplers", "logit_bias", "n_probs",
        "post_sampling_probs", "min_keep", "n_keep", "n_discard", "n_indent", "ignore_eos", "cache_prompt", "n_cache_reuse", "t_max_predict_ms",
        "timings_per_token", "return_progress", "return_tokens", "embd_normalize", "speculative.n_max", "speculative.n_min", "speculative.p_min",
    }
)  # fmt: skip


class _LlamaCpp:
    """What the two share."""

    name = ""
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields | OURS | {"n", *CAPS}
        body = {name: value for name, value in request.body.items() if name not in removed}
        body["model"] = facts.model
        lower(body, ceiling_per_choice)
        if request.generates:
            body[facts.cap_name] = ceiling_per_choice
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        return body

    def reply(self, wording: Wording) -> Reply:
        if wording.kind is not ReplyKind.CONTEXT_OVERFLOW or not wording.context_tokens:
            return reply(wording)
        plain = error_of(wording)
        error = {"code": 400, "message": plain.pop("error"), "type": "exceed_context_size_error"}
        return Reply(400, write({"error": {**error, "n_prompt_tokens": plain["n_prompt_tokens"], "n_ctx": plain["n_ctx"]}}), reply(wording).headers)

    def error_event(self, wording: Wording) -> bytes:
        return data_event(error_of(wording))

    def _request(self, body: Mapping[str, Any], prompt: PlainPrompt, *, generates: bool, pictures: int = 0, extra: tuple[str, ...] = ()) -> CallRequest:
        """A body may leave its model out: then it is the only one."""
        model = body.get("model")
        return CallRequest(
            model=model if isinstance(model, str) else "",
            stream=generates and flag(body, "stream"),
            asked_output=smallest_cap(body, CAPS) if generates else 0,
            min_output=max((value for name in MINIMA if (value := whole_number(body, name, 0)) is not None), default=None),
            choices=1,
            prompts=prompt.prompts,
            usage_asked=True,
            rendered_parts=(*prompt.texts, *extra),
            pictures=prompt.pictures + pictures,
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=tuple(prompt.texts),
            prompt_ids=prompt.ids,
            prompt_begins=prompt.begins,
            generates=generates,
        )


class LlamaCppCompletion(_LlamaCpp):
    """The dialect `llamacpp.completion`."""

    name = "llamacpp.completion"

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        guard_fields(body, allowed)
        whole_number(body, "n", 1)
        guard_own(body, self.name, allowed)
        guard_inputs(body, "prompt")
        images = body.get("image_data")
        if images is not None:
            guard_part({"image": images}, "image", allowed)
        extra = tuple(compact(value) for name in ("json_schema", "grammar") if (value := body.get(name)) is not None)
        prompt = read_prompt(body.get("prompt"), "prompt", allowed)
        return self._request(body, prompt, generates=True, pictures=len(images) if isinstance(images, list) else 0, extra=extra)

    def reader(self, request: CallRequest, engine: str) -> CompletionReader:
        return CompletionReader(request.prompts)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        used = usage if usage is not None else reading.usage
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        counts = {"tokens_predicted": output, "tokens_evaluated": used.input_tokens}
        known = {name: count for name, count in counts.items() if count is not None}
        finished = dict(enumerate(reading.finish_reasons))
        head = {"content": "", "tokens": [], "stop": True, "model": reading.model or request.model}
        return b"".join(
            data_event({"index": index, **head, **known, "stop_type": "limit", "stopping_word": ""})
            for index in range(max(request.prompts, len(finished)))
            if not finished.get(index)
        )


class LlamaCppEmbedding(_LlamaCpp):
    """The dialect `llamacpp.embedding`: it never says how much it read."""

    name = "llamacpp.embedding"

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        guard_fields(body, allowed)
        name = "content" if "content" in body else "input"
        guard_inputs(body, name)
        return self._request(body, read_prompt(body.get(name), name, allowed), generates=False)

    def reader(self, request: CallRequest, engine: str) -> MarkedReader:
        return VectorReader()

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return b""
