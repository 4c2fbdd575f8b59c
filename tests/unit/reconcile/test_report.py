"""The forms of the report: what a terminal shows, and calls in time."""

from __future__ import annotations

import re
from dataclasses import replace

from gateway.accounting.usage import Usage
from gateway.cli.reconcile_views import reconcile_views
from gateway.cli.screen import Line, Table
from gateway.reconcile.finding import Rows
from gateway.reconcile.known_ids import KnownIds
from gateway.reconcile.matching import match
from gateway.reconcile.page import page
from gateway.reconcile.reconciling import Reconciliation
from gateway.reconcile.timeline import CALLS_MAX, ROWS_MAX, timeline
from tests.unit.reconcile.test_leftovers import call, matched, row
from tests.unit.reconcile.worlds import make


def campaign(seed: int = 3) -> Reconciliation:
    world = make(seed)
    odd = replace(world.records[0], usage=Usage(input_tokens=1, output_tokens=2), response_id=world.side.calls[0].response_id)
    rows = [odd, *world.records[1:]]
    matches = match(world.side, rows, lambda _wanted: KnownIds())
    return Reconciliation(side=world.side, rows=Rows(records=tuple(rows), skipped=(), copies=0), agents=("agent",), files=4, matches=tuple(matches))


def test_a_terminal_shows_class_call_and_one_column_of_words_a_pipe_every_number_by_itself() -> None:
    done = campaign()
    narrow = [view for view in reconcile_views(done, everything=True, terminal=True) if isinstance(view, Table)][-1]
    wide = [view for view in reconcile_views(done, everything=True, terminal=False) if isinstance(view, Table)][-1]
    assert [column.key for column in narrow.columns] == ["name", "run", "call", "told"]
    assert {"by", "ledger_input", "record_output", "what"} <= {column.key for column in wide.columns}
    assert all(row["told"] for row in narrow.rows) and len(narrow.rows) == len(done.matches)


def test_only_what_is_unexplained_is_listed_where_there_is_much() -> None:
    done = campaign()
    many = replace(done, matches=tuple(each for each in done.matches for _ in range(20)))
    views = reconcile_views(many, everything=False, terminal=False)
    listed = [view for view in views if isinstance(view, Table)][-1]
    assert len(many.matches) > 100 and {row["explained"] for row in listed.rows} == {False}
    assert any(isinstance(view, Line) and f"{len(many.matches) - len(listed.rows)} rows are not listed" in view.text for view in views)


def test_each_call_is_a_bar_beside_those_that_ran_with_it() -> None:
    calls = [call(number, admitted_ms=1_000 * number, ended_ms=1_000 * number + 2_500, waited_ms=300) for number in range(1, 7)]
    drawn = timeline("c/r", matched(calls, [row(each) for each in calls[:-1]]))
    bars = re.findall(r'<rect class="(\w+)" x="([\d.]+)" y="(\d+)" width="([\d.]+)"', drawn)
    assert [kind for kind, *_ in bars] == ["equal"] * 5 + ["unexplained"]
    assert len({y for *_, y, _ in bars}) == 3  # three at once
    assert all(float(x) >= 0 and float(x) + float(width) <= 1_000 for _, x, _, width in bars)
    assert drawn.count('class="wait"') == 6 and drawn.count('class="mark"') == 1 and "6 calls of run c/r" in drawn


def test_a_crowd_is_drawn_no_higher_than_the_page_and_no_longer_than_its_limit() -> None:
    calls = [call(number, admitted_ms=1_000_000 + number, ended_ms=9_000_000) for number in range(1, CALLS_MAX + 50)]
    drawn = timeline("c/r", matched(calls, []))
    assert drawn.count("<rect") == CALLS_MAX
    assert len(set(re.findall(r'<rect [^>]* y="(\d+)"', drawn))) == ROWS_MAX


def test_a_campaigns_page_draws_each_run_and_lists_runs_and_sessions() -> None:
    done = campaign()
    made = page(done)
    assert made.count("<svg") == 2 and "<h2>Runs</h2>" in made and "<h2>Sessions</h2>" in made
    assert made.count("<tr") == sum(made.count(f"<h2>{name}</h2>") for name in ("Classes", "Unexplained", "Runs", "Sessions", "All rows")) + (
        len({each.name for each in done.matches})
        + len(done.findings)
        + len(done.side.runs)
        + len({each.session for each in done.rows.records})
        + len(done.matches)
    )
