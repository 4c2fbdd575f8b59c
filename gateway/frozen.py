"""Frozen dataclasses of which every call makes some.

The rule: frozen for the type checker, which sees every line of this program. At run time Python would write each field of a frozen object through
`object.__setattr__`, at ten times the price: a call makes forty of them, with two hundred fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[Made]) -> type[Made]:
    """As `dataclass(frozen=True, slots=True, kw_only=True)`."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
