"""What no record can do to its reader, whoever wrote it: raise anything but RecordProblem, hang, lead elsewhere, or fill the memory."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import RecordProblem
from gateway.reconcile import archive, finding, json_lines
from gateway.reconcile.archive import zipfile as zstd_zip
from gateway.reconcile.finding import find_records
from gateway.reconcile.readers import READERS
from gateway.reconcile.record import AgentReader, DispatchRecord, Skipped
from tests.support.dispatch_samples import eval_archive, records

BY_NAME = {reader.name: reader for reader in READERS}
OURS = {
    "form": "gateway-dispatch-1",
    "driver": "d",
    "session": "s",
    "id": "1",
    "ended_ms": 1796022252000,
    "usage": {"input_tokens": 9, "output_tokens": 2},
    "response_id": "chatcmpl-1",
}
SAMPLE_OF = {
    "claude": "claude/ok",
    "codex": "codex/ok",
    "opencode": "opencode-export/ok",
    "qwen": "qwen/ok",
    "gemini": "gemini/ok",
    "copilot": "copilot/ok",
    "pi": "pi/ok",
    "mini-swe-agent": "mini/ok",
    "inspect": "inspect/402c",
    "aider": "aider/ok",
    "gateway-dispatch": "",
}
LINE_READERS = ("claude", "codex", "qwen", "gemini", "copilot", "pi", "aider", "gateway-dispatch")
MEMORY_BYTES = 600 * 2**20
"""For a whole interpreter with the readers loaded; the file is several times as large."""


def sample(agent: str, folder: Path) -> Path:
    if agent == "gateway-dispatch":
        path = folder / "driver.jsonl"
        path.write_text(json.dumps(OURS) + "\n" + json.dumps(OURS | {"id": "2"}) + "\n")
        return path
    return next(path for path in records(SAMPLE_OF[agent], folder) if BY_NAME[agent].claims(path))


def test_the_table_has_every_reader() -> None:
    assert set(SAMPLE_OF) == set(BY_NAME)


def read(reader: AgentReader, path: Path) -> tuple[list[DispatchRecord], list[Skipped]]:
    rows = list(reader.read(path))
    return [row for row in rows if isinstance(row, DispatchRecord)], [row for row in rows if isinstance(row, Skipped)]


def survives(reader: AgentReader, path: Path) -> None:
    """The one thing that is allowed besides rows."""
    try:
        reader.claims(path)
        rows = list(reader.read(path))
    except RecordProblem as problem:
        assert str(problem).startswith(str(path))
        return
    for row in rows:
        if isinstance(row, DispatchRecord):
            for number in (row.usage.input_tokens, row.usage.output_tokens, row.usage.cached_tokens, row.usage.reasoning_tokens, row.at_ms, row.begun_ms):
                assert number is None or 0 <= number < 2**55
            for name in (row.response_id, row.session, row.model, row.message, *row.tool_call_ids, *row.request_ids, *row.item_ids):
                assert len(name) <= 4096
                name.encode()


HOSTILE: list[object] = [
    None,
    True,
    -1,
    0,
    2**63,
    2**70,
    1.5,
    1e300,
    "",
    "x" * 5000,
    "\ud83d",
    "\x00\x1b[31m",
    "9" * 40,
    [],
    {},
    [[[[[]]]]],
    [None, 3, "a", {}],
    {"a": {"b": {}}},
]


def places(value: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


def put(value: object, at: tuple[object, ...], new: object) -> object:
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy


@pytest.mark.parametrize("agent", SAMPLE_OF)
def test_any_value_in_any_place_of_a_record_is_borne(agent: str, tmp_path: Path) -> None:
    path = sample(agent, tmp_path)
    text, choosing = path.read_text(), random.Random(agent)
    pieces = [json.loads(line) for line in text.splitlines()] if agent in LINE_READERS else [json.loads(text)]
    for _ in range(200):
        number = choosing.randrange(len(pieces))
        changed = put(pieces[number], choosing.choice(places(pieces[number])), choosing.choice(HOSTILE))
        path.write_text("\n".join(json.dumps(piece) for piece in [*pieces[:number], changed, *pieces[number + 1 :]]))
        survives(BY_NAME[agent], path)


@pytest.mark.parametrize("agent", [*SAMPLE_OF, "opencode-database", "inspect-archive"])
def test_any_damage_to_a_records_bytes_is_borne(agent: str, tmp_path: Path) -> None:
    if agent == "opencode-database":
        (path,) = records("opencode/ok", tmp_path)
    elif agent == "inspect-archive":
        path = eval_archive(sample("inspect", tmp_path), tmp_path / "log.eval")
    else:
        path = sample(agent, tmp_path)
    raw, choosing = path.read_bytes(), random.Random(agent)
    for _ in range(80):
        damaged = bytearray(raw)
        for _ in range(choosing.choice((1, 3, 40))):
            place = choosing.randrange(len(damaged))
            damaged[place : place + choosing.choice((0, 1, 1, 9))] = choosing.randbytes(choosing.choice((0, 1, 1, 9)))
        path.write_bytes(damaged)
        survives(BY_NAME[agent.split("-")[0] if agent.endswith(("database", "archive")) else agent], path)


@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=400), start=st.sampled_from([b"", b"SQLite format 3\x00", b"PK\x03\x04", b"\xff\xfe", b"\xef\xbb\xbf{", b"[" * 300]))
def test_any_bytes_at_all_are_borne_by_every_reader(raw: bytes, start: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.jsonl"
    path.write_bytes(start + raw)
    for reader in READERS:
        survives(reader, path)


@pytest.mark.parametrize("agent", LINE_READERS)
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"type": "assistant", ', "broken JSON"),
        (b'{"a": "\xff\xfe"}', "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": -Infinity}', "-Infinity is no JSON"),
        (b"[1, 2]", "no JSON object"),
        (b'{"a": ' + b"7" * 5000 + b"}", "broken JSON"),
    ],
)
def test_a_line_that_cannot_be_read_is_skipped_with_its_place_and_the_rest_is_read(agent: str, line: bytes, why: str, tmp_path: Path) -> None:
    path = sample(agent, tmp_path)
    before, _ = read(BY_NAME[agent], path)
    with path.open("ab") as file:
        file.write((b"" if path.read_bytes().endswith(b"\n") else b"\n") + line + b"\n")
    number = path.read_bytes().count(b"\n")
    rows, skipped = read(BY_NAME[agent], path)
    assert rows == before
    assert [row.source for row in skipped] == [f"{path}:{number}"]
    assert why in skipped[0].why


@pytest.mark.parametrize("agent", SAMPLE_OF)
def test_a_byte_order_mark_and_other_line_ends_change_nothing(agent: str, tmp_path: Path) -> None:
    path = sample(agent, tmp_path)
    before = read(BY_NAME[agent], path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert BY_NAME[agent].claims(path)
    assert read(BY_NAME[agent], path) == before


@pytest.mark.parametrize("agent", SAMPLE_OF)
def test_another_encoding_is_skipped_as_what_it_is(agent: str, tmp_path: Path) -> None:
    path = sample(agent, tmp_path)
    path.write_bytes(path.read_text().encode("utf-16"))
    rows, skipped = read(BY_NAME[agent], path)
    assert not rows
    assert "UTF-16, not UTF-8" in skipped[0].why


def test_a_key_that_stands_twice_discredits_its_line(tmp_path: Path) -> None:
    path = sample("claude", tmp_path)
    path.write_text(path.read_text().replace('"output_tokens": 41,', '"output_tokens": 1, "output_tokens": 41,'))
    rows, skipped = read(BY_NAME["claude"], path)
    assert [row.usage.output_tokens for row in rows] == [42]
    assert [row.why for row in skipped] == ["the key 'output_tokens' stands twice"]


@pytest.mark.parametrize("number", ["-41", "4.5", "1e400", '"41"', "true", "9007199254740992", "[41]"])
def test_a_number_that_is_no_count_leaves_the_row_and_makes_its_usage_unknown(number: str, tmp_path: Path) -> None:
    path = sample("claude", tmp_path)
    path.write_text(path.read_text().replace('"output_tokens": 41,', f'"output_tokens": {number},'))
    rows, skipped = read(BY_NAME["claude"], path)
    assert [row.usage.output_tokens for row in rows] == [None, 42]
    assert rows[0].usage.input_tokens is None
    assert [row.source for row in skipped] == [f"{path}:3"]
    assert "output_tokens is" in skipped[0].why


def test_half_a_surrogate_which_agents_do_write_is_no_harm(tmp_path: Path) -> None:
    path = sample("claude", tmp_path)
    path.write_text(path.read_text().replace("All done: hi.", "All done \\ud83d"))
    assert len(read(BY_NAME["claude"], path)[0]) == 2


MEASURE = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
from gateway.reconcile.finding import find_records
for path in sys.argv[2:]:
    rows = find_records([Path(path)]).read()
    print(len(rows.records), *(each.source.rpartition("/")[2] + " " + each.why for each in rows.skipped), sep="|")
"""


def sparse(path: Path, size: int, after: bytes = b"") -> Path:
    with path.open("ab") as file:
        file.truncate(file.tell() + size)
        file.seek(0, os.SEEK_END)
        file.write(after)
    return path


def test_a_line_of_two_gigabytes_is_passed_over_in_bounded_memory_and_what_follows_is_read(tmp_path: Path) -> None:
    path = sample("claude", tmp_path)
    first, last = path.read_bytes().rstrip(b"\n").rsplit(b"\n", 2)[0], path.read_bytes().rstrip(b"\n").rsplit(b"\n", 2)[1]
    path.write_bytes(first + b"\n")
    sparse(path, 2 * 2**30, b"\n" + last + b"\n")
    number = first.count(b"\n") + 2
    done = subprocess.run([sys.executable, "-c", MEASURE, str(MEMORY_BYTES), str(path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"2|{path.name}:{number} a line longer than {json_lines.MAX_LINE_BYTES} bytes"]


def test_documents_and_databases_of_two_gigabytes_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    paths = [sparse(sample(agent, tmp_path), 2 * 2**30) for agent in ("mini-swe-agent", "inspect", "opencode")]
    (tmp_path / "db").mkdir()
    (database,) = records("opencode/ok", tmp_path / "db")
    eval_archive(records("inspect/ok", tmp_path / "db")[0], tmp_path / "log.eval")
    paths += [sparse(tmp_path / "log.eval", 2 * 2**30), sparse(database, 2 * 2**30)]
    done = subprocess.run([sys.executable, "-c", MEASURE, str(MEMORY_BYTES), *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    larger = f"larger than {json_lines.MAX_DOCUMENT_BYTES} bytes"
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"0|{path.name} {larger}" for path in paths[:3]]
    assert lines[3] == f"0|log.eval larger than {archive.MAX_ARCHIVE_BYTES} bytes"
    assert lines[4].startswith("2")


def bomb(path: Path, inside: bytes, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zstd_zip.ZipFile(path, "w", compression) as made:
        made.writestr("header.json", '{"version": 2}')
        made.writestr("samples/1_epoch_1.json", inside)
    return path


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(tmp_path / "log.eval", b'{"events": [' + b" " * (2 * 2**20) + b"]}")
    rows, skipped = read(BY_NAME["inspect"], path)
    assert not rows
    assert [row.why for row in skipped] == [f"packed more than {archive.MAX_RATIO} to 1"]
    monkeypatch.setattr(archive, "MAX_DOCUMENT_BYTES", 2**20)
    assert [row.why for row in read(BY_NAME["inspect"], path)[1]] == [f"larger than {2**20} bytes unpacked"]


def test_an_archive_with_too_many_members_is_refused_before_its_directory_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 5)
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as made:
        for number in range(6):
            made.writestr(f"samples/{number}_epoch_1.json", "{}")
    assert [row.why for row in read(BY_NAME["inspect"], path)[1]] == ["more than 5 members"]


def test_a_member_that_lies_about_its_size_is_skipped(tmp_path: Path) -> None:
    path = bomb(tmp_path / "log.eval", b'{"events": []}' + b" " * 3000)
    raw = path.read_bytes()
    path.write_bytes(raw.replace((3014).to_bytes(4, "little"), (9).to_bytes(4, "little")))
    rows, skipped = read(BY_NAME["inspect"], path)
    assert not rows
    assert skipped


def test_a_zstd_bomb_that_lies_about_its_size_takes_bounded_memory(tmp_path: Path) -> None:
    inside = bytes(MEMORY_BYTES)
    path = bomb(tmp_path / "log.eval", inside, zstd_zip.ZIP_ZSTANDARD)
    path.write_bytes(path.read_bytes().replace(len(inside).to_bytes(4, "little"), (900_000).to_bytes(4, "little")))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(MEMORY_BYTES), str(path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert "can't be unpacked: Bad CRC-32" in done.stdout


def test_a_method_of_packing_that_no_log_uses_is_skipped(tmp_path: Path) -> None:
    path = bomb(tmp_path / "log.eval", b'{"events": []}', zipfile.ZIP_LZMA)
    assert [row.why for row in read(BY_NAME["inspect"], path)[1]] == ["packed by method 14, which is not known here"] * 2


def database(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as made:
        for statement in statements:
            made.execute(statement)
    made.close()
    return path


def test_a_database_without_opencodes_tables_says_what_it_lacks(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", "CREATE TABLE session (id, version)")
    with pytest.raises(RecordProblem, match=r"opencode\.db: an SQLite database without the tables message, part"):
        read(BY_NAME["opencode"], path)


def test_a_view_in_a_tables_place_is_never_run(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS session_id, i AS time_created, i AS data FROM n"
    path = database(
        tmp_path / "opencode.db", "CREATE TABLE session (id, version)", "CREATE TABLE part (id, message_id, data)", f"CREATE VIEW message AS {endless}"
    )
    with pytest.raises(RecordProblem, match="without the tables message"):
        read(BY_NAME["opencode"], path)


def test_a_database_is_read_with_its_log_and_left_as_it_was(tmp_path: Path) -> None:
    (path,) = records("opencode/ok", tmp_path)
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    before = read(BY_NAME["opencode"], path)[0]
    writer.execute("UPDATE message SET data = replace(data, '927', '928')")
    writer.commit()
    state = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert state["opencode.db-wal"]
    rows, skipped = read(BY_NAME["opencode"], path)
    assert not skipped
    assert [row.usage.input_tokens for row in rows] == [before[0].usage.input_tokens, (before[1].usage.input_tokens or 0) + 1]
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == state
    writer.close()


def test_a_database_that_runs_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.reconcile import sqlite_file

    monkeypatch.setattr(sqlite_file, "MAX_STEPS", 10)
    monkeypatch.setattr(sqlite_file, "_STEPS_A_LOOK", 10)
    (path,) = records("opencode/ok", tmp_path)
    assert "interrupted" in read(BY_NAME["opencode"], path)[1][0].why


OTHER_VERSIONS: dict[str, tuple[str, str, str]] = {
    "claude": ('"version": "2.1.332"', '"version": "3.0.0"', r"Claude Code of version 3\.0\.0.*Known: 1\.\*, 2\.\*"),
    "codex": ('"cli_version": "0.171.0"', '"cli_version": "1.2.0"', r"Codex of version 1\.2\.0.*Known: 0\.\*"),
    "opencode": ('"version": "1.18.33"', '"version": "2.0.0"', r"OpenCode of version 2\.0\.0.*Known: 1\.\*"),
    "qwen": ('"version": "0.24.4"', '"version": "1.0.0"', r"Qwen Code of version 1\.0\.0.*Known: 0\.\*"),
    "copilot": ('"copilotVersion": "1.0.102"', '"copilotVersion": "2.0.0"', r"Copilot CLI of version 2\.0\.0.*Known: 1\.0\.\*"),
    "pi": ('"version": 3', '"version": 4', r"pi's session of format 4.*Known: 1 to 3"),
    "mini-swe-agent": ("mini-swe-agent-1.1", "mini-swe-agent-2", r"format mini-swe-agent-2.*Known: mini-swe-agent-1, mini-swe-agent-1\.1"),
    "inspect": ('"version": 2', '"version": 7', r"Inspect log of format 7.*Known: 2"),
    "gateway-dispatch": ("gateway-dispatch-1", "gateway-dispatch-2", r"form gateway-dispatch-2.*Known: gateway-dispatch-1"),
}
NO_VERSION_OF_ITS_OWN = {"gemini", "aider"}


@pytest.mark.parametrize("agent", OTHER_VERSIONS)
def test_a_version_that_is_not_known_is_an_error_that_says_what_was_found_and_what_is_known(agent: str, tmp_path: Path) -> None:
    path = sample(agent, tmp_path)
    old, new, words = OTHER_VERSIONS[agent]
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecordProblem, match=words) as raised:
        find_records([path], agent=agent).read()
    assert str(path) in str(raised.value)


def test_each_reader_tells_versions_apart_but_those_whose_agent_writes_none() -> None:
    assert set(OTHER_VERSIONS) | NO_VERSION_OF_ITS_OWN == set(BY_NAME)


def test_qwens_monthly_usage_of_another_schema_is_refused_too(tmp_path: Path) -> None:
    records("qwen/ok", tmp_path)
    path = tmp_path / "record.qwen-token-usage-2026-11.jsonl"
    path.write_text(path.read_text().replace('"schemaVersion": 1', '"schemaVersion": 2'))
    with pytest.raises(RecordProblem, match=r"schema 2.*Known: 1"):
        read(BY_NAME["qwen"], path)


# Finding


def test_a_symlink_leads_nowhere(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    sample("pi", inside)
    other = sample("claude", outside)
    (inside / "link.jsonl").symlink_to(other)
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    found = find_records([inside])
    assert found.agents() == ("pi",)
    assert [(row.source, row.why) for row in found.skipped] == [(str(inside / "link.jsonl"), "a symlink: not followed")]
    assert find_records([inside / "link.jsonl"]).agents() == ("claude",)  # who names it himself means it


def test_a_file_that_became_a_symlink_after_it_was_found_is_not_followed(tmp_path: Path) -> None:
    path, secret = sample("claude", tmp_path), tmp_path / "secret"
    found = find_records([path])
    path.rename(secret)
    path.symlink_to(secret)
    rows = found.read()
    assert not rows.records
    assert "can't be read" in rows.skipped[0].why


def test_a_pipe_or_a_socket_in_the_folder_hangs_nothing(tmp_path: Path) -> None:
    sample("claude", tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert len(find_records([tmp_path]).files) == 1
    with pytest.raises(RecordProblem, match="no dispatch record"):
        find_records([tmp_path / "pipe.jsonl"])


def test_an_agents_whole_home_with_other_files_gives_its_records_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-agent-repo"
    folder.mkdir(parents=True)
    sample("claude", folder)
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    (tmp_path / ".claude" / "history.jsonl").write_text('{"display": "hi", "timestamp": 1}\n')
    (tmp_path / ".claude" / "todo.md").write_text("# aider is another tool")
    (tmp_path / ".claude" / "image.png").write_bytes(b"\x89PNG")
    found = find_records([tmp_path])
    assert [file.path.parent for file in found.files] == [folder]


def test_where_nothing_is_recognised_the_error_says_what_was_found_and_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(RecordProblem, match=r"no file that could be one.*Known: gateway-dispatch, qwen, claude"):
        find_records([tmp_path])
    (tmp_path / "notes.jsonl").write_text("{}\n")
    with pytest.raises(RecordProblem, match=r"notes\.jsonl looked at, none of a form that is known"):
        find_records([tmp_path])
    with pytest.raises(RecordProblem, match=r"no agent is called 'emacs' here. Known: auto, gateway-dispatch"):
        find_records([tmp_path], agent="emacs")
    with pytest.raises(RecordProblem, match="can't be read: No such file"):
        find_records([tmp_path / "none"])


def test_depth_number_and_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*"abcd")
    deep.mkdir(parents=True)
    sample("claude", deep)
    sample("pi", tmp_path)
    assert len(find_records([tmp_path]).files) == 2
    monkeypatch.setattr(finding, "MAX_DEPTH", 3)
    found = find_records([tmp_path])
    assert [row.why for row in found.skipped] == ["deeper than 3 folders"]
    assert found.agents() == ("pi",)
    monkeypatch.setattr(finding, "MAX_ROWS", 1)
    with pytest.raises(RecordProblem, match="more than 1 rows"):
        found.read()
    monkeypatch.setattr(finding, "MAX_FILES", 0)
    with pytest.raises(RecordProblem, match="more than 0 files"):
        find_records([tmp_path])


def test_progress_is_told_file_by_file(tmp_path: Path) -> None:
    sample("claude", tmp_path)
    sample("pi", tmp_path)
    told: list[tuple[int, int]] = []
    note: Callable[[int, int], None] = lambda done, whole: told.append((done, whole))  # noqa: E731
    find_records([tmp_path]).read(note)
    assert told == [(1, 2), (2, 2)]
