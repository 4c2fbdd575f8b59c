"""What an entry means for what stands: the same step whether it was just posted or is read again at start.

Steps of calls (reserve and what closes it) are the books' own; here is all else.
"""

from __future__ import annotations

from typing import cast

from gateway.accounting.commands import Results
from gateway.accounting.standing import CampaignBook, KeyBook, RunBook, RunStatus, Standing
from gateway.accounting.tally import Content


def apply(standing: Standing, number: int, content: Content, entry_hash: bytes) -> None:
    """One entry that is about no call."""
    kind = content["kind"]
    campaign = standing.campaigns.get(cast(str, content.get("campaign", "")))
    if kind == "open_campaign":
        name = cast(str, content["campaign"])
        standing.campaigns[name] = CampaignBook(
            campaign=name, opened_at_ms=cast(int, content["at_ms"]), opening_number=number, opening=content, changed_number=number
        )
        return
    if campaign is None:
        return
    run = campaign.runs.get(cast(str, content.get("run", "")))
    if kind == "open_run":
        _open_run(campaign, number, content, entry_hash)
    elif kind in ("issue_key", "revoke_key"):
        _key(standing, number, content)
    elif run is None:
        _campaign(campaign, number, content)
    else:
        _run(campaign, run, number, content)


def _open_run(campaign: CampaignBook, number: int, content: Content, entry_hash: bytes) -> None:
    name = cast(str, content["run"])
    campaign.runs[name] = RunBook(
        campaign=campaign.campaign, run=name, opened_at_ms=cast(int, content["at_ms"]), opening_number=number, opening_hash=entry_hash, opening=content
    )
    if key := cast(str, content.get("idempotency_key", "")):
        campaign.idempotency[key] = name


def _key(standing: Standing, number: int, content: Content) -> None:
    key_id = cast(str, content["key"])
    if content["kind"] == "revoke_key":
        standing.keys[key_id].revoked_number = number
        return
    standing.keys[key_id] = KeyBook(
        key_id=key_id,
        digest=cast(str, content["digest"]),
        campaign=cast(str, content["campaign"]),
        run=cast(str, content["run"]),
        lane=cast(str, content["lane"]),
        issued_at_ms=cast(int, content["at_ms"]),
        issued_number=number,
    )


def _campaign(campaign: CampaignBook, number: int, content: Content) -> None:
    match content["kind"]:
        case "halt":
            campaign.halted, campaign.halt_reason, campaign.changed_number = True, cast(str, content.get("reason", "")), number
        case "resume":
            campaign.halted, campaign.halt_reason, campaign.changed_number = False, "", number
        case "close_campaign":
            campaign.closing_number = number
        case "receipt":
            campaign.receipt, campaign.receipt_number, campaign.receipt_due = cast(int, content["receipt"]), number, False


def _run(campaign: CampaignBook, run: RunBook, number: int, content: Content) -> None:
    match content["kind"]:
        case "begin_closing":
            run.status, run.closing_number = RunStatus.CLOSING, number
        case "declare":
            run.results, run.declared_number, run.receipt_due = results_of(content), number, True
        case "receipt":
            run.status, run.receipt, run.receipt_number, run.receipt_due = RunStatus.CLOSED, cast(int, content["receipt"]), number, False
        case "run_receipt":
            campaign.receipt_due = True
        case "event":
            _event(run, content)


def _event(run: RunBook, content: Content) -> None:
    match content.get("name"):
        case "preflight":
            run.preflighted = True
        case "warn_at":
            run.warned.add(str(cast(dict[str, object], content.get("details", {})).get("account", "")))


def results_of(content: Content) -> Results:
    """The results as they stand with this declaration."""
    declared = cast(dict[str, object], content.get("results", {}))
    return Results(
        exit=cast("int | None", declared.get("exit")),
        turn_end=cast(str, declared.get("turn_end", "")),
        judge=cast(str, declared.get("judge", "")),
        outcomes=tuple(sorted(cast(dict[str, str], declared.get("outcomes", {})).items())),
    )
