"""The one arithmetic that turns work into numbers, asked singly and all at once."""

from __future__ import annotations

from gateway.accounting.quantity import Amounts, Quantity, measure, measures


def test_all_at_once_is_each_by_itself() -> None:
    amounts = Amounts(requests=2, input_tokens=3, output_tokens=5, tool_calls=7, concurrent=11, runs=13)
    assert measures(amounts) == {quantity: measure(quantity, amounts) for quantity in Quantity}
