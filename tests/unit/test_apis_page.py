"""docs/apis.md names every format and engine that there is, and its tables are those of the code."""

from __future__ import annotations

import re

from gateway.dialects import DIALECTS, UTILITIES
from gateway.engines import ENGINES
from tests.support.api_tables import NAMES, PAGE, render

TEXT = PAGE.read_text()


def part(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def test_the_tables_are_those_of_the_code() -> None:
    assert render(TEXT) == TEXT, "write them anew: python -m tests.support.api_tables"


def test_a_table_that_is_out_of_date_would_be_seen() -> None:
    old = TEXT.replace("`/v1/chat/completions` (`max_tokens`)", "`/v1/chat`", 1)
    assert old != TEXT and render(old) == TEXT


def test_every_format_says_what_is_metered_how() -> None:
    rows = re.findall(r"^\| ((?:`[a-z._]+`(?:, )?)+) \|", part("What is metered how"), re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`([^`]+)`", row)] == [*DIALECTS, *UTILITIES]


def test_every_engine_has_its_part_with_what_is_not_believed() -> None:
    assert NAMES.keys() == ENGINES.keys()
    assert re.findall(r"^### (.*)$", part("Engines"), re.MULTILINE) == list(NAMES.values())
    for engine in ENGINES.values():
        for text in engine.distrust:
            assert f"* {text}\n" in part("Engines")


def test_gemini_is_said_not_to_be_there() -> None:
    assert "`generateContent` is not offered" in TEXT
    assert not any("gemini" in name for name in DIALECTS)
