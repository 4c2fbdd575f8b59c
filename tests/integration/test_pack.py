"""A campaign's pack: made from a real ledger, checked by the check that lies in it, on a bare Python, and told apart from every way of changing it."""

import ast
import csv
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.accounting.chain import canonical, link
from gateway.accounting.commands import Command, Declare, OpenCampaign, Results
from gateway.cli.root import root
from gateway.errors import NotFound
from gateway.ledger.reading import LedgerReader
from gateway.pack.folder import SUMS, PackExists
from gateway.pack.packing import write_pack
from tests.support.made_campaign import Lane, MadeRun, made
from tests.support.paper_books import open_campaign, open_run, reserve, settle
from tests.support.story import STORY, write

POLICY = '{"schema":1}'
OPENING = open_campaign(planned_runs=3, policy=POLICY, policy_hash=hashlib.sha256(POLICY.encode()).hexdigest())
IN_CONFLICT = Declare(campaign="c", run="r", at_ms=7, results=Results(turn_end="completed", exit=1))
CAMPAIGN: list[Command] = [OPENING if isinstance(command, OpenCampaign) else IN_CONFLICT if isinstance(command, Declare) else command for command in STORY]
OTHERS = [
    open_campaign("other", policy=POLICY, policy_hash=hashlib.sha256(POLICY.encode()).hexdigest()),
    open_run("r", "other"),
    reserve("z", 5, campaign="other"),
    settle("z", 5),
]
ALLOWED = {"csv", "hashlib", "importlib", "io", "json", "sys", "collections", "pathlib", "typing", "__future__"}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pack") / "ledger.db"
    write(path, [*CAMPAIGN, *OTHERS])
    return path


def pack(ledger: Path, out: Path, campaign: str = "c", as_of: int = 0) -> Path:
    with LedgerReader(ledger) as reader, reader.at_one_moment():
        write_pack(reader, campaign, out, as_of=as_of)
    return out


@pytest.fixture
def packed(ledger: Path, tmp_path: Path) -> Path:
    return pack(ledger, tmp_path / "pack")


def checked(folder: Path, *arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [python, "-I", "-S", str(folder / "check.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={}, cwd="/")


def pythons() -> list[str]:
    """This one, and the oldest that the check promises, where there is one."""
    found = shutil.which("python3.10")
    works = found and subprocess.run([found, "-c", "pass"], capture_output=True, check=False).returncode == 0
    return [sys.executable, *([found] if found and works else [])]


@pytest.mark.parametrize("python", pythons())
def test_a_pack_fits_by_its_own_check_on_a_bare_python(packed: Path, python: str):
    answer = checked(packed, python=python)
    assert (answer.returncode, answer.stdout) == (0, "fits: 5 calls of 2 runs, made again from their chains\n"), answer
    assert not list(packed.rglob("__pycache__"))


def test_the_check_needs_an_old_python_and_no_network():
    for name in ("check.py", "check_rows.py"):
        tree = ast.parse(Path("gateway/pack", name).read_text(), feature_version=(3, 10))
        imported = {alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported <= ALLOWED, imported


def test_packing_twice_gives_the_same_bytes_whatever_else_the_ledger_holds(ledger: Path, packed: Path, tmp_path: Path):
    alone = tmp_path / "alone.db"
    write(alone, CAMPAIGN)
    for again in (pack(ledger, tmp_path / "again"), pack(alone, tmp_path / "other")):
        assert contents(again) == contents(packed)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_rows_say_what_stands_in_the_ledger(ledger: Path, packed: Path):
    rows = {row["call"]: row for row in map(json.loads, (packed / "calls.jsonl").read_text().splitlines())}
    with LedgerReader(ledger) as reader:
        stand = reader.calls(campaign="c")
        assert [json.loads(line)["call"] for line in (packed / "calls.jsonl").read_text().splitlines() if json.loads(line)["run"] == "r"] == [
            str(row["call_id"]) for row in stand if row["run"] == "r"
        ]
        for row in stand:
            made = rows[str(row["call_id"])]
            assert (made["status"], made.get("outcome"), made.get("source")) == (row["status"], row["outcome"], row["source"])
            assert made.get("usage", {}).get("input_tokens") == row["input_tokens"]
        totals = reader.usage("label", campaign="c")["groups"]
        receipts = reader.receipts(campaign="c")
    sums = {row["value"]: row for row in json.loads((packed / "aggregates.json").read_text()) if row["by"] == "label"}
    for group in totals:
        assert sums[group["label"]]["usage"] == group["usage"]
        assert sums[group["label"]]["calls"] == group["calls"]
    assert json.loads((packed / "receipts.json").read_text()) == sorted(receipts, key=lambda receipt: (receipt.get("run", ""), receipt["receipt"]))
    before = {"input_tokens": 20, "output_tokens": 30}
    assert rows["a"]["was"] == [{"number": 8, "source": "reported", "usage": before, "charge": {**before, "requests": 1}}]
    assert (rows["a"]["usage"]["output_tokens"], rows["a"]["reason"]) == (33, "late_usage")


def test_what_is_unknown_is_absent_or_empty_and_never_a_zero(packed: Path):
    call = next(row for row in map(json.loads, (packed / "calls.jsonl").read_text().splitlines()) if row["call"] == "b")
    assert "output_tokens" not in call["usage"]
    line = next(row for row in csv.DictReader((packed / "calls.csv").open()) if row["call"] == "b")
    assert (line["usage.output_tokens"], line["usage.input_tokens"]) == ("", "25")
    assert "1 runs" not in (packed / "README.md").read_text()
    assert "3 runs were planned; 1 did not happen" in (packed / "README.md").read_text()


def test_a_pack_as_of_an_entry_is_what_stood_then(ledger: Path, tmp_path: Path):
    with LedgerReader(ledger) as reader:
        number = next(row["number"] for row in reader.query("SELECT number FROM entries WHERE call_id = 'a' AND kind = 'settle'"))
    folder = pack(ledger, tmp_path / "then", as_of=number)
    answer = checked(folder)
    assert answer.stdout == "fits: 2 calls of 2 runs, made again from their chains\n"
    rows = {row["call"]: row for row in map(json.loads, (folder / "calls.jsonl").read_text().splitlines())}
    assert (rows["a"]["usage"]["output_tokens"], rows["b"]["status"]) == (30, "reserved")
    assert [row["state"] for row in json.loads((folder / "runs.json").read_text())] == ["open", "open"]
    assert "`run:c/r`" in (folder / "README.md").read_text()


def test_a_folder_that_holds_something_is_left_alone(ledger: Path, tmp_path: Path):
    tmp_path.joinpath("mine").mkdir()
    tmp_path.joinpath("mine", "letter").write_text("dear")
    with pytest.raises(PackExists, match="not empty"):
        pack(ledger, tmp_path / "mine")
    assert contents(tmp_path / "mine") == {"letter": b"dear"}
    with pytest.raises(NotFound, match="no campaign d"):
        pack(ledger, tmp_path / "none", "d")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_a_folder_in_which_somebody_stands_is_filled_and_stays(ledger: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tmp_path.joinpath("here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    answer = CliRunner().invoke(root, ["export", "c", "--out", ".", "--ledger", str(ledger)])
    assert answer.exit_code == 0, answer
    assert contents(Path()) == contents(packed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "pack"]


def test_a_plan_stands_by_name_and_what_was_declared_is_in_the_table(tmp_path: Path):
    plan = {"plan": [["r1", "t|1", "a|b", 1], ["r2", "t2", "", 1]]}
    results = Results(outcomes=(("functional", "true"), ("judge.second", "=1+1")))
    lanes = {"foreground": Lane(calls=2, input_tokens=10, output_tokens=2)}
    runs = [MadeRun(run="r1", label="a|b", lanes=lanes, results=results), MadeRun(run="another", lanes=lanes)]
    made(tmp_path / "ledger", "c", runs, planned_runs=2, details=plan, policy=POLICY, policy_hash=OPENING.policy_hash)
    folder = pack(tmp_path / "ledger", tmp_path / "pack")
    assert checked(folder).stdout == "fits: 4 calls of 2 runs, made again from their chains\n"
    assert "2 runs were planned; 1 did not happen (`r2`), and are missing" in (folder / "README.md").read_text()
    assert "| a\\|b | 2 |" in (folder / "README.md").read_text()
    rows = {row["run"]: row for row in csv.DictReader((folder / "runs.csv").open())}
    assert [(row["results.outcomes.functional"], row["results.outcomes.judge.second"]) for row in rows.values()] == [("true", "'=1+1"), ("", "")]
    assert json.loads((folder / "protocol.json").read_text())["plan"] == plan["plan"]


def test_a_campaign_without_runs_is_packed_too(tmp_path: Path):
    made(tmp_path / "ledger", "c", [], policy=POLICY, policy_hash=OPENING.policy_hash)
    assert checked(pack(tmp_path / "ledger", tmp_path / "pack")).stdout == "fits: 0 calls of 0 runs, made again from their chains\n"


def test_a_receipt_that_was_kept_is_held_against_it(ledger: Path, packed: Path, tmp_path: Path):
    kept = tmp_path / "kept.json"
    with LedgerReader(ledger) as reader:
        kept.write_text(json.dumps([reader.receipt("c", "r"), reader.receipt("c")]))
    answer = checked(packed, "--against", str(kept))
    assert (answer.returncode, "4 receipts and heads that were kept" in answer.stdout) == (0, True), answer
    with LedgerReader(ledger) as reader:
        kept.write_text("\n".join(json.dumps(reader.receipt("c", run), indent=2) for run in ("r", "s")))
    assert "4 receipts and heads that were kept" in checked(packed, "--against", str(kept)).stdout
    then = pack(ledger, tmp_path / "then", as_of=12)
    assert "was kept but is not here" in checked(then, "--against", str(kept)).stdout
    for text in ("[]", "no receipt", ""):
        kept.write_text(text)
        answer = checked(packed, "--against", str(kept))
        assert (answer.returncode, answer.stderr) == (2, ""), answer
    assert "can't be read as receipts" in checked(packed, "--against", str(tmp_path / "nowhere.json")).stdout


# -- changed packs


def lines(folder: Path, name: str, change: Callable[[list[bytes]], object]) -> None:
    found = (folder / name).read_bytes().splitlines()
    change(found)
    (folder / name).write_bytes(b"".join(line + b"\n" for line in found))


def document(folder: Path, name: str, change: Callable[[Any], object]) -> None:
    found = json.loads((folder / name).read_text())
    change(found)
    (folder / name).write_text(json.dumps(found))


def summed(folder: Path) -> None:
    """By someone who makes the sums fit what he changed."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    (folder / SUMS).write_text("".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names))


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        before = (folder / name).read_bytes()
        assert old in before
        (folder / name).write_bytes(before.replace(old, new, 1))

    return change


def rewritten(folder: Path) -> None:
    """A whole chain from an entry on, with new hashes: only what vouches for it from outside shows that."""
    path = folder / "chains/runs/r.jsonl"
    contents = [json.loads(line) for line in path.read_bytes().splitlines()]
    contents[2]["usage"]["output_tokens"] += 1
    opening = (folder / "chains/campaign.jsonl").read_bytes().splitlines()
    previous = bytes(32)
    for line in opening[: 1 + next(place for place, line in enumerate(opening) if json.loads(line)["kind"] == "open_run")]:
        previous = link(previous, line)
    made = []
    for content in contents:
        if "head" in content:
            content["head"]["hash"] = previous.hex()
        made.append(canonical(content))
        previous = link(previous, made[-1])
    path.write_bytes(b"".join(line + b"\n" for line in made))


MUTATIONS: dict[str, tuple[Callable[[Path], object], bool, str]] = {
    # what is done, whether the sums are made to fit afterwards, the words of the check
    "a file is missing": (lambda folder: (folder / "runs.csv").unlink(), False, "runs.csv: missing"),
    "a file is missing and its sum too": (lambda folder: (folder / "runs.csv").unlink(), True, "runs.csv: missing, also in SHA256SUMS"),
    "a file is added": (lambda folder: (folder / "extra.txt").write_text("x"), False, "extra.txt: unexpected"),
    "a file is added and summed": (lambda folder: (folder / "extra.txt").write_text("x"), True, "extra.txt: unexpected, a pack has no such file"),
    "a byte is changed": (replaced("README.md", b"Campaign c", b"Campaign d"), False, "README.md: changed"),
    "the sums are gone": (lambda folder: (folder / SUMS).unlink(), False, "SHA256SUMS: missing"),
    "a call's charge is changed": (
        replaced("calls.jsonl", b'"output_tokens":33', b'"output_tokens":23'),
        True,
        "calls.jsonl: row 1 differs from the chains in charge",
    ),
    "a call is dropped": (lambda folder: lines(folder, "calls.jsonl", lambda found: found.pop(1)), True, "calls.jsonl: has 4 rows, the chains make 5"),
    "a cell is changed": (replaced("calls.csv", b",33,", b",23,"), True, "calls.csv:2: usage.output_tokens is not what the chains say"),
    "a sum is changed": (
        lambda folder: document(folder, "aggregates.json", lambda found: found[0]["usage"]["input_tokens"].update(sum=1)),
        True,
        "aggregates.json: row 1 differs from the chains in usage",
    ),
    "a run's results are changed": (
        lambda folder: document(folder, "runs.json", lambda found: found[0]["results"].update(exit=0)),
        True,
        "runs.json: row 1 differs from the chains in results",
    ),
    "a conflict is left out": (
        replaced("runs.json", b"declared completed", b"declared complete"),
        True,
        "runs.json: row 1 differs from the chains in conflicts",
    ),
    "a refusal is left out": (lambda folder: lines(folder, "refusals.jsonl", lambda found: found.pop()), True, "refusals.jsonl: has 0 rows, the chains make 1"),
    "a receipt is changed": (replaced("receipts.json", b'"calls": ', b'"calls": 1'), True, "receipts.json: row 1 differs from the chains in"),
    "a head is changed": (lambda folder: document(folder, "heads.json", lambda found: found[1].update(hash="00" * 32)), True, "heads.json: row 2 differs"),
    "the policy is changed": (replaced("protocol.json", b"schema", b"scheme"), True, "protocol.json: its policy is not that of the campaign's chain"),
    "a halt is left out": (
        lambda folder: document(folder, "protocol.json", lambda found: found["events"].pop(0)),
        True,
        "protocol.json: its events is not that of the campaign's chain",
    ),
    "a date is changed": (
        lambda folder: document(folder, "protocol.json", lambda found: found.update(opened_ms=5)),
        True,
        "protocol.json: its opened_ms is not that of the campaign's chain",
    ),
    "more runs are said to have been planned": (
        lambda folder: document(folder, "protocol.json", lambda found: found.update(plan=[["r", "", "", 0]])),
        True,
        "protocol.json: its plan is not that of the campaign's chain",
    ),
    "the campaign's receipt adds up otherwise": (
        lambda folder: lines(folder, "chains/campaign.jsonl", lambda found: found.append(found.pop().replace(b'"calls":1', b'"calls":2', 1))),
        True,
        "chains/campaign.jsonl: receipt 1 has other labels than its runs' receipts add up to",
    ),
    "an entry is changed": (replaced("chains/runs/r.jsonl", b'"at_ms":4', b'"at_ms":3'), True, "chains/runs/r.jsonl:"),
    "an entry is dropped": (
        lambda folder: lines(folder, "chains/runs/r.jsonl", lambda found: found.pop(3)),
        True,
        "chains/runs/r.jsonl:4: is number 5 of its chain",
    ),
    "the tail is dropped": (
        lambda folder: lines(folder, "chains/runs/r.jsonl", lambda found: found.pop()),
        True,
        "chains/runs/r.jsonl: the campaign's chain vouches",
    ),
    "two entries change places": (
        lambda folder: lines(folder, "chains/runs/r.jsonl", lambda found: found.insert(1, found.pop(2))),
        True,
        "chains/runs/r.jsonl:2: is number 3 of its chain",
    ),
    "a run's chain is dropped": (lambda folder: (folder / "chains/runs/s.jsonl").unlink(), True, "chains/runs/s.jsonl: missing, though the run was opened"),
    "a run is slipped in": (
        lambda folder: shutil.copy(folder / "chains/runs/s.jsonl", folder / "chains/runs/t.jsonl"),
        True,
        "chains/runs/t.jsonl: the chain of a run that was never opened",
    ),
    "a chain is written anew": (rewritten, True, "chains/runs/r.jsonl:"),
    "the arithmetic is changed": (replaced("check_rows.py", b"settled", b"settlet"), False, "check_rows.py: changed"),
    "a table is no JSON": (lambda folder: (folder / "runs.json").write_text("{"), True, "runs.json: can't be read"),
}


@pytest.mark.parametrize("done", MUTATIONS)
def test_the_check_names_what_was_changed(packed: Path, done: str):
    change, with_sums, words = MUTATIONS[done]
    change(packed)
    if with_sums:
        summed(packed)
    answer = checked(packed)
    assert answer.returncode == 1, answer
    assert answer.stdout.startswith(f"does not fit: {words}"), answer.stdout
    assert answer.stderr == ""
