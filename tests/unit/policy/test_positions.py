from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.positions import line_of, positions

ROOT = Path(__file__).parents[3]
FILES = [
    *sorted((ROOT / "policies").glob("*.toml")),
    ROOT / "gateway.example.toml",
    ROOT / "pyproject.toml",
    *sorted((ROOT / "tests/config/good").glob("*.toml")),
]


def paths(tree: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in tree.items():
        found.append((*above, key))
        if isinstance(value, dict):
            found += paths(value, (*above, key))
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_path_of_a_file_has_a_line_that_names_it(file: Path) -> None:
    text = file.read_text()
    lines, found = text.splitlines(), positions(text)
    for path in paths(tomllib.loads(text)):
        assert path[-1] in lines[found[path] - 1]


def test_every_form_of_key_has_its_line() -> None:
    text = '''# [no.table]
a = """
[b]
c = 1 \\""" """
"q.r" . 's t' = [ 1, # x = 2 ]
  { deep = 3 },
]
[b . "c.d"]   # [e]
f = { g = 1, h.i = "}" }
[[j]]
k = '\\'
[[j]]
l = \'\'\'
m = 4\'\'\'
n=1979-05-27T07:32:00Z
'''
    tomllib.loads(text)
    assert positions(text) == {
        ("a",): 2,
        ("q.r",): 5,
        ("q.r", "s t"): 5,
        ("q.r", "s t", "deep"): 6,
        ("b",): 8,
        ("b", "c.d"): 8,
        ("b", "c.d", "f"): 9,
        ("b", "c.d", "f", "g"): 9,
        ("b", "c.d", "f", "h"): 9,
        ("b", "c.d", "f", "h", "i"): 9,
        ("j",): 10,
        ("j", "k"): 11,
        ("j", "l"): 13,
        ("j", "n"): 15,
    }


def test_a_path_without_a_line_has_that_of_the_table_above() -> None:
    lines = {("run",): 3}
    assert line_of(lines, ("run", "background", "requests")) == 3
    assert line_of(lines, ("campaign",)) == 1


PIECES = st.sampled_from(
    [
        "[a]\n",
        "[a.b]\n",
        '[["c"]]\n',
        "x = 1\n",
        '"y z" = "#"\n',
        "w = 'a=b'\n",
        "v.u = [[1, 2], []]\n",
        't = {s = [{}], "r" = 2}\n',
        'p = """\n"""\n',
        "# =\n",
        "\n",
        "o = '''''''\n",
    ]
)


@given(st.lists(PIECES, max_size=8))
@settings(max_examples=200, deadline=None)
def test_what_toml_accepts_is_scanned(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = positions(text)
    assert set(paths(tree)) <= set(found)
