"""`gateway capture`: bodies that a policy had kept, for people who make training data of what they ran."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import ledger_path, open_ledger, with_ledger
from gateway.cli.screen import Line, Screen, with_screen
from gateway.errors import NotFound

if TYPE_CHECKING:
    from gateway.capture.selecting import CallBodies
    from gateway.capture.store import BodyStore
    from gateway.ledger.reading import LedgerReader

ROLES: Final = ("received", "sent", "answer")


@click.group()
def capture() -> None:
    """Show, export and prune the bodies that a policy with `capture = true` had kept."""


@capture.command()
@click.argument("call_id")
@click.option("--role", type=click.Choice(ROLES), default="received", show_default=True, help="The request as it came, as it was sent, or the answer.")
@with_ledger
@with_gateway
@with_screen
def show(call_id: str, role: str, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Write one body of a call to stdout, byte for byte. With --json: which of its bodies are kept."""
    path = ledger_path(ledger, reach)
    store = _store(path)
    with open_ledger(path) as reader:
        found = _only_call(reader, store, call_id)
    if screen.as_json:
        kept = {each: {"sha256": digest, "kept": store.has(digest)} for each, digest in found.digests.items()}
        screen.present({"call": call_id, "campaign": found.campaign, "run": found.run, "bodies": kept})
        return
    digest = found.digests.get(role, "")
    if not digest or not store.has(digest):
        raise Problem(
            f"the {role} body of {call_id} is not kept", "its policy did not ask for it, or it was pruned, or there was no room", MEND, code="not_kept"
        )
    sys.stdout.buffer.write(store.read(digest))


@capture.command()
@click.argument("campaign")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="A new file: one JSON object a line.")
@click.option("--run", default="", metavar="RUN", help="Only this run's calls.")
@click.option("--outcome", default="", metavar="OUTCOME", help="Only calls that ended so, e.g. completed.")
@with_ledger
@with_gateway
@with_screen
def export(campaign: str, out: Path, run: str, outcome: str, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Write the kept requests and answers of a campaign's calls, each with what the ledger knows of it: run, lane, outcome, usage."""
    path = ledger_path(ledger, reach)
    store = _store(path)
    written = without = 0
    try:
        with open_ledger(path) as reader, reader.at_one_moment():
            runs = [str(row["run"]) for row in reader.runs(campaign) if run in ("", row["run"])]
            if not runs:
                raise NotFound(f"there is no run {campaign}/{run}" if run else f"there is no campaign {campaign} with a run")
            with open(out, "x", encoding="utf-8", opener=_private) as file:
                for line in _lines(reader, store, campaign, runs, outcome):
                    written, without = written + 1, without + ("request" not in line)
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    except OSError as error:
        raise Problem(f"{out} can't be written", error.strerror or str(error), "name a new file in a folder that can be written", code="bad_out") from error
    document = {"out": str(out), "calls": written, "without_bodies": without}
    screen.present(document, Line(f"{out}: {written} calls, {without} of them without bodies."))


@capture.command()
@click.option("--campaign", default="", metavar="CAMPAIGN", help="Only bodies of this campaign's calls.")
@click.option("--before", type=click.DateTime(["%Y-%m-%d"]), default=None, metavar="DATE", help="Only bodies of calls before this day (UTC).")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@with_ledger
@with_gateway
@with_screen
def prune(campaign: str, before: datetime | None, everything: bool, dry_run: bool, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Remove kept bodies. One that another call still needs stays. The ledger keeps its digests: `explain --body` works as before."""
    if everything == bool(campaign or before):
        raise Problem("it is not said what to remove", "name --campaign or --before, or say --all", "`--dry-run` shows what would go", code="usage")
    path = ledger_path(ledger, reach)
    store = _store(path)
    before_ms = round(before.replace(tzinfo=UTC).timestamp() * 1000) if before else None
    gone: set[str] = set()
    needed: set[str] = set()
    calls: list[str] = []
    with open_ledger(path) as reader:
        reader.check_named(campaign)
        for found in _bodies(reader, store):
            goes = (not campaign or found.campaign == campaign) and (before_ms is None or found.at_ms < before_ms)
            (gone if goes else needed).update(found.digests.values())
            if goes:
                calls.append(found.call)
    kept = dict(store.digests())
    going = [digest for digest in sorted(kept) if (everything or digest in gone) and digest not in needed]
    freed = sum(kept[digest] for digest in going)
    if not dry_run:
        for digest in going:
            store.remove(digest)
        for call in calls:
            store.forget_answer(call)
    said = "would be removed" if dry_run else "removed"
    screen.present({"bodies": len(going), "bytes": freed, "removed": not dry_run}, Line(f"{len(going)} bodies of {freed} bytes {said}."))


def _private(path: str, flags: int) -> int:
    """What agents and models said is for the eyes of who asked, as it is where it was kept."""
    return os.open(path, flags, 0o600)


MEND: Final = "`gateway capture show CALL --json` says which bodies of a call are kept"


def _store(ledger: Path) -> BodyStore:
    from gateway.capture.store import BodyStore, bodies_folder

    return BodyStore(bodies_folder(ledger))


def _bodies(reader: LedgerReader, store: BodyStore) -> Iterator[CallBodies]:
    from gateway.capture.selecting import bodies_of

    return bodies_of(reader.reservations(), store)


def _lines(reader: LedgerReader, store: BodyStore, campaign: str, runs: list[str], outcome: str) -> Iterator[dict[str, Any]]:
    """One run is held at a time."""
    from gateway.accounting.chain import decode
    from gateway.capture.selecting import bodies_of

    for run in runs:
        bodies = {found.call: found for found in bodies_of((decode(entry.body) for entry in reader.chain(f"run:{campaign}/{run}")), store)}
        for row in reader.calls(campaign=campaign, run=run):
            if row["status"] != "voided" and outcome in ("", row["outcome"]):
                yield _line(row, bodies[str(row["call_id"])], store)


def _only_call(reader: LedgerReader, store: BodyStore, call_id: str) -> CallBodies:
    from gateway.capture.selecting import bodies_of

    found = next(iter(bodies_of(reader.reservations(call_id), store)), None)
    if found is None:
        raise Problem(f"there is no call {call_id}", "the ledger has no reservation of it", "its id is the x-request-id of its answer", code="not_found")
    return found


def _line(row: dict[str, Any], bodies: CallBodies, store: BodyStore) -> dict[str, Any]:
    """What is unknown is absent."""
    names = ("call_id", "campaign", "run", "lane", "label", "model", "dialect", "stream", "outcome", "source", "input_tokens", "output_tokens")
    line = {name: row[name] for name in names if row[name] is not None}
    line["stream"] = bool(row["stream"])
    if (request := bodies.digests.get("received", "")) and store.has(request):
        line["request"] = _json(store.read(request))
    if (answer := bodies.digests.get("answer", "")) and store.has(answer):
        line["answer"] = store.read(answer).decode("utf-8", "backslashreplace") if row["stream"] else _json(store.read(answer))
    return line


def _json(raw: bytes) -> Any:
    """As JSON, or as the text that it is."""
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "backslashreplace")
