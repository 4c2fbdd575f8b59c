"""Reports over real ledgers that were made to known numbers: a pilot's table to the token, a tuning series, what is missing, what overlaps."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.accounting.commands import CloseCampaign, Declare, Expire, Fingerprint, Results
from gateway.cli.exits import Exit
from gateway.cli.root import root
from gateway.errors import NotFound
from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.reconciling import reconcile
from gateway.reports.campaign import campaign_report
from gateway.reports.comparison import AmbiguousPair, compare
from tests.support.made_campaign import Lane, MadeRun, made, recorded
from tests.support.paper_books import adjust, open_campaign, open_run, refuse, reserve, settle
from tests.support.story import STORY, write

PILOT = [
    MadeRun(
        run="r1",
        label="production",
        lanes={
            "foreground": Lane(calls=25, input_tokens=593_062, output_tokens=46_003),
            "background": Lane(calls=5, input_tokens=74_981, output_tokens=7_366),
        },
    )
]
PLAN = {"plan": [["r1", "", "production", 0], ["r2", "", "production", 0]]}


def report(ledger: Path, campaign: str = "c", **asked):
    with LedgerReader(ledger) as reader, reader.at_one_moment():
        return campaign_report(reader, campaign, **asked)


def typed(*words: object) -> str:
    answer = CliRunner().invoke(root, [str(word) for word in words])
    assert answer.exit_code == 0, answer
    return answer.stdout


def test_a_pilots_table_comes_out_to_the_token_and_its_records_agree(tmp_path: Path) -> None:
    made(tmp_path / "ledger", "pilot", PILOT, planned_runs=2, details=PLAN)
    document = report(tmp_path / "ledger", "pilot")
    sums = {row["value"]: row for row in document["groups"] if row["by"] == "lane"}
    assert {
        lane: (row["calls"], row["usage"]["input_tokens"]["sum"], row["usage"]["output_tokens"]["sum"])
        for lane, row in [*sums.items(), ("all", document["total"])]
    } == {"foreground": (25, 593_062, 46_003), "background": (5, 74_981, 7_366), "all": (30, 668_043, 53_369)}
    assert {lane: row["share"] for lane, row in sums.items()} == {
        "foreground": {"calls": 833, "input_tokens": 888, "output_tokens": 862},
        "background": {"calls": 167, "input_tokens": 112, "output_tokens": 138},
    }
    assert (document["runs"]["planned"], document["runs"]["missing"], document["runs"]["closed"]) == (2, ["r2"], 1)
    shown = typed("report", "pilot", "--ledger", tmp_path / "ledger")
    assert [line.split()[:6] for line in shown.splitlines() if line.startswith(("foreground", "background"))] == [
        ["background", "production", "5", "74981", "7366", "82347"],
        ["foreground", "production", "25", "593062", "46003", "639065"],
    ]
    assert "  721412  " in shown
    assert "| all | - | 30 | 668,043 | 53,369 | 721,412 | 0 |" in typed("report", "pilot", "--ledger", tmp_path / "ledger", "--markdown")
    with LedgerReader(tmp_path / "ledger") as reader:
        done = reconcile(reader, find_records([recorded(tmp_path / "record.jsonl", "pilot", PILOT)]), "pilot")
    assert (done.clean, len(done.matches)) == (True, 30)


def test_times_that_overlap_are_added_up_apart_from_time_on_the_clock(tmp_path: Path) -> None:
    lanes = {"foreground": Lane(calls=3, input_tokens=30, output_tokens=3)}
    hour = 3_600_000
    runs = [
        MadeRun(run="a", lanes=lanes, begun_ms=2 * hour, gap_ms=1_000, lasts_ms=3_000, waited_ms=100),
        MadeRun(run="b", lanes=lanes, begun_ms=2 * hour + 500, gap_ms=1_000, lasts_ms=1_000),
        MadeRun(run="late", lanes={"foreground": Lane(calls=1, input_tokens=1, output_tokens=1)}, begun_ms=6 * hour, lasts_ms=1_000),
    ]
    made(tmp_path / "ledger", "c", runs)
    times = report(tmp_path / "ledger")["times"]
    assert times["computing"] == {"calls": 7, "sum_ms": 3 * 3_000 + 3 * 1_000 + 1_000, "union_ms": 5_000 + 1_000}
    assert times["waiting"] == {"calls": 3, "sum_ms": 300, "union_ms": 300}
    assert times["window"]["ms"] == 4 * hour + 1_000 + 100
    assert times["idle"]["ms"] == times["window"]["ms"] - 6_000
    assert times["idle"]["hours"] == [3 * hour, 4 * hour, 5 * hour]
    assert times["occupancy"] == [
        {"upstream": "u", "busy_sum_ms": 13_000, "busy_union_ms": 6_000, "slots": 2, "per_mille": round(13_000_000 / (2 * times["window"]["ms"]))}
    ]
    assert times["wall_ms"] == 6 * hour + 1_000 - 1_000


def test_a_wait_that_ended_in_a_refusal_is_told_apart(tmp_path: Path) -> None:
    refused = [replace(refuse(call), at_ms=5_000 + place * 1_000, waited_ms=2_000) for place, call in enumerate(("x", "y"))]
    write(tmp_path / "ledger", [open_campaign("c"), open_run("r", "c"), *refused])
    times = report(tmp_path / "ledger")["times"]
    assert (times["waiting_refused"], times["waiting"]["calls"]) == ({"calls": 2, "sum_ms": 4_000, "union_ms": 3_000}, 0)
    shown = typed("report", "c", "--ledger", tmp_path / "ledger").splitlines()
    assert next(line.split() for line in shown if line.startswith("waiting, then"))[3:] == ["2", "4.0", "s", "3.0", "s"]


def test_a_call_that_went_on_after_the_closing_lies_within_the_campaigns_time(tmp_path: Path) -> None:
    late = replace(settle("a", 3), at_ms=9_000)
    write(tmp_path / "ledger", [open_campaign("c"), open_run("r", "c"), reserve("a", 10, campaign="c"), CloseCampaign(campaign="c", at_ms=5), late])
    times = report(tmp_path / "ledger")["times"]
    assert (times["window"]["to_ms"], times["wall_ms"] >= times["window"]["ms"]) == (9_000, True)


def test_occupancy_is_of_the_slots_that_the_gateway_gave_an_engine(tmp_path: Path) -> None:
    seen = Fingerprint(campaign="c", upstream="u", at_ms=1, details={"slots": 8, "gateway_slots": 4})
    write(tmp_path / "ledger", [open_campaign("c"), seen, open_run("r", "c"), reserve("a", 10, campaign="c"), settle("a", 3)])
    assert report(tmp_path / "ledger")["times"]["occupancy"][0]["slots"] == 4


def test_where_nothing_ran_there_is_no_rate_and_nothing_is_a_zero(tmp_path: Path) -> None:
    made(tmp_path / "ledger", "c", [], planned_runs=4)
    document = report(tmp_path / "ledger")
    assert document["runs"] == {"opened": 0, "open": 0, "closing": 0, "closed": 0, "planned": 4, "missing_count": 4}
    assert (document["groups"], document["rates"], "window" in document["times"], "total" in document) == ([], {}, False, False)
    assert "there is no window, no occupancy and no rate" in typed("report", "c", "--ledger", tmp_path / "ledger")
    with pytest.raises(NotFound, match="no campaign d"):
        report(tmp_path / "ledger", "d")


def test_labels_are_never_added_up_unawares(tmp_path: Path) -> None:
    lanes = {"foreground": Lane(calls=1, input_tokens=10, output_tokens=1)}
    made(tmp_path / "ledger", "c", [MadeRun(run="a", label="engineering", lanes=lanes), MadeRun(run="b", label="production", lanes=lanes)])
    document = report(tmp_path / "ledger")
    assert "total" not in document
    assert [(row["value"], row["label"], row["calls"]) for row in document["groups"] if row["by"] == "lane"] == [
        ("foreground", "engineering", 1),
        ("foreground", "production", 1),
    ]
    assert report(tmp_path / "ledger", across_labels=True)["total"]["calls"] == 2


def test_what_is_unpriced_stays_unpriced(tmp_path: Path) -> None:
    policy = json.dumps({"models": {"m": {"price_currency": "EUR", "price_input": "0.25", "price_output": "1.5"}, "n": {}}})
    lanes = {"foreground": Lane(calls=2, input_tokens=1_000_001, output_tokens=200_000)}
    made(tmp_path / "priced", "c", [MadeRun(run="a", lanes=lanes)], policy=policy)
    found = {(row["by"], row["value"]): row.get("price") for row in report(tmp_path / "priced")["groups"]}
    assert found["model", "m"] == found["label", ""] == {"currency": "EUR", "amount": "0.550000"}
    assert found["lane", "foreground"] is None
    made(tmp_path / "unpriced", "c", [MadeRun(run="a", lanes=lanes)], policy=json.dumps({"models": {"m": {}}}))
    assert not any("price" in row for row in report(tmp_path / "unpriced")["groups"])
    open_run = MadeRun(run="a", lanes=lanes)
    made(tmp_path / "open", "c", [open_run], policy=policy, close=False)
    assert typed("report", "c", "--ledger", tmp_path / "unpriced").count("unpriced") == 2


def test_prompts_that_grow_are_told_by_role(tmp_path: Path) -> None:
    made(tmp_path / "ledger", "c", [MadeRun(run="a", lanes={"foreground": Lane(calls=4, input_tokens=40, output_tokens=4)})])
    rows = {row["role"]: (row["first_bytes"], row["last_bytes"]) for row in report(tmp_path / "ledger")["contexts"]}
    assert rows == {"system": (100, 100), "user": (100, 400)}


def test_what_is_not_known_is_never_shown_as_0_and_never_part_of_a_rate(tmp_path: Path) -> None:
    lost = [
        open_campaign("c"),
        open_run("r", "c"),
        reserve("a", 80, 40, campaign="c"),
        Expire(call_id="a", at_ms=6, reason="process ended"),
        reserve("b", 80, 40, campaign="c"),
    ]
    write(tmp_path / "ledger", lost)
    document = report(tmp_path / "ledger")
    label = next(row for row in document["groups"] if row["by"] == "label")
    assert (label["calls"], label["open"], label["share"]) == (2, 1, {"calls": 1000})
    shown = typed("report", "c", "--ledger", tmp_path / "ledger")
    row = next(line.split() for line in shown.splitlines() if line.startswith("foreground"))
    assert row[2:10] == ["2", "unknown", "unknown", "unknown", "1", "1", "40", "80"]
    assert "Of 2 calls no end is known: there is no window" in shown
    assert "unknown      1  50.0 %" in shown
    made(tmp_path / "ledger", "whole", [MadeRun(run="a", lanes={"foreground": Lane(calls=2, input_tokens=10, output_tokens=2)})])
    medians = [each["medians"] for each in compared(tmp_path / "ledger", "c", "whole", pair_by=["run"])["campaigns"]]
    assert ("input_tokens" in medians[0], medians[0]["calls"], medians[0]["with_unknown_usage"]) == (False, 2, 1)
    assert medians[1]["input_tokens"] == 10


def test_a_rate_of_what_is_not_wholly_known_is_not_given(tmp_path: Path) -> None:
    write(tmp_path / "ledger", STORY)
    rates = report(tmp_path / "ledger")["rates"]
    assert {label: sorted(of["window"]) for label, of in rates.items()} == {
        "engineering": ["calls", "input_tokens"],
        "production": ["calls", "input_tokens", "output_tokens"],
    }


def test_both_values_of_what_was_corrected_are_told_step_by_step_of_calls_and_of_results(tmp_path: Path) -> None:
    again = Declare(campaign="c", run="r", at_ms=11, results=Results(turn_end="failed", exit=1), reason="the judge had the wrong file")
    story = [*STORY[:20], adjust("a", 35), again, *STORY[20:]]
    assert sum(isinstance(command, Declare) for command in story) == 2
    write(tmp_path / "ledger", story)
    document = report(tmp_path / "ledger")
    steps = [(row["call"], row["was"]["usage"].get("output_tokens"), row["is"]["usage"]["output_tokens"]) for row in document["corrections"] if "call" in row]
    assert steps == [("a", 30, 33), ("a", 33, 35), ("e", None, 3)]
    assert [row["evidence"] for row in document["corrections"] if row.get("call") == "a"] == ["engine's log"] * 2
    results = document["corrections"][-1]
    assert (results["was"]["results"], results["is"]["results"]) == ({"turn_end": "completed", "exit": 0}, {"turn_end": "failed", "exit": 1})
    assert results["reason"] == "the judge had the wrong file"
    assert document["attempts"][0]["results"] == results["is"]["results"]
    shown = typed("report", "c", "--ledger", tmp_path / "ledger")
    assert "turn_end completed, exit 0  " in shown or "exit 0, turn_end completed  " in shown
    assert "the judge had the wrong file" in shown
    assert "refused (engineering): run_budget_reached 1" in shown


def test_a_correction_that_comes_later_is_no_time_at_which_a_call_computed(tmp_path: Path) -> None:
    write(
        tmp_path / "ledger", [open_campaign("c"), open_run("r", "c"), reserve("a", 10, campaign="c"), settle("a", 3), replace(adjust("a", 5), at_ms=90_000_000)]
    )
    document = report(tmp_path / "ledger")
    assert document["times"]["computing"]["sum_ms"] < 10


def test_what_drivers_declared_is_told_by_label_and_run_by_run(tmp_path: Path) -> None:
    pins = {"task.json": "sha256:" + "ab" * 32}
    runs = [
        MadeRun(run="a", label="x", task="t1", repeat=1, pins=pins, results=Results(outcomes=(("delivered", "false"), ("functional", "true")))),
        MadeRun(run="b", label="x", task="t2", repeat=1, results=Results(outcomes=(("functional", "false"),))),
        MadeRun(run="c", label="y", results=Results(outcomes=(("functional", "true"),))),
        MadeRun(run="d", label="y"),
    ]
    made(tmp_path / "ledger", "c", runs)
    document = report(tmp_path / "ledger")
    assert [(row["label"], row["outcome"], row["reached"], row["of"], row["unknown"]) for row in document["declared"]] == [
        ("x", "delivered", 0, 2, 1),
        ("x", "functional", 1, 2, 0),
        ("y", "functional", 1, 2, 1),
    ]
    assert document["attempts"][0] == {
        "run": "a",
        "label": "x",
        "task": "t1",
        "repeat": 1,
        "state": "closed",
        "pins": pins,
        "results": {"outcomes": {"delivered": "false", "functional": "true"}},
    }
    assert "results" not in document["attempts"][3]


@pytest.mark.parametrize(
    "words", [("report", "c"), ("compare", "c", "d"), ("usage", "--by", "run"), ("export", "c", "--out", "{}/pack")], ids=lambda words: words[0]
)
def test_as_of_an_entry_that_is_not_there_yet_nothing_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    for campaign in ("c", "d"):
        made(tmp_path / "ledger", campaign, [MadeRun(run="a")])
    with LedgerReader(tmp_path / "ledger") as reader:
        last = reader.last_number("d")
    asked = [word.format(tmp_path) for word in words]
    answers = {number: CliRunner().invoke(root, [*asked, "--as-of", str(number), "--ledger", str(tmp_path / "ledger")]) for number in (last + 1, last)}
    assert {number: answer.exit_code for number, answer in answers.items()} == {last: Exit.OK, last + 1: Exit.REFUSED}
    assert f"there is no entry {last + 1} yet: the last is {last}" in answers[last + 1].stderr


# -- side by side


def series(ledger: Path, campaign: str, reached: int, *, tasks: int = 24, dropped: tuple[int, ...] = (), policy_hash: str = "ab" * 32) -> None:
    runs = [
        MadeRun(
            run=f"{campaign}-{task}",
            task=f"task-{task:02}",
            repeat=1,
            lanes={"foreground": Lane(calls=2, input_tokens=100 + task, output_tokens=10)},
            results=Results(exit=0, outcomes=(("functional", "true" if task < reached else "false"),)),
        )
        for task in range(tasks)
        if task not in dropped
    ]
    made(ledger, campaign, runs, policy_hash=policy_hash)


def compared(ledger: Path, *campaigns: str, **asked):
    with LedgerReader(ledger) as reader, reader.at_one_moment():
        return compare(reader, campaigns, **asked)


def test_a_tuning_series_comes_out_as_it_was(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    for campaign, reached in (("cap-8k", 5), ("cap-16k", 14), ("cap-32k", 20), ("cap-32k-thinking", 23)):
        series(ledger, campaign, reached, policy_hash=f"{reached:02}" * 32)
    document = compared(ledger, "cap-8k", "cap-16k", "cap-32k", "cap-32k-thinking", outcomes=["functional"])
    assert [(each["campaign"], each["outcomes"]["functional"]) for each in document["campaigns"]] == [
        ("cap-8k", {"reached": 5, "of": 24, "unknown": 0}),
        ("cap-16k", {"reached": 14, "of": 24, "unknown": 0}),
        ("cap-32k", {"reached": 20, "of": 24, "unknown": 0}),
        ("cap-32k-thinking", {"reached": 23, "of": 24, "unknown": 0}),
    ]
    assert document["pairs"][0]["functional"] == {"both": 5, "only_first": 0, "only_second": 9, "neither": 10, "unknown": 0, "missing": 0}
    assert document["different"] == ["policy"]
    shown = typed("compare", "cap-8k", "cap-16k", "cap-32k", "cap-32k-thinking", "--outcome", "functional", "--ledger", ledger)
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("cap-")][:4] == ["5/24", "14/24", "20/24", "23/24"]
    assert next(line.split() for line in shown.splitlines() if line.startswith("policy ")) == ["policy", *(f"{reached:02}" * 32 for reached in (5, 14, 20, 23))]
    assert "24 pairs tell a small difference from chance only where they are many" in shown


def test_a_run_that_one_side_lacks_is_missing_and_no_failure(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    series(ledger, "a", 10)
    series(ledger, "b", 10, dropped=(0, 23))
    document = compared(ledger, "a", "b")
    assert document["pairs"][0]["functional"] == {"both": 9, "only_first": 0, "only_second": 0, "neither": 13, "unknown": 0, "missing": 2}
    assert document["campaigns"][1]["outcomes"]["functional"] == {"reached": 9, "of": 22, "unknown": 0}
    assert [side.get("missing", False) for side in document["rows"][0]["sides"]] == [False, True]


def test_what_differs_is_told_with_what_each_campaign_has_of_it(tmp_path: Path) -> None:
    pins = {"task": "sha256:" + "11" * 32, "image": "sha256:" + "22" * 32}
    for campaign, image, label in (("a", "33", "x"), ("b", "44", "")):
        runs = [MadeRun(run=campaign, task="t", label=label, pins={**pins, "image": "sha256:" + image * 32})]
        made(tmp_path / "ledger", campaign, runs)
    shown = typed("compare", "a", "b", "--ledger", tmp_path / "ledger").splitlines()
    told = next(line.split() for line in shown if line.startswith("pins"))
    assert told == ["pins", "image=sha256:" + "33" * 32, "image=sha256:" + "44" * 32]
    assert next(line.split() for line in shown if line.startswith("labels")) == ["labels", "x", "(none)"]
    assert "Different: nothing that the ledger sees." in typed("compare", "a", "same", "--ledger", _with_the_same(tmp_path / "ledger", pins))


def _with_the_same(ledger: Path, pins: dict[str, str]) -> Path:
    made(ledger, "same", [MadeRun(run="a", task="t", label="x", pins={**pins, "image": "sha256:" + "33" * 32})])
    return ledger


def test_what_was_not_declared_is_not_known_and_medians_include_failed_runs(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    lanes = {"foreground": Lane(calls=2, input_tokens=100, output_tokens=10)}
    few = {"foreground": Lane(calls=1, input_tokens=20, output_tokens=1)}
    made(ledger, "a", [MadeRun(run=f"a{n}", task=str(n), lanes=lanes, results=Results(judge="pass")) for n in range(3)])
    made(ledger, "b", [MadeRun(run=f"b{n}", task=str(n), lanes=few if n else lanes, results=Results(judge="fail") if n else None) for n in range(3)])
    document = compared(ledger, "a", "b", outcomes=["judge"])
    assert document["pairs"][0]["judge"] == {"both": 0, "only_first": 2, "only_second": 0, "neither": 0, "unknown": 1, "missing": 0}
    medians = document["campaigns"][1]["medians"]
    assert (medians["runs"], medians["calls"], medians["input_tokens"]) == (3, 1, 20)


def test_two_attempts_with_one_key_are_no_pair(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    made(ledger, "a", [MadeRun(run="a1", task="t"), MadeRun(run="a2", task="t")])
    made(ledger, "b", [MadeRun(run="b1", task="t")])
    with pytest.raises(AmbiguousPair, match="runs a1 and a2 are both task t"):
        compared(ledger, "a", "b")
    failed = subprocess.run(
        [sys.executable, "-m", "gateway", "compare", "a", "b", "--ledger", str(ledger), "--json"], capture_output=True, text=True, timeout=60
    )
    assert (failed.returncode, json.loads(failed.stdout)["error"]["code"]) == (2, "ambiguous")
    wrong = subprocess.run(
        [sys.executable, "-m", "gateway", "compare", "a", "b", "--pair-by", "tusk", "--ledger", str(ledger)], capture_output=True, text=True, timeout=60
    )
    assert (wrong.returncode, "there is no ['tusk']" in wrong.stderr) == (2, True)
