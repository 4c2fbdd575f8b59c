"""A plan as CSV and pins as files: what is wrong with one is said with file and line."""

import hashlib
from pathlib import Path

import pytest

from gateway.cli.plan_file import PLAN_BYTES_MAX, read_pins, read_plan
from gateway.cli.problems import Problem


def plan(folder: Path, text: str | bytes) -> Path:
    path = folder / "plan.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_plan_names_runs_and_what_is_known_of_each(tmp_path: Path) -> None:
    rows = read_plan(plan(tmp_path, "task,run,repeat\r\ntask-1,a,1\r\n\r\ntask-1,b,2\r\n,c,\r\n"))
    assert rows == [{"task": "task-1", "run": "a", "repeat": 1}, {"task": "task-1", "run": "b", "repeat": 2}, {"run": "c"}]
    assert read_plan(plan(tmp_path, b"\xef\xbb\xbfrun\na\n")) == [{"run": "a"}]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "its columns are none"),
        ("task\nx\n", 1, "its columns are task"),
        ("run,wall\na,1\n", 1, "its columns are run, wall"),
        ("run,run\na,b\n", 1, "its columns are run, run"),
        ("run,task\na\n", 2, "it has 1 cells under 2 columns"),
        ("run,task\na,x\n,y\n", 3, "it names no run"),
        ("run,repeat\na,twice\n", 2, "repeat is 'twice'"),
        ("run,repeat\na,0\n", 2, "repeat is '0'"),
        ("run,repeat\na,²\n", 2, "repeat is '²'"),
        ("run,task\n", 1, "it names no run"),
        (b"run\n\xff\n", 1, "utf-8"),
        ("run\n" + "a" * PLAN_BYTES_MAX, 1, "larger than"),
    ],
)
def test_a_plan_that_can_not_be_used_is_told_with_its_line(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    path = plan(tmp_path, text)
    with pytest.raises(Problem, match=f"{path}:{line}: ") as told:
        read_plan(path)
    assert words in told.value.cause


def test_a_pin_is_a_files_digest_or_one_that_is_given(tmp_path: Path) -> None:
    task = tmp_path / "task.json"
    task.write_text("{}")
    digest = "sha256:" + "ab" * 32
    assert read_pins((str(task), f"image={digest}", f"a=b={digest}")) == {
        "task.json": "sha256:" + hashlib.sha256(b"{}").hexdigest(),
        "image": digest,
        "a=b": digest,
    }
    with pytest.raises(Problem, match="can't be read"):
        read_pins((str(tmp_path / "none"),))
    with pytest.raises(Problem, match="twice"):
        read_pins((f"image={digest}", f"image={digest}"))
