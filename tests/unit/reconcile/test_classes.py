"""The table of classes and the document say the same, and every class can be told from the others."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.reconcile.classes import MEANINGS, Class, explained
from gateway.reconcile.match import By

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reconciliation.md").read_text()


def rows(head: str) -> list[list[str]]:
    table = re.search(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", DOCUMENT, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def test_each_class_stands_in_the_document_as_it_is() -> None:
    shown = {cells[0].strip("`"): (cells[1].strip("*"), cells[2], cells[3]) for cells in rows("class")}
    assert shown == {
        name.value: ("yes" if meaning.explained else "no", meaning.where, f"{meaning.says} {meaning.do}".strip()) for name, meaning in MEANINGS.items()
    }


def test_each_way_of_matching_stands_in_the_document() -> None:
    assert [cells[0].strip("`") for cells in rows("matched by")] == [by.value for by in By]


def test_whatever_is_unexplained_says_what_to_do_about_it() -> None:
    assert set(MEANINGS) == set(Class)
    assert {name.value for name in Class if not explained(name)} == {"differs", "ambiguous", "record_lost", "other_run", "unidentified", "foreign"}
    assert all(meaning.do for meaning in MEANINGS.values() if not meaning.explained)
