"""Bodies beside the ledger: by what they hold, kept once, bounded, and found again or said to be damaged."""

import hashlib
import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.capture import keeper as keeping
from gateway.capture.answers import AnswerTape
from gateway.capture.keeper import Keeper
from gateway.capture.store import BodyDamaged, BodyStore, bodies_folder, packed
from gateway.cli.exits import Exit
from gateway.cli.root import root
from tests.support.made_campaign import Lane, MadeRun, made
from tests.support.waiting import eventually


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> BodyStore:
    return BodyStore(tmp_path / "bodies")


def test_a_body_is_kept_once_by_what_it_holds(store: BodyStore) -> None:
    seen: Counter[str] = Counter()
    keeper = Keeper(store, 10**9, lambda what: seen.update([what]))
    for raw in (b"one" * 1000, b"two", b"one" * 1000):
        keeper.keep(raw)
    keeper.stop(10)
    assert seen == {"kept": 2, "known": 1}
    assert {name: store.read(name) for name, _ in store.digests()} == {digest(raw): raw for raw in (b"one" * 1000, b"two")}
    assert oct(store.path(digest(b"two")).stat().st_mode & 0o777) == "0o600"


def test_an_answer_is_found_by_its_call_however_it_was_cut(store: BodyStore) -> None:
    raw = bytes(range(256)) * 2000
    keeper = Keeper(store, 10**9)
    for call, step in (("call-aa", 1000), ("call-bb", 77)):
        tape = AnswerTape()
        for at in range(0, len(raw), step):
            tape.add(raw[at : at + step])
        keeper.keep_answer(call, tape)
    keeper.stop(10)
    assert (store.read(store.answer_of("call-aa")), store.answer_of("call-bb"), store.answer_of("call-cc")) == (raw, digest(raw), "")


def test_beyond_its_bounds_nothing_is_kept_and_that_is_counted(store: BodyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    keeper = Keeper(store, len(packed(b"first")), lambda what: seen.update([what]))
    keeper.keep(b"first")
    keeper.keep(b"second")
    keeper.stop(10)
    assert seen == {"kept": 1, "full": 1}
    assert not store.has(digest(b"second"))

    held = threading.Event()
    monkeypatch.setattr(keeping, "packed", lambda raw: held.wait(10) and packed(raw))
    monkeypatch.setattr(keeping, "WAITING_BYTES_MAX", 10)
    behind = Keeper(store, 10**9, lambda what: seen.update([what]))
    for raw in (b"a" * 6, b"b" * 6, b"c" * 6):
        behind.keep(raw)
    held.set()
    behind.stop(10)
    assert seen["behind"] >= 1
    behind.keep(b"late")
    assert seen["behind"] >= 2


def test_what_is_full_is_so_until_somebody_prunes(store: BodyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    first = Keeper(store, len(packed(b"first")), lambda what: seen.update([what]))
    for raw in (b"first", b"secon"):
        first.keep(raw)
    first.stop(10)
    assert seen == {"kept": 1, "full": 1}
    again = Keeper(store, len(packed(b"first")), lambda what: seen.update([what]))
    again.keep(b"secon")
    eventually(lambda: seen["full"] == 2, "the store is full")
    store.remove(digest(b"first"))
    again.keep(b"third")
    eventually(lambda: seen["full"] == 3, "it is full for a while")
    monkeypatch.setattr(keeping, "RECOUNT_S", 0)
    again.keep(b"third")
    again.stop(10)
    assert seen == {"kept": 2, "full": 3}


def test_what_was_kept_by_another_process_counts_and_a_disk_that_refuses_loses_no_call(store: BodyStore, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    first = Keeper(store, 10**9)
    first.keep(b"x" * 100)
    first.stop(10)
    again = Keeper(store, sum(size for _, size in store.digests()), lambda what: seen.update([what]))
    again.keep(b"more")
    again.stop(10)
    tmp_path.joinpath("file").write_text("no folder")
    refused = Keeper(BodyStore(tmp_path / "file"), 10**9, lambda what: seen.update([what]))
    refused.keep(b"more")
    refused.stop(10)
    assert seen == {"full": 1, "failed": 1}


@pytest.mark.parametrize("damage", [b"", b"no gzip at all", packed(b"another body"), packed(b"body")[:-6]], ids=["empty", "no gzip", "another", "cut short"])
def test_a_damaged_body_is_not_given_out(store: BodyStore, damage: bytes) -> None:
    store.keep(digest(b"body"), packed(b"body"))
    store.path(digest(b"body")).write_bytes(damage)
    if damage == packed(b"body")[:-6]:
        assert store.read(digest(b"body")) == b"body"  # its end is missing, its content is whole
    else:
        with pytest.raises(BodyDamaged):
            store.read(digest(b"body"))


def test_a_body_that_unpacks_without_end_is_read_in_bounded_memory(store: BodyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.capture.store.BODY_MAX", 1000)
    bomb = b"0" * 1_000_000
    store.keep(digest(bomb), packed(bomb))
    with pytest.raises(BodyDamaged):
        store.read(digest(bomb))


def test_an_export_names_each_call_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    lanes = {"foreground": Lane(calls=2, input_tokens=10, output_tokens=2)}
    ledger = tmp_path / "ledger"
    made(ledger, "c", [MadeRun(run="a", lanes=lanes), MadeRun(run="b", lanes=lanes)])
    made(ledger, "other", [MadeRun(run="a", lanes=lanes)])
    answer = b'{"choices": []}'
    tape = AnswerTape()
    tape.add(answer)
    keeper = Keeper(BodyStore(bodies_folder(ledger)), 10**9)
    keeper.keep_answer("call-c-b-foreground-1", tape)
    keeper.stop(10)

    def typed(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(root, ["capture", "export", *map(str, words), "--ledger", str(ledger)])
        return done.exit_code, done.stdout + done.stderr

    assert typed("c", "--out", tmp_path / "out.jsonl") == (0, f"{tmp_path / 'out.jsonl'}: 4 calls, 4 of them without bodies.\n")
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["call_id"][5:] for line in lines] == ["c-a-foreground-0", "c-a-foreground-1", "c-b-foreground-0", "c-b-foreground-1"]
    assert [line.get("answer") for line in lines] == [None, None, None, {"choices": []}]
    for words, cause in ((("d",), "there is no campaign d"), (("c", "--run", "z"), "there is no run c/z")):
        status, told = typed(*words, "--out", tmp_path / "none.jsonl")
        assert (status, cause in told, (tmp_path / "none.jsonl").exists()) == (Exit.REFUSED, True, False), told


def test_a_campaign_that_was_never_opened_has_nothing_to_prune(tmp_path: Path) -> None:
    made(tmp_path / "ledger", "c", [MadeRun(run="a", lanes={"foreground": Lane(calls=1, input_tokens=10, output_tokens=2)})])
    for campaign, status in (("c", Exit.OK), ("d", Exit.REFUSED)):
        done = CliRunner().invoke(root, ["capture", "prune", "--campaign", campaign, "--ledger", str(tmp_path / "ledger")])
        assert done.exit_code == status, done.output
