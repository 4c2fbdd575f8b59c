"""From gateway.toml to the settings of a process, or to every reason why not.

The rule: paths in the file are relative to the file, never to where the process was started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from gateway.policy.diagnose import Report, judge, known_part
from gateway.policy.loading import origins_of, read_text, read_toml
from gateway.policy.shape import Names, shape_of
from gateway.settings.checks import check_settings
from gateway.settings.declaration import SettingsTable
from gateway.settings.settings import Settings

_T = TypeVar("_T", bound=BaseModel)


def load_settings(path: Path | str) -> Settings:
    """Raises ConfigurationError with one line for each thing that is wrong."""
    return settings_from_text(read_text(path), str(path))


def settings_from_text(text: str, file: str) -> Settings:
    """`file` is the name in errors; its folder is what paths are relative to."""
    raw, report = read_toml(text, file)
    known = known_part(raw, shape_of(SettingsTable), _names(raw), report)
    table = judge(SettingsTable, known, report)
    if table is not None:
        table = _placed(table, Path(file).absolute().parent)
        check_settings(table, report)
    report.raise_if_any()
    assert table is not None, "settings that were not made were reported"
    return _settings(table, report)


def _settings(table: SettingsTable, report: Report) -> Settings:
    return Settings(file=report.file, table=table, origins=origins_of(table.limits.declared, report), lines=report.lines)


def _names(raw: dict[str, object]) -> Names:
    """Lanes are the policies' matter: any will do here. Models are those that the upstreams serve."""
    upstreams = raw.get("upstreams")
    tables = list(upstreams.values()) if isinstance(upstreams, dict) else []
    models = [table["models"] for table in tables if isinstance(table, dict) and isinstance(table.get("models"), dict)]
    return Names(lanes=None, models=tuple({name: None for served in models for name in served}), models_at="[upstreams.NAME.models]")


def _in(folder: Path, table: _T, *names: str) -> _T:
    """With these paths of a table taken from the folder."""
    return table.model_copy(update={name: folder / path for name in names if (path := getattr(table, name)) is not None})


def _placed(table: SettingsTable, folder: Path) -> SettingsTable:
    upstreams = {name: _in(folder, upstream, "ca_file") for name, upstream in table.upstreams.items()}
    return table.model_copy(
        update={
            "policies": folder / table.policies,
            "data": _in(folder, table.data, "socket", "tls_cert", "tls_key"),
            "control": _in(folder, table.control, "socket", "tls_cert", "tls_key"),
            "ledger": _in(folder, table.ledger, "path"),
            "upstreams": upstreams,
        }
    )
