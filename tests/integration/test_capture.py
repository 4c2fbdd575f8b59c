"""Bodies beside the ledger: by what they hold, kept once, bounded, and found again or said to be damaged."""

import gzip
import hashlib
import threading
from collections import Counter
from pathlib import Path

import pytest

from gateway.capture import keeper as keeping
from gateway.capture.answers import AnswerTape
from gateway.capture.keeper import Keeper
from gateway.capture.store import BodyDamaged, BodyStore, packed


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


@pytest.mark.parametrize("damage", [b"", b"no gzip at all", gzip.compress(b"another body"), packed(b"body")[:-6]])
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
