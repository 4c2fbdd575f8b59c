"""`gateway reconcile` on a real ledger that is being served: what it prints, what it exits with, what it writes."""

from __future__ import annotations

import html.parser
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.accounting.usage import Usage
from gateway.ledger.reading import LedgerReader
from tests.unit.cli.conftest import Gateway, House

FIRST, SECOND = "call-0193d2c4a7e10f3b9a5c6d7e8f01", "call-0193d2c4a7e1aa02c47bd2290e5d"

METRICS = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total {prompt}
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total {output}
"""


@pytest.fixture
def records(house: House, gateway: Gateway) -> Path:
    """Of a run with two calls, by a driver that keeps the gateway's ids."""
    gateway("campaign", "open", "c1", "--policy", "pilot")
    gateway("run", "open", "c1/r1")
    house.call("c1", "r1", FIRST, Usage(input_tokens=30, output_tokens=4, cached_tokens=10))
    house.call("c1", "r1", SECOND, Usage(input_tokens=50, output_tokens=6, cached_tokens=20))
    file = house.folder / "driver.jsonl"
    file.write_text(line(FIRST, 30, 4) + line(SECOND, 50, 6))
    return file


def line(call: str, prompt: int, output: int, **more: object) -> str:
    usage = {"input_tokens": prompt, "output_tokens": output}
    return json.dumps({"form": "gateway-dispatch-1", "driver": "d", "session": "s", "request_ids": [call], "model": "small", "usage": usage, **more}) + "\n"


def metrics(folder: Path, name: str, prompt: int, output: int) -> str:
    file = folder / name
    file.write_text(METRICS.format(prompt=prompt, output=output))
    return str(file)


def test_the_ledger_is_the_one_that_the_gateway_says_it_writes(gateway: Gateway, records: Path) -> None:
    done = gateway("reconcile", "r1", "--records", str(records))
    assert done.exit_code == 0, done.output
    assert [words.split()[:3] for words in done.stdout.splitlines() if words.startswith("equal") and "call-" in words] == [
        ["equal", "request_id", FIRST],
        ["equal", "request_id", SECOND],
    ]
    assert done.stdout.endswith("Nothing is unexplained.\n")


def test_what_differs_is_named_with_both_numbers_and_exits_one(gateway: Gateway, records: Path) -> None:
    records.write_text(line(FIRST, 30, 4) + line(SECOND, 50, 7))
    done = gateway("reconcile", "c1/r1", "--records", str(records))
    assert done.exit_code == 1
    assert "output_tokens: ledger 6, record 7" in done.stdout
    told = json.loads(gateway("reconcile", "c1/r1", "--records", str(records), "--json").stdout)
    assert (told["clean"], told["unexplained"]) == (False, 1)
    assert told["matches"][1]["differences"] == [{"field": "output_tokens", "ledger": 6, "record": 7}]
    assert told["matches"][0]["by"] == "request_id"


def test_the_document_is_the_same_byte_for_byte_when_made_again(gateway: Gateway, records: Path) -> None:
    first, second = (gateway("reconcile", "r1", str(records), "--json").stdout for _ in range(2))
    assert first == second and json.loads(first)["form"] == "gateway-reconciliation-1"


def test_a_campaign_is_reconciled_from_a_folder_and_as_of_an_entry(gateway: Gateway, house: House, records: Path) -> None:
    told = json.loads(gateway("reconcile", "--campaign", "c1", "--records", str(records.parent), "--json").stdout)
    assert told["runs"] == [{"run": "r1", "calls": 2, "refusals": 0, "matched": 2, "unexplained": 0}]
    assert told["sessions"] == [{"agent": "gateway-dispatch", "session": "s", "rows": 2, "runs": {"r1": 2}}]
    earlier = told["matches"][1]["ledger"][0]["number"] - 1
    then = json.loads(gateway("reconcile", "--campaign", "c1", str(records), "--as-of", str(earlier), "--json").stdout)
    assert {name: of["count"] for name, of in then["classes"].items()} == {"equal": 1, "later": 1}


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_needs_nothing_beside_it_and_runs_nothing(gateway: Gateway, house: House, records: Path) -> None:
    records.write_text(line(FIRST, 30, 4, session="<script>alert(1)</script>") + line(SECOND, 50, 7))
    assert gateway("reconcile", "r1", str(records), "--html", str(house.folder / "p.html")).exit_code == 1
    text = (house.folder / "p.html").read_text()
    page = Page(text)
    assert page.named("script") == [] and "<script>alert" not in text and "&lt;script&gt;" in text
    outside = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href", "srcset", "action", "data")]
    assert outside == [] and "url(" not in text and "@import" not in text
    assert page.named("meta")[2]["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "prefers-color-scheme: dark" in text
    assert page.named("html") == [{"lang": "en"}] and len(page.named("h1")) == 1
    assert all(cell.get("scope") == "col" for cell in page.named("th")) and len(page.named("caption")) == len(page.named("table"))
    (drawing,) = page.named("svg")
    assert drawing["role"] == "img" and drawing["aria-label"]
    assert [bar["class"] for bar in page.named("rect")] == ["equal", "unexplained"]


def test_markdown_shows_names_of_others_as_words(gateway: Gateway, records: Path) -> None:
    records.write_text(line(FIRST, 30, 4, session="[a](b)|`c`") + line(SECOND, 50, 6))
    done = gateway("reconcile", "r1", str(records), "--markdown")
    assert done.stdout.startswith("# Reconciliation of run c1/r1\n\n**Nothing is unexplained.**\n")
    assert "\\[a\\](b)\\|\\`c\\`" in done.stdout


def test_the_engines_own_counters_are_the_third_witness(gateway: Gateway, house: House, records: Path) -> None:
    before, right = metrics(house.folder, "before.txt", 1_000, 500), metrics(house.folder, "after.txt", 1_050, 510)
    told = gateway("reconcile", "r1", str(records), "--engine-metrics", before, right, "--json")
    assert told.exit_code == 0
    assert [(each["what"], each["counted"], each["ledger"], each["says"]) for each in json.loads(told.stdout)["witnesses"]] == [
        ("uncached_input", 50, 50, "agrees"),
        ("output", 10, 10, "agrees"),
    ]
    more = gateway("reconcile", "r1", str(records), "--engine-metrics", before, metrics(house.folder, "more.txt", 1_050, 525))
    assert more.exit_code == 1
    assert "15 more than the ledger's sum, and nothing in the ledger explains it" in more.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("process_start_time_seconds 5\n", "no engine that is known here: found process_start_time_seconds"),
        ("{{{", "no Prometheus text"),
        ("llamacpp:prompt_tokens_total 5\n", "was the engine started with its metrics on?"),
        (METRICS.format(prompt=1, output=1), "started anew between, or the files are swapped"),
    ],
)
def test_metrics_that_say_nothing_are_a_clear_error(text: str, words: str, gateway: Gateway, house: House, records: Path) -> None:
    odd = house.folder / "odd.txt"
    odd.write_text(text)
    done = gateway("reconcile", "r1", str(records), "--engine-metrics", metrics(house.folder, "before.txt", 10, 5), str(odd))
    assert done.exit_code == 2 and words in done.stderr


def test_a_note_puts_the_counts_on_record_and_changes_no_account(gateway: Gateway, house: House, records: Path) -> None:
    gateway("run", "close", "r1")
    receipt = gateway("receipt", "c1/r1", "--json").stdout
    told = json.loads(gateway("reconcile", "c1/r1", str(records), "--json", "--note").stdout)
    assert told["clean"]
    rows = json.loads(gateway("explain", FIRST, "--json").stdout)
    assert rows["status"] == "settled"
    with LedgerReader(house.ledger_path) as reader:
        bodies = [json.loads(str(row["body"])) for row in reader.query("SELECT body FROM entries WHERE kind = 'event'")]
    (noted,) = [body for body in bodies if body["name"] == "reconciled"]
    assert noted["run"] == "r1" and noted["details"]["classes"] == {"equal": 2} and noted["details"]["unexplained"] == 0
    assert gateway("receipt", "c1/r1", "--json").stdout == receipt
    assert gateway("ledger", "verify", "--ledger", str(house.ledger_path)).exit_code == 0


def test_slips_are_told_with_what_to_do(gateway: Gateway, house: House, records: Path) -> None:
    assert "name a RUN" in gateway("reconcile", "--records", str(records)).stderr
    assert "--records PATH" in gateway("reconcile", "r1").stderr
    assert gateway("reconcile", "nope", str(records)).exit_code == 5
    nothing = house.folder / "nothing.txt"
    nothing.write_text("nothing\n")
    wrong = gateway("reconcile", "r1", str(nothing))
    assert wrong.exit_code == 2 and "no dispatch record under" in wrong.stderr
    assert "no agent is called 'x'" in gateway("reconcile", "r1", str(records), "--agent", "x").stderr


def test_without_a_gateway_a_ledger_file_is_enough(alone: Gateway, house: House, records: Path) -> None:
    done = alone("reconcile", "c1/r1", str(records), "--ledger", str(house.ledger_path))
    assert done.exit_code == 0, done.output
    assert "no_ledger" in alone("reconcile", "c1/r1", str(records), "--ledger", "nowhere.ledger", "--json").stdout


def test_a_pack_holds_the_reconciliation_where_records_are_given_and_says_nothing_of_where_they_lay(gateway: Gateway, house: House, records: Path) -> None:
    gateway("campaign", "close", "c1")
    done = gateway("export", "c1", "--out", str(house.folder / "pack"), "--records", str(records), "--ledger", str(house.ledger_path))
    assert done.exit_code == 0, done.output
    told = json.loads((house.folder / "pack" / "reconciliation.json").read_text())
    assert told["clean"] and told["classes"] == {"equal": {"count": 2, "explained": True}}
    assert [each["records"][0]["source"] for each in told["matches"]] == ["driver.jsonl:1", "driver.jsonl:2"]
    assert str(house.folder) not in (house.folder / "pack" / "reconciliation.json").read_text()
    checked = subprocess.run([sys.executable, "-I", "-S", str(house.folder / "pack" / "check.py")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
