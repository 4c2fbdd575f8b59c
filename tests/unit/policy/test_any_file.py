"""Whatever a file holds, it loads or is refused with a list of lines that each name the file and a line of it."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ConfigurationError
from gateway.policy import policy_from_text
from gateway.settings import settings_from_text

ROOT = Path(__file__).parents[3]
POLICY = (ROOT / "policies/reference.toml").read_text().splitlines()
SETTINGS = (ROOT / "gateway.example.toml").read_text().splitlines()
VALUES = st.sampled_from(
    ["-1", "0", "1", "1.5", "nan", "true", '""', '"8k"', "[]", "[1]", "{}", "{ x = 1 }", "1979-05-27", "9007199254740993", "[{}]", '"a\\u0000"']
)
HEADERS = st.sampled_from(
    [
        "[run]",
        "[day]",
        "[campaign.day.day]",
        "[run.model]",
        "[call.day]",
        "[lanes]",
        "[models]",
        "[[run.x]]",
        "[upstreams]",
        "[limits.x.y]",
        '[""]',
        "[run.''.x]",
    ]
)


@st.composite
def mangled(draw: st.DrawFn, lines: list[str]) -> str:
    """A good file after a few slips: lines lost, moved under another table, values and headers changed."""
    text = list(lines)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del text[at]
            case 1:
                text.insert(draw(st.integers(0, len(text) - 1)), text.pop(at))
            case 2 if " = " in text[at] and not text[at].startswith("#"):
                text[at] = f"{text[at].split(' = ')[0]} = {draw(VALUES)}"
            case _:
                text[at] = draw(HEADERS)
    return "\n".join(text)


def refused_well(error: ConfigurationError, lines: int) -> bool:
    found = [re.match(r"x\.toml:(\d+): .+", line) for line in str(error).split("\n")]
    return all(match is not None and 1 <= int(match[1]) <= lines for match in found)


@given(mangled(POLICY))
@settings(max_examples=250, deadline=None)
def test_any_policy_loads_or_is_refused_with_lines(text: str) -> None:
    try:
        policy_from_text(text, "x.toml")
    except ConfigurationError as error:
        assert refused_well(error, text.count("\n") + 2)


@given(mangled(SETTINGS))
@settings(max_examples=150, deadline=None)
def test_any_settings_load_or_are_refused_with_lines(text: str) -> None:
    try:
        settings_from_text(text, "x.toml")
    except ConfigurationError as error:
        assert refused_well(error, text.count("\n") + 2)
