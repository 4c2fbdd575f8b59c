"""Ways in which a run comes to its end for good: the policy, what spends or closes it, and the code of the refusal that follows."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_http import chat_once
from tests.support.toml import Tables
from tests.support.waiting import eventually

POLICIES: dict[str, Tables] = {
    "requests": {"run": {"requests": 1}},
    "output": {"run": {"output_tokens": 4}},
    "tool-calls": {"run": {"tool_calls": 1}},
    "day": {"campaign": {"day": {"requests": 1, "timezone": "UTC"}}, "admission": {"queue_seconds": 0}},
    "prompt": {"call": {"prompt_tokens": 3, "output_tokens": 16}},
    "wall": {"run": {"wall_seconds": 1}},
    "span": {"campaign": {"span_seconds": 2}},
    "preflight": {"agent": {"require_preflight": True}},
    "open": {},
    "context": {"models": {"mock": {"context_tokens": 4}}},
    "no-wait": {"admission": {"queue_seconds": 0}, "run": {"concurrent": 1}},
    "left": {"run": {"requests": 300, "input_tokens": 100_000, "output_tokens": 1_000}, "agent": {"warn_at": 0.4}},
}


def spend(gateway: GatewayProcess, run: OpenedRun) -> None:
    assert chat_once(gateway.port, run.key, max_tokens=4).status == 200


def spend_time(gateway: GatewayProcess, run: OpenedRun) -> None:
    spend(gateway, run)
    eventually(lambda: gateway.control.run(run).get("overdue"), "its time is over")


def outlive(gateway: GatewayProcess, run: OpenedRun) -> None:
    ends_at_ms = min(each["ends_at_ms"] for each in gateway.control.run(run)["deadlines"])
    eventually(lambda: gateway.control.get("/v1/ledger/clock")["now_ms"] >= ends_at_ms, "the campaign's span is over")


def close(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.close_run(run)


def close_campaign(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.post(f"/v1/campaigns/{run.campaign}/close")


def revoke(gateway: GatewayProcess, run: OpenedRun) -> None:
    [key] = gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]
    gateway.control.post(f"/v1/keys/{key['key_id']}/revoke")


def nothing(gateway: GatewayProcess, run: OpenedRun) -> None:
    pass


FINAL: dict[str, tuple[str, Callable[[GatewayProcess, OpenedRun], None], str]] = {
    "requests": ("requests", spend, "run_budget_reached"),
    "output": ("output", spend, "run_budget_reached"),
    "tool calls": ("tool-calls", spend, "run_budget_reached"),
    "a day": ("day", spend, "run_budget_reached"),
    "wall": ("wall", spend_time, "run_budget_reached"),
    "prompt": ("prompt", nothing, "prompt_above_cap"),
    "span": ("span", outlive, "window_over"),
    "preflight": ("preflight", nothing, "preflight_required"),
    "closed run": ("open", close, "run_closed"),
    "closed campaign": ("open", close_campaign, "run_closed"),
    "revoked key": ("open", revoke, "run_closed"),
}
