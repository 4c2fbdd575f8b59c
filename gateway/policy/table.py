"""What every table of a file is: nothing undeclared in it, nothing changed afterwards."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A TOML table: nothing undeclared, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)
    lane_table: ClassVar[type[BaseModel] | None] = None
    """What a table under a lane's name holds, where a lane's name is allowed."""
