"""`gateway reconcile`: the ledger against what the agents recorded, row by row, with a named reason for each that is not equal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.exits import Exit
from gateway.cli.naming import RunName, only, split
from gateway.cli.problems import Problem
from gateway.cli.progress import Progress
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import ledger_path, open_ledger, with_ledger
from gateway.cli.screen import Screen, with_screen

if TYPE_CHECKING:
    from gateway.ledger.reading import LedgerReader
    from gateway.reconcile.reconciling import Reconciliation
    from gateway.reconcile.witnesses import Counters


@click.command()
@click.argument("names", nargs=-1, metavar="[RUN] [PATH]...")
@click.option("--campaign", default="", metavar="CAMPAIGN", help="All runs of this campaign; which record is of which run is found by matching.")
@click.option(
    "--records", multiple=True, type=click.Path(path_type=Path), metavar="PATH", help="A record or a folder of records; more may follow, or it may be repeated."
)
@click.option("--agent", default="auto", show_default=True, metavar="AGENT", help="Read the records as this agent's; `auto` looks whose they are.")
@click.option("--as-of", type=click.IntRange(min=1), default=None, metavar="NUMBER", help="The ledger as it stood with this entry.")
@click.option(
    "--window", type=click.FloatRange(min=0), default=60.0, show_default=True, metavar="SECONDS", help="How far a row's time may lie outside its call's."
)
@click.option(
    "--engine-metrics",
    "metrics",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="BEFORE AFTER",
    help="The engine's own metrics, as two files of Prometheus text, as the third witness.",
)
@click.option("--markdown", is_flag=True, help="Markdown on stdout.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write one page that needs nothing beside it.")
@click.option("--all", "everything", is_flag=True, help="List every row, however many there are.")
@click.option("--note", is_flag=True, help="Put the counts on record in the ledger, as an event of the run or campaign.")
@with_ledger
@with_gateway
@with_screen
@click.pass_context
def reconcile(context: click.Context, /, names: tuple[str, ...], campaign: str, reach: Reach, screen: Screen, ledger: Path | None, **asked: Any) -> None:
    """Hold the ledger's calls against the agents' own records. Exits 1 where anything is unexplained."""
    run, paths = ("", names) if campaign else (names[:1], names[1:])
    records = [*asked["records"], *(Path(each) for each in paths)]
    if not campaign and not run:
        raise click.UsageError("name a RUN, or a --campaign")
    if not records:
        raise click.UsageError("name the agents' records: --records PATH")
    progress = Progress()
    with open_ledger(ledger_path(ledger, reach)) as reader, progress:
        reader.check_as_of(asked["as_of"] or 0)
        name = RunName(campaign, "") if campaign else _run(reader, run[0])
        done = _reconciled(reader, name, records, asked, progress)
    _present(done, screen, asked)
    if asked["note"]:
        _note(done, reach)
    if not done.clean:
        context.exit(Exit.NOT_SO)


def _run(reader: LedgerReader, name: str) -> RunName:
    return split(name) or only([RunName(str(row["campaign"]), name) for row in reader.runs() if row["run"] == name], name)


def _reconciled(reader: LedgerReader, name: RunName, records: list[Path], asked: dict[str, Any], progress: Progress) -> Reconciliation:
    from gateway.reconcile.finding import find_records
    from gateway.reconcile.reconciling import reconcile as run_it

    found = find_records(records, agent=asked["agent"])
    metrics = (_counters(asked["metrics"][0]), _counters(asked["metrics"][1])) if asked["metrics"] else None
    return run_it(
        reader,
        found,
        name.campaign,
        name.run,
        as_of=asked["as_of"] or 0,
        window_ms=round(asked["window"] * 1000),
        metrics=metrics,
        progress=progress.show,
    )


def _counters(path: Path) -> Counters:
    from gateway.reconcile.witnesses import BYTES_MAX, counters_in

    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        if len(text) > BYTES_MAX:
            raise ValueError(f"more than {BYTES_MAX} bytes")
        return counters_in(text.decode(), str(path))
    except (OSError, ValueError) as error:
        mend = "give what the engine's /metrics answered, once before the run and once after it"
        raise Problem(f"{path} can't be read as an engine's metrics", str(error), mend, code="bad_metrics") from error


def _present(done: Reconciliation, screen: Screen, asked: dict[str, Any]) -> None:
    from gateway.cli.reconcile_views import reconcile_views
    from gateway.reconcile.markdown import markdown
    from gateway.reconcile.page import page
    from gateway.reconcile.reconciling import document

    if asked["html"] is not None:
        try:
            asked["html"].write_text(page(done), encoding="utf-8")
        except OSError as error:
            raise Problem(f"{asked['html']} can't be written", error.strerror or str(error), "name another --html FILE", code="bad_path") from error
    if asked["markdown"] and not screen.as_json:
        click.echo(markdown(done), nl=False)
        return
    screen.present(
        document(done) if screen.as_json else None, *([] if screen.as_json else reconcile_views(done, everything=asked["everything"], terminal=screen.terminal))
    )


def _note(done: Reconciliation, reach: Reach) -> None:
    from gateway.reconcile.reconciling import document

    told = document(done)
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    counts = {name.value: sum(each.name is name for each in done.matches) for name in {each.name for each in done.matches}}
    reach.control().note_reconciled(
        done.side.campaign,
        done.side.run,
        {"as_of": done.side.as_of or done.side.last_number, "classes": counts, "unexplained": len(done.findings), "sha256": digest},
    )
