"""The one place that answers what was not admitted: on record while the run is open, counted always, and never with more than the agent may know."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.accounting.commands import Refuse
from gateway.accounting.limit import Shortfall
from gateway.dialects.dialect import BodyError, Reply
from gateway.metrics.metrics import Metrics
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.body import BodyRefused
from gateway.proxy.calls import Route, Unauthorized, Undeclared
from gateway.proxy.refused import refuse
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused

SHORTFALL = Shortfall(name="run.requests", ceiling=7, settled=5, reserved=2, asked=1)


class Answer:
    """What the agent got."""

    def __init__(self) -> None:
        self.call_id = "call-1"
        self.target = "/v1/chat/completions"
        self.got: Reply | None = None
        self.headers: dict[str, str] = {}

    async def reply(self, reply: Reply, headers: dict[str, str] | None = None) -> None:
        self.got, self.headers = reply, {**reply.headers, **(headers or {})}

    @property
    def error(self) -> dict[str, Any]:
        assert self.got is not None
        error: dict[str, Any] = json.loads(self.got.body)["error"]
        return error


class Place:
    def __init__(self, *, live: bool = True, tell: bool = True) -> None:
        self.posted: list[Refuse] = []
        self.metrics = Metrics()
        agent = SimpleNamespace(tell_agent=tell, refusal_status={})
        campaign = SimpleNamespace(campaign="c1", policy=SimpleNamespace(agent=agent))
        identity = SimpleNamespace(campaign=campaign, run=SimpleNamespace(run="r1"), lane="foreground", live=live)
        self.route = cast(Route, SimpleNamespace(identity=identity, api="openai.chat", model="mock"))

    async def refused(self, error: Exception, *, routed: bool = True) -> Answer:
        answer = Answer()
        services: Any = SimpleNamespace(metrics=self.metrics, ledger=SimpleNamespace(post=self._post, now_ms=lambda: 1_000))
        await refuse(error, self.route if routed else None, cast(Services, services), cast(AgentSide, answer))
        return answer

    def _post(self, command: Refuse) -> Any:
        self.posted.append(command)
        return SimpleNamespace(add_done_callback=lambda _callback: None)

    def counted(self, name: str) -> float:
        lines = self.metrics.render().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


async def test_a_refusal_is_on_record_with_its_limit_and_its_wait() -> None:
    place = Place()
    answer = await place.refused(Refused(Refusal(code="run_budget_reached", final=True, shortfall=SHORTFALL, waited_ms=30)))
    (command,) = place.posted
    assert (command.call_id, command.campaign, command.run, command.lane) == ("call-1", "c1", "r1", "foreground")
    assert (command.code, command.final, command.limit, command.waited_ms) == ("run_budget_reached", True, SHORTFALL, 30)
    assert answer.headers["x-gateway-waited-ms"] == "30" and answer.headers["x-gateway-asked"] == "1"
    assert place.counted('gateway_refusals_total{code="run_budget_reached"}') == 1
    assert place.counted('gateway_limit_refusals_total{limit="run.requests"}') == 1


@pytest.mark.parametrize("error", [BodyError("not_allowed", "No.", "lora"), BodyError("model_not_found", "No.", "model"), BodyRefused("body_too_large", "No.")])
async def test_what_the_guard_refuses_is_on_record_as_final(error: BodyError | BodyRefused) -> None:
    place = Place()
    answer = await place.refused(error)
    (command,) = place.posted
    assert (command.code, command.final, command.field_name) == (error.code, True, getattr(error, "field_name", ""))
    assert answer.error["code"] == error.code


async def test_after_the_runs_end_and_without_a_ledger_a_refusal_is_counted_only() -> None:
    closed, broken = Place(live=False), Place()
    await closed.refused(Refused(Refusal(code="run_closed", final=True)))
    await broken.refused(Refused(Refusal(code="ledger_unavailable", final=False)))
    assert closed.posted == broken.posted == []
    assert closed.counted('gateway_refusals_total{code="run_closed"}') == 1


async def test_an_agent_that_may_not_know_learns_the_limits_name_alone() -> None:
    answer = await Place(tell=False).refused(Refused(Refusal(code="run_budget_reached", final=True, shortfall=SHORTFALL)))
    assert {name: value for name, value in answer.headers.items() if name.startswith("x-gateway")} == {"x-gateway-limit": "run.requests"}
    assert not any(sign.isdigit() for sign in json.dumps(answer.error))


@pytest.mark.parametrize(("error", "status", "metric"), [(Unauthorized(), 401, "gateway_unauthorized_total"), (Undeclared(), 404, "gateway_undeclared_total")])
async def test_strangers_and_undeclared_paths_are_metrics_only(error: Exception, status: int, metric: str) -> None:
    place = Place()
    answer = await place.refused(error, routed=False)
    assert answer.got is not None and answer.got.status == status
    assert place.posted == [] and place.counted(metric) == 1


async def test_a_fault_of_our_own_tells_nothing_of_itself() -> None:
    place = Place()
    answer = await place.refused(ValueError("secret /srv/gateway 10.0.0.1"))
    assert answer.got is not None and answer.got.status == 500
    assert b"secret" not in answer.got.body and b"10.0" not in answer.got.body
    assert place.posted == []
