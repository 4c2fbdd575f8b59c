"""The questions of looks.js, asked in a tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

_QUESTIONS: Final = Path(__file__).with_suffix(".js").read_text().partition("\n")[2]


def ask(page: Any, question: str, *given: object) -> Any:
    """`structure`, `contrast`, `drawn`, `focus`."""
    return page.evaluate(f"(given) => {_QUESTIONS.strip()}.{question}(...given)", list(given))
