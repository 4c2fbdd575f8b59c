"""The samples of tests/fixtures/dispatch: an agent's record as a file that its reader takes, and what the server beside it saw."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from dataclasses import dataclass
from pathlib import Path

SAMPLES = Path(__file__).parents[1] / "fixtures" / "dispatch"
DATABASE_ROWS = "record.opencode-db-rows.jsonl"
_TABLES = {
    "session": ("id", "project_id", "slug", "directory", "title", "version", "time_created", "time_updated"),
    "message": ("id", "session_id", "time_created", "time_updated", "data"),
    "part": ("id", "message_id", "session_id", "time_created", "time_updated", "data"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One generation call as the scripted server logged it."""

    n: int
    body: dict[str, object]
    headers: dict[str, str]
    answer: dict[str, object]
    target: str
    begun_ms: int
    ended_ms: int | None


def seen(sample: str) -> dict[int, Seen]:
    """By the call's number."""
    calls = {}
    for line in (SAMPLES / sample / "mock-requests.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("gen"):
            headers = {name.lower(): value for name, value in (pair for pair in row["headers"] if isinstance(pair, list))}
            ended = round(row["t_end"] * 1000) if row.get("t_end") else None
            calls[row["gen"]] = Seen(row["gen"], row["body"], headers, row["resp"], row["target"], round(row["t_start"] * 1000), ended)
    return calls


def records(sample: str, folder: Path) -> list[Path]:
    """Copies of the sample's record files in `folder`; the database is built of its rows."""
    copied = []
    for source in sorted((SAMPLES / sample).glob("record.*")):
        if source.name == DATABASE_ROWS:
            copied.append(opencode_database(source, folder / "opencode.db"))
        else:
            copied.append(Path(shutil.copyfile(source, folder / source.name)))
    return copied


def opencode_database(rows: Path, to: Path) -> Path:
    with sqlite3.connect(to) as database:
        for table, columns in _TABLES.items():
            database.execute(f"CREATE TABLE `{table}` (`id` text PRIMARY KEY, {', '.join(f'`{each}`' for each in columns[1:])})")
        for line in rows.read_text().splitlines():
            row = json.loads(line)
            columns = _TABLES[row["table"]]
            values = [json.dumps(row[each]) if each == "data" else row[each] for each in columns]
            database.execute(f"INSERT INTO `{row['table']}` VALUES ({', '.join('?' * len(columns))})", values)
    database.close()
    return to


def eval_archive(log: Path, to: Path, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """An Inspect log in its other form: a header, and a document a sample."""
    whole = json.loads(log.read_text())
    samples = whole.pop("samples")
    with zipfile.ZipFile(to, "w", compression) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": whole["version"], "eval": whole["eval"]}))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        archive.writestr("header.json", json.dumps(whole))
    return to
