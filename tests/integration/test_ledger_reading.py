"""The reading side of a real file, and `verify`: it names the first entry that does not fit."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from gateway.accounting.chain import link
from gateway.accounting.commands import Expire, Settle
from gateway.errors import LedgerUnavailable, MixedLabels, NotFound
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.ledger.schema import migrations
from gateway.ledger.sqlite import SqliteStore
from tests.support.paper_books import adjust, open_campaign, open_run, reserve, settle
from tests.support.story import ACCOUNTS, STORY, write


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "ledger.db"
    write(path, STORY)
    return path


@pytest.fixture
def copy(told: Path, tmp_path: Path) -> Path:
    shutil.copy(told, tmp_path / "ledger.db")
    return tmp_path / "ledger.db"


def meddle(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        assert connection.execute(statement).rowcount > 0, statement
    connection.commit()
    connection.close()


def verified(path: Path, against: object = None):
    with LedgerReader(path) as reader:
        return reader.verify(against)


def test_a_ledger_that_was_not_touched_fits(told: Path):
    found = verified(told)
    assert found.fits, found
    assert found.entries == len(STORY) + 5


def test_a_flipped_bit_in_any_byte_of_any_entry_names_that_entry(copy: Path):
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    reader = LedgerReader(copy)
    rows = connection.execute("SELECT number, CAST(body AS BLOB), previous_hash, hash FROM journal").fetchall()
    for number, *columns in rows:
        for name, value in zip(("body", "previous_hash", "hash"), columns, strict=True):
            step = 1 if number == 8 else 61
            for place in range(0, len(value), step):
                changed = bytearray(value)
                changed[place] ^= 1 << (place % 8)
                cast = "CAST(? AS TEXT)" if name == "body" else "?"
                connection.execute(f"UPDATE journal SET {name} = {cast} WHERE number = ?", (bytes(changed), number))
                assert reader.verify().number == number, (number, name, place)
                connection.execute(f"UPDATE journal SET {name} = {cast} WHERE number = ?", (value, number))
    assert reader.verify().fits
    reader.close()
    connection.close()


@pytest.mark.parametrize("column, value", [("kind", "'void'"), ("at_ms", "99"), ("sequence", "77"), ("chain_id", "99"), ("call_id", "'z'")])
def test_a_column_that_differs_from_its_entry_is_found(copy: Path, column: str, value: str):
    meddle(copy, f"UPDATE journal SET {column} = {value} WHERE number = (SELECT number FROM journal WHERE kind = 'settle' LIMIT 1)")
    with LedgerReader(copy) as reader:
        (row,) = reader.query("SELECT min(number) AS number FROM journal WHERE call_id IN ('a', 'z') AND number > 6")
        assert reader.verify().number == (row["number"] if column != "kind" else 8)


def test_an_entry_that_was_taken_out_is_missing(copy: Path):
    meddle(copy, "DELETE FROM journal WHERE number = 9")
    assert verified(copy).problem == "entry 9 is missing"


def test_entries_that_changed_places_are_named(copy: Path):
    with LedgerReader(copy) as reader:
        first, second = (int(str(row["number"])) for row in reader.query("SELECT number FROM journal WHERE call_id IN ('a', 'b') ORDER BY number LIMIT 2"))
    for names in ("body, previous_hash, hash", "body, previous_hash, hash, kind, call_id, at_ms"):
        other = f"FROM (SELECT number AS n, {names} FROM journal WHERE number IN ({first}, {second})) AS other"
        moved = ", ".join(f"{name} = other.{name}" for name in names.split(", "))
        meddle(copy, f"UPDATE journal SET {moved} {other} WHERE number IN ({first}, {second}) AND other.n = {first + second} - number")
        assert verified(copy).number == first


def test_an_entry_that_was_put_in_is_named(copy: Path):
    with LedgerReader(copy) as reader:
        columns = [name for name in reader.query("SELECT * FROM journal LIMIT 1")[0] if name not in ("number", "sequence")]
        last = int(str(reader.query("SELECT max(number) AS number FROM journal")[0]["number"]))
    named = ", ".join(columns)
    settled = "(SELECT number FROM journal WHERE kind = 'settle' LIMIT 1)"
    sequence = f"(SELECT max(sequence) + 1 FROM journal WHERE chain_id = (SELECT chain_id FROM journal WHERE number = {settled}))"
    meddle(copy, f"INSERT INTO journal (number, sequence, {named}) SELECT {last + 1}, {sequence}, {named} FROM journal WHERE number = {settled}")
    assert verified(copy).number == last + 1


@pytest.mark.parametrize(
    "statement, words",
    [
        ("UPDATE accounts SET settled = settled + 1 WHERE account LIKE 'run%output%'", "add up to"),
        ("DELETE FROM accounts WHERE account LIKE 'campaign%runs%'", "add up to"),
        ("UPDATE call_records SET output_tokens = 1 WHERE call_id = 'a'", "call a: its row differs from its entries in output_tokens"),
        ("DELETE FROM call_records WHERE call_id = 'b'", "call b has entries, but no row"),
        ("UPDATE call_records SET call_id = 'zz' WHERE call_id = 'b'", "call zz has a row, but no entry"),
    ],
)
def test_balances_and_rows_that_do_not_follow_from_the_journal_are_found(copy: Path, statement: str, words: str):
    meddle(copy, statement)
    found = verified(copy)
    assert words in found.problem
    assert found.number is None


def forge(path: Path, number: int, old: str, new: str) -> None:
    """Rewrites an entry and every hash after it: what only rules and kept receipts can show."""
    connection = sqlite3.connect(path)
    heads: dict[int, bytes] = {}
    opening: dict[str, bytes] = {}
    names = dict(connection.execute("SELECT id, name FROM chains"))
    swapped: dict[str, str] = {}
    for at, chain_id, body, was in connection.execute("SELECT number, chain_id, body, lower(hex(hash)) FROM journal ORDER BY number").fetchall():
        if at == number:
            assert old in body
            body = body.replace(old, new)
        for before, after in swapped.items():
            body = body.replace(before, after)
        name = names[chain_id]
        previous = heads.get(chain_id) or (opening[name.rpartition("/")[2]] if name.startswith("run:") else bytes(32))
        heads[chain_id] = hashed = link(previous, body.encode())
        swapped[was] = hashed.hex()
        if '"kind":"open_run"' in body:
            opening[body.partition('"run":"')[2].partition('"')[0]] = hashed
        connection.execute("UPDATE journal SET body = ?, previous_hash = ?, hash = ? WHERE number = ?", (body, previous, hashed, at))
    connection.commit()
    connection.close()


def entry_of(path: Path, kind: str, last: bool = False) -> int:
    with LedgerReader(path) as reader:
        (row,) = reader.query(f"SELECT {'max' if last else 'min'}(number) AS number FROM journal WHERE kind = :kind", kind=kind)
        return int(str(row["number"]))


@pytest.mark.parametrize(
    "kind, old, new, words",
    [
        ("settle", '"output_tokens":30', '"output_tokens":29', "postings do not bring"),
        ("reserve", '"output_tokens":80', '"output_tokens":81', "postings are not what it reserves"),
        ("adjust", '"corrects":', '"corrects":1', "it corrects entry"),
        ("void", '"kind":"void"', '"kind": "void"', "canonical"),
        ("declare", '"exit":0', '"exit":null', "can't be read"),
        ("receipt", '"calls":3', '"calls":2', "its totals is not what the chain before it adds up to"),
        ("receipt", '"conflicts":[', '"conflicts":["x",', "its conflicts|can't be read|canonical"),
        ("run_receipt", '"receipt":1', '"receipt":2', "it vouches for another receipt"),
    ],
)
def test_an_entry_that_was_forged_with_all_hashes_after_it_breaks_a_rule(copy: Path, kind: str, old: str, new: str, words: str):
    number = entry_of(copy, kind)
    forge(copy, number, old, new)
    found = verified(copy)
    assert found.number == number
    assert any(word in found.problem for word in words.split("|")), found.problem


def test_a_chain_that_was_written_anew_is_found_against_a_receipt_that_was_kept(copy: Path):
    with LedgerReader(copy) as reader:
        kept = reader.receipts(campaign="c")
    assert verified(copy, kept).fits
    forge(copy, entry_of(copy, "refuse"), '"model":"m"', '"model":"n"')
    assert verified(copy).fits
    found = verified(copy, kept)
    assert "written anew" in found.problem
    assert found.chain == "run:c/r"


def test_a_tail_or_a_run_that_was_dropped_is_found_against_heads_that_were_kept(told: Path, tmp_path: Path):
    with LedgerReader(told) as reader:
        heads, receipt = reader.heads(), reader.receipt("c", "s")
    write(tmp_path / "short.db", STORY[:-4])
    assert verified(tmp_path / "short.db").fits
    assert verified(tmp_path / "short.db", {"heads": heads}).problem.endswith("its tail was dropped")
    write(tmp_path / "shorter.db", STORY[:5])
    found = verified(tmp_path / "shorter.db", receipt)
    assert (found.chain, found.problem.endswith("it was dropped"), found.against) == ("run:c/s", True, 2)


def test_a_damaged_file_is_said_to_be_damaged(copy: Path):
    raw = bytearray(copy.read_bytes())
    page = int.from_bytes(raw[16:18], "big")
    with LedgerReader(copy) as reader:
        (row,) = reader.query("SELECT rootpage FROM sqlite_master WHERE name = 'journal'")
    start = (int(str(row["rootpage"])) - 1) * page
    raw[start : start + 8] = b"\xff" * 8
    copy.write_bytes(raw)
    assert "damaged" in verified(copy).problem


def test_usage_keeps_charge_apart_counts_the_unknown_and_says_its_sources(told: Path):
    with LedgerReader(told) as reader:
        r, s = reader.usage("run")["groups"]
    assert (r["run"], r["labels"], r["calls"], r["open"]) == ("r", ["engineering"], 3, 0)
    assert r["usage"]["output_tokens"] == {"sum": 33 + 3, "unknown": 1}
    assert r["usage"]["input_tokens"] == {"sum": 10 + 25 + 10, "unknown": 0}
    assert r["charge"] == {"requests": 3, "input_tokens": 45, "output_tokens": 36, "tool_calls": 2}
    assert {source: sums["calls"] for source, sums in r["sources"].items()} == {"corrected": 1, "counted": 1, "reported": 1}
    assert s["charge"]["output_tokens"] == 6


def test_one_total_over_several_labels_is_given_only_if_asked_for(told: Path):
    with LedgerReader(told) as reader:
        assert reader.usage("run")["total"] is None
        assert reader.usage("run", run="r")["total"]["charge"]["output_tokens"] == 36
        for by in ("campaign", "lane", "model"):
            with pytest.raises(MixedLabels, match="engineering, production"):
                reader.usage(by)
            assert reader.usage(by, across_labels=True)["total"]["charge"]["output_tokens"] == 42
        assert [group["charge"]["output_tokens"] for group in reader.usage("label")["groups"]] == [36, 6]


def test_sums_as_of_an_earlier_entry_are_what_they_were_then(told: Path):
    with LedgerReader(told) as reader:
        now, last = reader.usage("run"), entry_of(told, "receipt", last=True)
        assert reader.usage("run", as_of=last) == now
        (before,) = reader.usage("run", as_of=entry_of(told, "receipt"))["groups"]
    assert before["charge"]["output_tokens"] == 30 + 0 + 10
    assert before["usage"]["output_tokens"] == {"sum": 30, "unknown": 2}
    with LedgerReader(told) as reader:
        (open_call,) = reader.usage("run", as_of=7)["groups"]
        assert (open_call["calls"], open_call["open"]) == (2, 2)
        assert "charge" not in open_call


def test_receipts_are_read_as_they_were_given_out(told: Path):
    with LedgerReader(told) as reader:
        assert [(receipt["run"], receipt["receipt"]) for receipt in reader.receipts(campaign="c") if "run" in receipt] == [("r", 1), ("r", 2), ("s", 1)]
        assert reader.receipt("c", "r")["replaces"]["hash"] == reader.receipts(campaign="c", run="r")[0]["hash"]
        assert reader.receipt("c")["opened_runs"] == 2
        with pytest.raises(NotFound):
            reader.receipt("c", "t")


VIEWS = ("entries", "postings", "balances", "calls", "usage_by_run", "usage_by_campaign", "campaigns", "runs", "refusals", "receipts")


@pytest.mark.parametrize("view", VIEWS)
def test_the_file_opens_in_any_sqlite_tool_with_readable_views(told: Path, view: str):
    connection = sqlite3.connect(told)
    assert connection.execute(f"SELECT * FROM {view}").fetchall()
    connection.close()


def test_the_postings_in_the_views_add_up_to_the_balances(told: Path):
    connection = sqlite3.connect(told)
    sums = connection.execute("SELECT account, sum(reserved), sum(settled) FROM postings GROUP BY account ORDER BY account").fetchall()
    assert sums == connection.execute("SELECT * FROM balances ORDER BY account").fetchall()
    connection.close()


def test_what_is_no_ledger_is_said_to_be_none(tmp_path: Path):
    with pytest.raises(LedgerUnavailable, match="no such ledger"):
        LedgerReader(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at as one" * 10)
    with pytest.raises(LedgerUnavailable):
        LedgerReader(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(LedgerUnavailable, match="not a ledger"):
        LedgerReader(tmp_path / "empty.db")


def test_a_ledger_in_a_folder_that_is_read_only_can_be_read(told: Path):
    assert verified(told).fits
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(told, folder))
        copy.chmod(0o444)
        Path(folder).chmod(0o555)
        if root := os.geteuid() == 0:
            os.seteuid(65534)  # root may write everywhere
        try:
            assert verified(copy).fits
        finally:
            if root:
                os.seteuid(0)


async def test_a_ledger_is_read_and_verified_while_a_gateway_writes_it(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    for command in (open_campaign(), open_run()):
        await ledger.post(command)

    async def call(number: int) -> None:
        for place in range(25):
            await ledger.post(reserve(f"c{number}-{place}", 10, accounts=ACCOUNTS))
            await ledger.post(settle(f"c{number}-{place}", 4))

    writing = asyncio.gather(*(call(number) for number in range(16)))
    looks = 0
    while not writing.done():
        with LedgerReader(tmp_path / "ledger.db") as reader:
            found = await asyncio.to_thread(lambda: verified(tmp_path / "ledger.db"))
            assert found.fits, found
            assert reader.usage("run") is not None
        looks += 1
    await writing
    await ledger.close()
    assert looks
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert reader.usage("run")["groups"][0]["charge"]["requests"] == 400


def test_a_ledger_of_before_tool_calls_were_charged_is_migrated_and_still_fits(tmp_path: Path):
    path = tmp_path / "ledger.db"
    write(path, [settle("b", 3) if isinstance(command, Settle) and command.charge.tool_calls else command for command in STORY])
    (_, first), *_ = migrations()
    view = first[first.index("CREATE VIEW calls AS") :]
    connection = sqlite3.connect(path)
    connection.executescript(f"DROP VIEW calls; ALTER TABLE call_records DROP COLUMN charged_tool_calls; {view[: view.index(';')]}; PRAGMA user_version = 1")
    connection.close()
    store = SqliteStore(path)
    store.migrate()
    store.load()
    store.close()
    with LedgerReader(path) as reader:
        assert reader.verify().fits
        assert {row["charged_tool_calls"] for row in reader.calls() if row["status"] != "reserved"} == {0}


def ends(path: Path) -> dict[str, tuple[int, str]]:
    with LedgerReader(path) as reader:
        return {str(row["call_id"]): (row["ended_ms"], row["ended"]) for row in reader.query("SELECT * FROM calls")}  # type: ignore[misc]


def test_a_corrected_call_ended_when_it_ended_also_in_a_ledger_of_before(tmp_path: Path):
    path = tmp_path / "ledger.db"
    again = [adjust("a", 32, at_ms=2_000), adjust("a", 33, at_ms=3_000), settle("b", 3, at_ms=1_500)]
    lost = [Expire(call_id="c", at_ms=1_700, reason="process ended"), adjust("c", 9, at_ms=4_000)]
    late = [Expire(call_id="d", at_ms=1_700, reason="process ended"), settle("d", 3, at_ms=1_900), adjust("d", 9, at_ms=4_000)]
    made = [open_campaign(), open_run(), *(reserve(call, 80) for call in "abcde"), settle("a", 30, at_ms=1_000), *again, *lost, *late]
    write(path, made)
    right = {"a": (1_000, "1970-01-01T00:00:01.000Z"), "b": (1_500, "1970-01-01T00:00:01.500Z"), "c": (1_700, "1970-01-01T00:00:01.700Z")}
    right |= {"d": (1_900, "1970-01-01T00:00:01.900Z"), "e": (None, None)}  # type: ignore[dict-item]
    assert ends(path) == right
    _, (_, second), *_ = migrations()
    connection = sqlite3.connect(path)
    connection.executescript(f"DROP VIEW calls; {second[second.index('CREATE VIEW calls AS') :]} PRAGMA user_version = 2")
    connection.close()
    assert ends(path)["a"][0] == 3_000
    assert verified(path).fits, "it is read as it is"
    store = SqliteStore(path)
    store.migrate()
    store.load()
    store.close()
    assert ends(path) == right
    assert verified(path).fits
    with LedgerReader(path) as reader:
        last = max(int(str(row["closing_number"] or 0)) for row in reader.calls())
        assert {row["call_id"]: row["ended_ms"] for row in reader.calls(as_of=last)} == {call: ended for call, (ended, _) in right.items()}
