"""What the mock engine answers about itself, in llama.cpp's shapes: /health, /v1/models, /props, /slots, /metrics. Pure.

Its metrics stand under the names of other servers too, so that it can stand for one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from gateway.mock_engine.log import CallRecord
from gateway.mock_engine.script import Playbook

SHOWN_SLOTS = 4
"""Where there is no limit and nothing runs."""


@dataclass(slots=True, kw_only=True)
class Counters:
    """Sums over all calls since the start, also of those that were cut."""

    prompt_tokens: int = 0
    """Without cached ones."""
    cached_tokens: int = 0
    output_tokens: int = 0
    active: int = 0
    waiting: int = 0
    most_active: int = 0
    at_work: dict[int, CallRecord] = field(default_factory=dict)
    """By slot."""


def health(playbook: Playbook) -> tuple[int, bytes]:
    if playbook.health_status == 200:
        return 200, b'{"status":"ok"}'
    return playbook.health_status, orjson.dumps({"error": {"code": playbook.health_status, "message": "Loading model", "type": "unavailable_error"}})


def models(playbook: Playbook) -> bytes:
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "mock-engine", "meta": {"n_ctx": playbook.context_tokens}} for name in playbook.served]
    return orjson.dumps({"object": "list", "data": data})


def props(playbook: Playbook) -> bytes:
    settings = {"n_ctx": playbook.context_tokens}
    return orjson.dumps(
        {
            "default_generation_settings": settings,
            "total_slots": playbook.slots or SHOWN_SLOTS,
            "model_path": playbook.served[0] if playbook.served else "mock",
            "chat_template": "chatml",
            "build_info": "mock-engine",
        }
    )


def slots(playbook: Playbook, counters: Counters) -> bytes:
    """What really runs, whoever left meanwhile."""
    total = max(playbook.slots or SHOWN_SLOTS, *(number + 1 for number in counters.at_work), 0)
    return orjson.dumps([_slot(number, playbook.context_tokens, counters.at_work.get(number)) for number in range(total)])


def _slot(number: int, context_tokens: int, record: CallRecord | None) -> dict[str, object]:
    slot: dict[str, object] = {"id": number, "n_ctx": context_tokens, "is_processing": record is not None}
    if record is not None:
        params = {"max_tokens": record.asked_tokens, "n_predict": record.asked_tokens, "stream": record.stream}
        slot |= {"id_task": record.number, "params": params, "next_token": [{"n_decoded": record.output_tokens}]}
    return slot


def metrics(counters: Counters) -> bytes:
    rows = (
        ("prompt_tokens_total", "counter", "Number of prompt tokens processed, excluding cached tokens", counters.prompt_tokens),
        ("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", counters.cached_tokens),
        ("tokens_predicted_total", "counter", "Number of generation tokens processed", counters.output_tokens),
        ("requests_processing", "gauge", "Number of requests processing", counters.active),
        ("requests_deferred", "gauge", "Number of requests waiting for a slot", counters.waiting),
    )
    others = (
        ("vllm:num_requests_running", counters.active),
        ("vllm:num_requests_waiting", counters.waiting),
        ("sglang:num_running_reqs", counters.active),
        ("sglang:num_queue_reqs", counters.waiting),
    )
    own = "".join(f"# HELP llamacpp:{n} {text}\n# TYPE llamacpp:{n} {kind}\nllamacpp:{n} {value}\n" for n, kind, text, value in rows)
    return (own + "".join(f'# TYPE {n} gauge\n{n}{{model_name="mock"}} {value}.0\n' for n, value in others)).encode()
