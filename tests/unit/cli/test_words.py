"""How single values are written."""

import pytest

from gateway.cli.words import Kind, printable, written


@pytest.mark.parametrize(
    ("value", "kind", "terminal", "piped"),
    [
        (1234567, Kind.NUMBER, "1,234,567", "1234567"),
        (0, Kind.NUMBER, "0", "0"),
        (None, Kind.NUMBER, "unknown", "unknown"),
        (None, Kind.OPTIONAL_NUMBER, "-", "-"),
        (2048, Kind.OPTIONAL_NUMBER, "2,048", "2048"),
        (None, Kind.TEXT, "-", "-"),
        ("", Kind.TEXT, "-", "-"),
        (True, Kind.TEXT, "yes", "yes"),
        (["a", "b"], Kind.TEXT, "a, b", "a, b"),
        ([], Kind.TEXT, "-", "-"),
        ({"reported": 3, "unknown": 1}, Kind.TEXT, "reported 3, unknown 1", "reported 3, unknown 1"),
        (1_790_000_000_999, Kind.TIME, "2026-09-21T14:13:20Z", "2026-09-21T14:13:20Z"),
        (None, Kind.TIME, "-", "-"),
    ],
)
def test_values_are_written_for_people_with_separators_and_for_scripts_without(value: object, kind: Kind, terminal: str, piped: str) -> None:
    assert written(value, kind, separators=True) == terminal
    assert written(value, kind, separators=False) == piped


def test_an_unknown_number_is_neither_zero_nor_blank() -> None:
    assert written(None, Kind.NUMBER, separators=True) == "unknown"
    assert written(None, Kind.NUMBER, separators=False) == "unknown"


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a\nb", "a\u202eb", "a\u2028b", "\x07", "\udc80"])
def test_a_name_from_elsewhere_cannot_drive_the_terminal(hostile: str) -> None:
    shown = printable(hostile)
    assert shown.isprintable()
    assert "\\u" in shown


def test_letters_of_any_script_are_left_alone() -> None:
    assert printable("Größe 大小 é 🙂") == "Größe 大小 é 🙂"
