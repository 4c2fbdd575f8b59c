"""Body fields that no engine gets: fields of one server that mean nothing, or something else, to another."""

from __future__ import annotations

from typing import Final

STRIPPED: Final = frozenset(
    {
        # caps under other names, some of which go before all others: one name is written by the gateway
        "n_predict", "max_completion_tokens",
        # whose slot, whose turn, whose cache, whose adapter: state shared between callers
        "id_slot", "priority", "cache_salt", "extra_key", "lora", "lora_path", "adapters", "draft_model", "kv_transfer_params",
        "bootstrap_host", "bootstrap_port", "bootstrap_room", "keep_alive", "ttl",
        # form of the answer: what the meter reads must not be switched off or moved
        "response_fields", "sse_ping_interval", "verbose", "timings_per_token", "return_progress",
        # identity is the gateway's to give
        "rid", "request_id",
        # work that no output cap bounds, or another name for `n`
        "use_beam_search", "n_cmpl", "best_of", "prompt_logprobs",
    }
)  # fmt: skip
