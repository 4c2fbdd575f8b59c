"""What can be limited, and the one arithmetic that turns an amount of work into a number of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Quantity(StrEnum):
    """Quantities that accounts keep. A new one is a member here and a branch of `measure`; mypy names what else it touches."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOTAL_TOKENS = "total_tokens"
    TOOL_CALLS = "tool_calls"
    CONCURRENT = "concurrent"
    RUNS = "runs"


CLAMPABLE = frozenset({Quantity.OUTPUT_TOKENS, Quantity.TOTAL_TOKENS})
"""Quantities that a smaller output helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Work, as reserved or as charged. Always known, always whole numbers, never negative."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    concurrent: int = 0
    runs: int = 0


NOTHING = Amounts()


def measure(quantity: Quantity, amounts: Amounts) -> int:
    """How much of `quantity` these amounts are: applied to the estimate when reserving and to the charge when settling."""
    match quantity:
        case Quantity.REQUESTS:
            return amounts.requests
        case Quantity.INPUT_TOKENS:
            return amounts.input_tokens
        case Quantity.OUTPUT_TOKENS:
            return amounts.output_tokens
        case Quantity.TOTAL_TOKENS:
            return amounts.input_tokens + amounts.output_tokens
        case Quantity.TOOL_CALLS:
            return amounts.tool_calls
        case Quantity.CONCURRENT:
            return amounts.concurrent
        case Quantity.RUNS:
            return amounts.runs
        case _:
            assert_never(quantity)
