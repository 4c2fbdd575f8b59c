"""Speaks to a running gateway over its control socket, one request a connection, and waits.

Answers are given as they came, as dicts; an error of the gateway is a ControlError with its own words, and so is a gateway that does not run.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from gateway.client.addresses import bearer, connection_to

ANSWER_S = 30.0
"""How long the gateway may take to answer what it need not wait for."""
CALL_S = 900.0
"""How long, beyond the drain that was asked for, closing may wait for a call that an engine would not stop."""

Answer = dict[str, Any]


class ControlError(Exception):
    """The gateway answered with an error, or not at all (then `status` is 0)."""

    def __init__(self, problem: str, cause: str = "", mend: str = "", *, code: str = "", status: int = 0, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(" ".join(part for part in (problem, cause, mend) if part))
        self.problem = problem
        self.cause = cause
        self.mend = mend
        self.code = code
        self.status = status
        self.details = dict(details or {})
        """The whole error as it came, e.g. with the `limit` that stood in the way."""


class ControlClient:
    """By the control socket's path, or by `http://HOST:PORT` or `https://HOST:PORT` and the token."""

    def __init__(self, address: str | Path, *, token: str = "", ca_file: str | Path | None = None, answer_s: float = ANSWER_S, call_s: float = CALL_S) -> None:
        self.address = str(address)
        self._token = token
        self._ca_file = ca_file
        self._answer_s = answer_s
        self._call_s = call_s

    # campaigns

    def open_campaign(self, campaign: str, policy: str, planned: int | None = None, plan: Sequence[Mapping[str, Any]] = ()) -> Answer:
        """`plan`: the runs that should happen, each with `run` and, if wanted, `task`, `label`, `repeat`."""
        body: Answer = {"campaign": campaign, "policy": policy}
        if planned is not None:
            body["planned"] = planned
        if plan:
            body["plan"] = [dict(planned_run) for planned_run in plan]
        return self._post("/v1/campaigns", body)

    def campaigns(self) -> list[Answer]:
        return _listed(self._get("/v1/campaigns"), "campaigns")

    def campaign(self, campaign: str) -> Answer:
        return self._get(_campaign(campaign))

    def halt(self, campaign: str, reason: str = "") -> Answer:
        return self._post(_campaign(campaign) + "/halt", _given(reason=reason))

    def resume(self, campaign: str, reason: str = "") -> Answer:
        return self._post(_campaign(campaign) + "/resume", _given(reason=reason))

    def close_campaign(self, campaign: str, *, close_seconds: int | None = None, drain_seconds: int = 0) -> Answer:
        body: Answer = {} if close_seconds is None else {"close_seconds": close_seconds}
        body |= {"drain_seconds": drain_seconds} if drain_seconds else {}
        return self._post(_campaign(campaign) + "/close", body, wait_s=self._call_s + (close_seconds or 0))

    def campaign_receipt(self, campaign: str) -> Answer:
        return self._get(_campaign(campaign) + "/receipt")

    # runs

    def open_run(
        self,
        campaign: str,
        run: str = "",
        *,
        task: str = "",
        label: str = "",
        lanes: Sequence[str] = (),
        idempotency_key: str = "",
        repeat: int = 0,
        pins: Mapping[str, str] | None = None,
    ) -> Answer:
        """`repeat`: which attempt at its task. `pins`: name to `sha256:…` of what makes the run what it is."""
        body: Answer = _given(run=run, task=task, label=label, idempotency_key=idempotency_key)
        if repeat:
            body["repeat"] = repeat
        body |= {"pins": dict(pins)} if pins else {}
        body |= {"lanes": list(lanes)} if lanes else {}
        return self._post(_campaign(campaign) + "/runs", body)

    def runs(self, campaign: str) -> list[Answer]:
        return _listed(self._get(_campaign(campaign) + "/runs"), "runs")

    def run(self, campaign: str, run: str) -> Answer:
        return self._get(_run(campaign, run))

    def close_run(self, campaign: str, run: str, *, results: Mapping[str, Any] | None = None, drain_seconds: int = 0, reason: str = "") -> Answer:
        """The receipt and the conflicts. `results`: exit, turn_end, judge, outcomes; what is missing is unknown."""
        body: Answer = _given(reason=reason)
        if results:
            body["results"] = dict(results)
        if drain_seconds:
            body["drain_seconds"] = drain_seconds
        return self._post(_run(campaign, run) + "/close", body, wait_s=self._call_s + drain_seconds)

    def run_receipt(self, campaign: str, run: str) -> Answer:
        return self._get(_run(campaign, run) + "/receipt")

    def run_budget(self, campaign: str, run: str, lane: str = "") -> Answer:
        """Every limit that the run, or one lane of it, can meet, and what is left of each."""
        return self._get(_run(campaign, run) + "/budget", _given(lane=lane))

    def preflight(self, campaign: str, run: str, expect: Mapping[str, int | str], lane: str = "") -> Answer:
        """Where not all is as expected, the ControlError's code is `preflight_failed` and its details have `differences`."""
        return self._post(_run(campaign, run) + "/preflight", {"expect": dict(expect), **_given(lane=lane)})

    def explain(self, call: str) -> Answer:
        """Why a call was refused, clamped, made to wait, cut."""
        return self._get(f"/v1/calls/{quote(call, safe='')}")

    def note_reconciled(self, campaign: str, run: str, counts: Answer) -> Answer:
        """Puts the counts of a reconciliation on record: `as_of`, `classes`, `unexplained`, `sha256`."""
        return self._post(_campaign(campaign) + "/reconciled", {"run": run, **counts})

    def correct_call(self, call: str, usage: Mapping[str, int], why: str, evidence: str) -> Answer:
        """Appends a correction of what a call used; the call as it stood and as it stands."""
        return self._post(f"/v1/calls/{quote(call, safe='')}/correct", {**usage, "why": why, "evidence": evidence})

    # policies

    def reload_policies(self) -> Answer:
        """Reads every policy file anew; all are taken, or none."""
        return self._post("/v1/policies/reload", {})

    # upstreams

    def upstreams(self) -> list[Answer]:
        return _listed(self._get("/v1/upstreams"), "upstreams")

    def drain(self, upstream: str) -> Answer:
        return self._post(f"/v1/upstreams/{quote(upstream, safe='')}/drain", {})

    def resume_upstream(self, upstream: str) -> Answer:
        return self._post(f"/v1/upstreams/{quote(upstream, safe='')}/resume", {})

    # keys

    def issue_key(self, campaign: str, run: str, lane: str) -> Answer:
        return self._post("/v1/keys", {"campaign": campaign, "run": run, "lane": lane})

    def revoke_key(self, key_id: str, reason: str = "") -> Answer:
        return self._post(f"/v1/keys/{quote(key_id, safe='')}/revoke", _given(reason=reason))

    def keys(self, campaign: str = "", run: str = "") -> list[Answer]:
        return _listed(self._get("/v1/keys", _given(campaign=campaign, run=run)), "keys")

    # what only tells

    def usage(self, by: str = "run", *, campaign: str = "", run: str = "", across_labels: bool = False, as_of: int = 0, zone: str = "") -> Answer:
        """`as_of`: the number of an entry; the ledger as it stood with it. `zone`: of the days, by day."""
        asked = _given(by=by, campaign=campaign, run=run, across_labels="true" if across_labels else "", as_of=str(as_of or ""), zone=zone)
        return self._get("/v1/usage", asked)

    def clock(self) -> Answer:
        return self._get("/v1/ledger/clock")

    def accept_clock(self, reason: str = "") -> Answer:
        return self._post("/v1/ledger/clock/accept", _given(reason=reason))

    def status(self) -> Answer:
        return self._get("/v1/status")

    def metrics(self) -> str:
        status, content = self._exchange("GET", "/metrics", None, self._answer_s)
        if status != 200:
            raise _error(status, content)
        return content.decode()

    def live(self) -> bool:
        """Whether a gateway listens here."""
        with suppress(ControlError), self._asked("GET", "/livez", None, self._answer_s) as response:
            return response.status == 200
        return False

    def ready(self) -> Answer:
        """`ready`, and the reasons where it is not."""
        status, content = self._exchange("GET", "/readyz", None, self._answer_s)
        if status not in (200, 503):
            raise _error(status, content)
        return _object(content)

    # one request

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        return self._json("GET", path + ("?" + urlencode(query) if query else ""), None, self._answer_s)

    def _post(self, path: str, body: Answer, wait_s: float | None = None) -> Answer:
        return self._json("POST", path, json.dumps(body).encode(), wait_s or self._answer_s)

    def _json(self, method: str, path: str, body: bytes | None, wait_s: float) -> Answer:
        status, content = self._exchange(method, path, body, wait_s)
        if status >= 400:
            raise _error(status, content)
        return _object(content)

    def _exchange(self, method: str, path: str, body: bytes | None, wait_s: float) -> tuple[int, bytes]:
        with self._asked(method, path, body, wait_s) as response, self._worded(wait_s):
            return response.status, response.read()

    @contextmanager
    def stream(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET, whatever its status, read as it comes; between two pieces no more time may pass than for any answer."""
        with self._asked("GET", path, None, self._answer_s) as response:
            yield response

    @contextmanager
    def _asked(self, method: str, path: str, body: bytes | None, wait_s: float) -> Iterator[http.client.HTTPResponse]:
        try:
            connection, headers = connection_to(self.address, wait_s, self._ca_file), bearer(self._token)
        except ValueError as error:
            raise ControlError("The gateway can't be asked.", str(error), "Mend the address, the token or the authority's file, then ask again.") from error
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            with self._worded(wait_s):
                connection.request(method, path, body, headers)
                response = connection.getresponse()
            yield response
        finally:
            connection.close()

    @contextmanager
    def _worded(self, wait_s: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            cause = f"It took longer than {wait_s:g} seconds; what was asked for may still be carried out."
            raise ControlError("The gateway has not answered.", cause, "See with the show commands what was done, then ask again.") from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            mend = "Start it with `gateway serve`, or name the control.socket of the one that runs."
            raise ControlError("The gateway does not run.", f"Nothing listens on {self.address}.", mend) from error
        except PermissionError as error:
            raise ControlError("The gateway can't be reached.", f"This user may not open {self.address}.", "Ask as the user who runs it.") from error
        except (OSError, http.client.HTTPException) as error:
            cause = f"The connection to {self.address} broke: {error!r}."
            raise ControlError("The gateway can't be reached.", cause, "See whether it still runs and what was done, then ask again.") from error


def _error(status: int, content: bytes) -> ControlError:
    try:
        error = json.loads(content)["error"]
        return ControlError(error["problem"], error["cause"], error["mend"], code=error["code"], status=status, details=error)
    except (ValueError, KeyError, TypeError):
        return ControlError("The gateway answered with an error.", f"Its status is {status}.", "Its log has the details.", status=status)


def _object(content: bytes) -> Answer:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ControlError("The gateway's answer can't be read.", "It is no JSON object.", "Client and gateway should be of the same version.")
    return found


def _listed(answer: Answer, name: str) -> list[Answer]:
    return list(answer.get(name, []))


def _given(**texts: str) -> dict[str, Any]:
    return {name: text for name, text in texts.items() if text}


def _campaign(campaign: str) -> str:
    return "/v1/campaigns/" + quote(campaign, safe="")


def _run(campaign: str, run: str) -> str:
    return f"{_campaign(campaign)}/runs/{quote(run, safe='')}"
