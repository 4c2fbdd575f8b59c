"""The ledger on a real file: group commit, one process, a full disk, a commit that fails, a process that is killed."""

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gateway.accounting.commands import BeginClosing, Void, WriteReceipt
from gateway.accounting.limit import Balance
from gateway.errors import ClockUncertain, CommandRejected, ConfigurationError, LedgerLocked, LedgerUnavailable
from gateway.ledger import gathering
from gateway.ledger.clock import LedgerClock
from gateway.ledger.connect import ledger_path
from gateway.ledger.ledger import Ledger
from gateway.ledger.lock import LedgerLock
from gateway.ledger.reading import LedgerReader
from gateway.ledger.state import CampaignStanding, RunStanding
from tests.support.paper_books import account, adjust, open_campaign, open_run, refuse, reserve, settle

OUTPUT = account("run:c/r", "output_tokens")
CONCURRENT = account("run:c/r", "concurrent")
ACCOUNTS = (OUTPUT, CONCURRENT)
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def ledger(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    await ledger.post(open_campaign())
    await ledger.post(open_run())
    yield ledger
    await ledger.close()


def held(call_id: str, output: int = 80):
    return reserve(call_id, output, accounts=ACCOUNTS)


async def test_a_reservation_holds_at_once_and_everything_else_when_it_is_durable(ledger: Ledger):
    waiting = ledger.post(held("a"))
    assert ledger.balances.of(OUTPUT) == Balance(80, 0)
    await waiting
    settling = ledger.post(settle("a", 30))
    assert ledger.balances.of(OUTPUT) == Balance(80, 0)
    await settling
    assert ledger.balances.of(OUTPUT) == Balance(0, 30)
    assert ledger.balances.of(CONCURRENT) == Balance(0, 0)


async def test_what_is_rejected_or_stands_already_gives_back_what_it_took(ledger: Ledger):
    await ledger.post(held("a"))
    assert (await ledger.post(held("a"))).standing
    assert ledger.balances.of(OUTPUT) == Balance(80, 0)
    with pytest.raises(CommandRejected):
        await ledger.post(reserve("b", 80, accounts=ACCOUNTS, run="nowhere"))
    assert ledger.balances.of(OUTPUT) == Balance(80, 0)


async def test_what_gathers_while_a_batch_is_written_goes_as_the_next_in_the_order_of_posting(ledger: Ledger):
    batches: list[int] = []
    ledger.on_commit(lambda seconds, commands: batches.append(commands))
    order: list[str] = []
    futures = []
    for number in range(100):
        for command in (held(f"c{number:03d}", 1), settle(f"c{number:03d}", 1)):
            future = ledger.post(command)
            future.add_done_callback(partial(lambda name, _: order.append(name), f"{type(command).__name__} {number}"))
            futures.append(future)
        if number == 10:
            await futures[0]
    postings = await asyncio.gather(*futures)
    numbers = [posting.entries[0].number for posting in postings]
    assert numbers == sorted(numbers)
    assert order == [f"{kind} {number}" for number in range(100) for kind in ("Reserve", "Settle")]
    assert sum(batches) == 200
    assert len(batches) < 20


async def test_what_is_posted_turn_by_turn_of_the_loop_is_one_commit(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gathering, "GATHER_S", 60.0)
    batches: list[int] = []
    ledger.on_commit(lambda seconds, commands: batches.append(commands))
    futures = []
    for number in range(20):
        futures.append(ledger.post(held(f"c{number:03d}", 1)))
        await asyncio.sleep(0)
    await asyncio.gather(*futures)
    assert batches == [20]


async def test_a_loop_that_never_rests_puts_a_commit_off_for_a_moment_only(ledger: Ledger):
    first = ledger.post(held("first", 1))
    number = 0
    while not first.done():
        ledger.post(held(f"c{number:05d}", 1))
        number += 1
        await asyncio.sleep(0)
    assert number < 10_000


async def test_a_call_that_is_closed_and_corrected_in_one_batch_stands_as_corrected(ledger: Ledger, tmp_path: Path):
    await ledger.post(held("a"))
    await asyncio.gather(ledger.post(settle("a", 30)), ledger.post(adjust("a", 40)), ledger.post(adjust("a", 50)))
    assert ledger.balances.of(OUTPUT) == Balance(0, 50)
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert reader.verify().fits
    rows = sqlite3.connect(tmp_path / "ledger.db").execute("SELECT status, outcome, charged_output_tokens FROM call_records").fetchall()
    assert rows == [("adjusted", "completed", 50)]


async def test_a_release_is_told_after_a_commit_that_lowered_something(ledger: Ledger):
    told: list[Balance] = []
    ledger.on_release(lambda: told.append(ledger.balances.of(OUTPUT)))
    await ledger.post(held("a"))
    assert told == []
    await ledger.post(settle("a", 30))
    assert told == [Balance(0, 30)]
    with pytest.raises(CommandRejected):
        await ledger.post(reserve("b", 1, accounts=ACCOUNTS, run="nowhere"))
    assert len(told) == 2


async def test_a_waiter_that_leaves_loses_nothing(ledger: Ledger):
    waiting = ledger.post(held("a"))
    waiting.cancel()
    await ledger.post(Void(call_id="a", at_ms=5, reason="left while it was being reserved"))
    assert ledger.balances.of(OUTPUT) == Balance(0, 0)


async def test_a_second_process_is_kept_out_and_told_who_serves(ledger: Ledger, tmp_path: Path):
    with pytest.raises(LedgerLocked, match=rf"served by process {os.getpid()} on \S+, since 20"):
        Ledger.open(tmp_path / "ledger.db")
    code = f"from gateway.ledger.ledger import Ledger; Ledger.open({str(tmp_path / 'ledger.db')!r})"
    second = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stderr=subprocess.PIPE)
    _, said = await second.communicate()
    assert f"LedgerLocked: {tmp_path / 'ledger.db'} is served by process {os.getpid()}".encode() in said


def test_a_lock_that_is_released_can_be_taken(tmp_path: Path):
    for _ in range(2):
        LedgerLock(tmp_path / "x.db").release()


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailable, match="ledger"):
        Ledger.open(tmp_path / "file" / "ledger.db")


def test_a_folder_that_is_read_only_is_named():
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        if root := os.geteuid() == 0:
            os.seteuid(nobody)  # root may write everywhere
        try:
            with pytest.raises(LedgerUnavailable, match="Permission denied"):
                Ledger.open(Path(folder) / "ledger.db")
        finally:
            if root:
                os.seteuid(0)


def test_a_ledger_of_a_later_release_is_not_touched(tmp_path: Path):
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    with pytest.raises(ConfigurationError, match="schema 999"):
        Ledger.open(tmp_path / "ledger.db")
    LedgerLock(tmp_path / "ledger.db").release()


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_file_of_another_program_is_not_made_a_ledger(tmp_path: Path, version: int):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url)")
        other.execute(f"PRAGMA user_version = {version}")
        other.commit()
    before = path.read_bytes()
    for opening in (Ledger.open, LedgerReader):
        with pytest.raises(LedgerUnavailable, match=r"of something else: it has a table bookmarks|is not a ledger"):
            opening(path)
    assert path.read_bytes() == before
    assert sorted(found.name for found in tmp_path.iterdir() if found.name.startswith("other.db-")) == []


def test_an_address_is_a_path_or_names_its_store(tmp_path: Path):
    assert ledger_path("a/b.db") == ledger_path("sqlite:///a/b.db") == Path("a/b.db")
    assert ledger_path("sqlite:////a/b.db") == Path("/a/b.db")
    with pytest.raises(ConfigurationError, match="postgresql"):
        ledger_path("postgresql://h/d")


async def test_too_little_room_on_the_disk_admits_nothing_but_lets_calls_settle(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db", min_free_bytes=2**60)
    with pytest.raises(LedgerUnavailable, match="min_free_bytes"):
        ledger.admissible()
    assert not (await ledger.post(open_campaign())).standing
    await ledger.close()
    roomy = Ledger.open(tmp_path / "ledger.db", min_free_bytes=1)
    roomy.admissible()
    await roomy.close()


def fill(ledger: Ledger) -> None:
    """From now on the file may not grow: what a full disk is to SQLite."""
    connection = ledger._store._connection  # type: ignore[attr-defined]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")


def make_room(ledger: Ledger) -> None:
    ledger._store._connection.execute("PRAGMA max_page_count = 1000000")  # type: ignore[attr-defined]


async def test_a_commit_that_fails_gives_back_reserves_admits_nothing_and_recovers(ledger: Ledger, tmp_path: Path):
    await ledger.post(held("a"))
    fill(ledger)
    stored = big = 0
    while not big:
        try:
            await ledger.post(held(f"b{stored}", 1))
            stored += 1
        except LedgerUnavailable as error:
            assert "full" in str(error)
            big = 1
    assert ledger.balances.of(OUTPUT) == Balance(80 + stored, 0)
    with pytest.raises(LedgerUnavailable):
        ledger.admissible()
    make_room(ledger)
    posting = await ledger.post(settle("a", 30))
    assert posting.entries[0].number == 3 + 1 + stored + 1
    ledger.admissible()
    assert ledger.balances.of(OUTPUT) == Balance(stored, 30)
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert reader.verify().fits


async def test_a_batch_fails_whole_and_its_commands_may_be_posted_again_as_they_are(ledger: Ledger):
    await ledger.post(held("a"))
    fill(ledger)
    batch = [settle("a", 30), *[held(f"b{number}", 1) for number in range(200)]]
    answers = await asyncio.gather(*map(ledger.post, batch), return_exceptions=True)
    assert {type(answer) for answer in answers} == {LedgerUnavailable}
    assert ledger.balances.of(OUTPUT) == Balance(80, 0)
    make_room(ledger)
    answers = await asyncio.gather(*map(ledger.post, batch))
    assert not any(posting.standing for posting in answers)
    assert ledger.balances.of(OUTPUT) == Balance(200, 30)


async def test_a_disk_that_takes_no_more_bytes_fails_the_commit_and_nothing_else(ledger: Ledger, tmp_path: Path):
    written = (tmp_path / "ledger.db-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, hard))
    try:
        with pytest.raises(LedgerUnavailable):
            await ledger.post(held("a"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.balances.of(OUTPUT) == Balance(0, 0)
    assert not (await ledger.post(held("a"))).standing
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert reader.verify().fits


async def test_after_a_failure_the_disk_is_tried_again_without_being_asked(ledger: Ledger):
    fill(ledger)
    with pytest.raises(LedgerUnavailable):
        await asyncio.gather(*[ledger.post(held(f"b{number}", 1)) for number in range(200)])
    make_room(ledger)
    async with asyncio.timeout(20):
        while True:
            try:
                ledger.admissible()
                break
            except LedgerUnavailable:
                await asyncio.sleep(0.05)


async def test_a_reservation_that_stands_though_it_was_reported_as_failed_is_voided(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    store = ledger._store
    post = store.post

    def commit_and_lose_the_answer(commands):
        post(commands)
        raise LedgerUnavailable("the answer was lost")

    await ledger.post(held("a"))
    monkeypatch.setattr(store, "post", commit_and_lose_the_answer)
    answers = await asyncio.gather(ledger.post(held("b")), ledger.post(settle("a", 30)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {LedgerUnavailable}
    monkeypatch.setattr(store, "post", post)
    assert (await ledger.post(settle("a", 30))).standing
    assert ledger.balances.of(OUTPUT) == Balance(0, 30)
    assert store.balances()[OUTPUT] == Balance(0, 30)


async def test_a_flood_of_refusals_is_summed_and_the_sum_stands_before_the_run_closes(ledger: Ledger, tmp_path: Path):
    postings = await asyncio.gather(*[ledger.post(refuse(f"x{number}")) for number in range(100)])
    assert sum(len(posting.entries) for posting in postings) == 20
    await ledger.post(BeginClosing(campaign="c", run="r", at_ms=ledger.now_ms()))
    receipt = await ledger.post(WriteReceipt(campaign="c", run="r", at_ms=ledger.now_ms()))
    assert receipt.content["totals"]["refused"] == {"run_budget_reached": 100}
    assert receipt.content["seen"]["stopped_by"] == "run.requests"
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert [row["refused"] for row in reader.refusals()] == [1] * 20 + [80]


async def test_sums_of_refusals_are_written_when_the_ledger_is_closed_and_go_on_after(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "l.db")
    for command in (open_campaign(), open_run(), *[refuse(f"x{number}") for number in range(25)]):
        await ledger.post(command)
    await ledger.close()
    ledger = Ledger.open(tmp_path / "l.db")
    assert (await ledger.post(refuse("y"))).entries == ()
    await ledger.close()
    with LedgerReader(tmp_path / "l.db") as reader:
        assert [row["refused"] for row in reader.refusals()] == [1] * 20 + [5, 1]


async def test_a_clock_in_doubt_admits_nothing_until_it_is_accepted_on_record(tmp_path: Path):
    hour_ms = 3_600_000
    moment = [1_000 * hour_ms]
    ledger = Ledger.open(tmp_path / "l.db", clock=LedgerClock(lambda: moment[0], lambda: moment[0]))
    await ledger.post(open_campaign(at_ms=ledger.now_ms()))
    await ledger.close()
    moment[0] -= hour_ms
    ledger = Ledger.open(tmp_path / "l.db", clock=LedgerClock(lambda: moment[0], lambda: moment[0]))
    with pytest.raises(ClockUncertain):
        ledger.admissible()
    posting = await ledger.accept_clock("checked by hand")
    assert (posting.entries[0].chain, posting.content["reason"], posting.entries[0].at_ms) == ("gateway", "checked by hand", 1_000 * hour_ms)
    ledger.admissible()
    await ledger.close()


async def test_a_closed_ledger_takes_nothing_more(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "l.db")
    waiting = ledger.post(open_campaign())
    await ledger.close()
    assert waiting.done()
    assert waiting.exception() is None
    with pytest.raises(LedgerUnavailable):
        await ledger.post(open_run())
    with pytest.raises(LedgerUnavailable):
        ledger.admissible()
    await ledger.close()


async def test_the_state_at_start_follows_from_the_entries(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "l.db")
    for command in (open_campaign(planned_runs=2), open_run(label="x"), held("a"), BeginClosing(campaign="c", run="r", at_ms=5)):
        await ledger.post(command)
    await ledger.close()
    ledger = Ledger.open(tmp_path / "l.db")
    (campaign,), (run,) = ledger.state().campaigns, ledger.state().runs
    assert (campaign.policy, campaign.standing, campaign.planned_runs) == ("{}", CampaignStanding.OPEN, 2)
    assert (run.label, run.standing, run.calls) == ("x", RunStanding.CLOSING, 1)
    await ledger.post(WriteReceipt(campaign="c", run="r", at_ms=6))
    assert ledger.state().runs[0].standing is RunStanding.CLOSED
    await ledger.close()


KILLED = """
import asyncio, sys
from gateway.ledger.ledger import Ledger
from tests.integration.test_ledger import held
from tests.support.paper_books import open_campaign, open_run, settle

async def caller(ledger, worker):
    number = 0
    while True:
        name = f"call-{worker}-{number}"
        print("asked", name, flush=True)
        await ledger.post(held(name, 10))
        print("reserved", name, flush=True)
        if number % 3:
            await ledger.post(settle(name, 4))
            print("settled", name, flush=True)
        number += 1

async def main():
    ledger = Ledger.open(sys.argv[1])
    await ledger.post(open_campaign())
    await ledger.post(open_run())
    await asyncio.gather(*(caller(ledger, worker) for worker in range(16)))

asyncio.run(main())
"""


def killed_after(lines: int, path: Path) -> dict[str, set[str]]:
    """What the process had said when it was killed."""
    said: dict[str, set[str]] = {"asked": set(), "reserved": set(), "settled": set()}
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            if not line.endswith("\n"):
                break  # the kill cut it short
            kind, _, name = line.strip().partition(" ")
            said[kind].add(name)
            if number == lines:
                process.send_signal(signal.SIGKILL)
    return said


@pytest.mark.parametrize("lines", [10, 60, 400, 1500])
async def test_after_kill_9_all_that_was_acknowledged_stands_and_what_was_open_is_lost(tmp_path: Path, lines: int):
    path = tmp_path / "ledger.db"
    said = killed_after(lines, path)
    with LedgerReader(path) as reader:
        stood = {str(row["call_id"]): row["status"] for row in reader.calls()}
    ledger = Ledger.open(path)
    with LedgerReader(path) as reader:
        calls = {str(row["call_id"]): row for row in reader.calls()}
        assert reader.verify().fits
    await ledger.close()
    assert said["reserved"] <= calls.keys() <= said["asked"]
    assert all(calls[name]["status"] == "settled" for name in said["settled"])
    assert {name for name, row in calls.items() if row["outcome"] == "lost"} == {name for name, status in stood.items() if status == "reserved"}
    assert {row["status"] for row in calls.values()} <= {"settled", "expired"}
    assert ledger.balances.of(OUTPUT) == Balance(0, sum(4 if row["status"] == "settled" else 10 for row in calls.values()))


async def test_one_file_has_one_lock_by_whatever_name_it_is_called(ledger: Ledger, tmp_path: Path):
    (tmp_path / "other.db").symlink_to(tmp_path / "ledger.db")
    with pytest.raises(LedgerLocked):
        Ledger.open(tmp_path / "other.db")
    (tmp_path / "hard.db").hardlink_to(tmp_path / "ledger.db")
    with pytest.raises(LedgerUnavailable, match="2 names"):
        Ledger.open(tmp_path / "hard.db")
    assert not (tmp_path / "hard.db-wal").exists()
