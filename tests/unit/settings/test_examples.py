"""The shipped examples load, and together with the reference they name every key that the models know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from gateway.policy import load_policy
from gateway.policy.declaration import Policy
from gateway.policy.declared import dotted
from gateway.policy.shape import Names, Shape, leaves, shape_of
from gateway.settings import load_settings
from gateway.settings.declaration import Bounds, SettingsTable

ROOT = Path(__file__).parents[3]
POLICIES = sorted((ROOT / "policies").glob("*.toml"))
NAMES = Names(lanes=None, models=None)
REFERENCE = (ROOT / "docs/configuration.md").read_text()


def keys(model: type[BaseModel]) -> set[str]:
    return {path[-1] for path, _ in leaves(shape_of(model), NAMES)} - {"API", "NAME"}


def tables(shape: Shape, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every table with fixed keys below a name, as the section of the reference writes it."""
    found = set()
    for key, node in shape.keys.items():
        if isinstance(node, Shape):
            found |= ({(*above, key)} if node.keys else set()) | tables(node, (*above, key))
    if isinstance(shape.named, Shape):
        name = shape.named_by
        found |= {(*above, name)} | tables(shape.named, (*above, name))
    return found


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_a_shipped_policy_loads_under_the_shipped_settings(file: Path) -> None:
    load_settings(ROOT / "gateway.example.toml").check_policy(load_policy(file))


def test_default_reference_and_three_set_ups_are_shipped() -> None:
    assert {"default", "reference", "pilot", "production", "tuning"} <= {file.stem for file in POLICIES}


@pytest.mark.parametrize("file", [*POLICIES, ROOT / "gateway.example.toml"], ids=lambda file: file.name)
def test_every_line_of_an_example_has_its_comment(file: Path) -> None:
    for line in file.read_text().splitlines():
        if " = " in line:
            assert " # " in line or line.startswith("# "), line


@pytest.mark.parametrize(("model", "file"), [(Policy, "policies/reference.toml"), (SettingsTable, "gateway.example.toml")])
def test_every_key_stands_in_an_example(model: type[BaseModel], file: str) -> None:
    text = (ROOT / file).read_text()
    written = set(re.findall(r"^(?:# )?\"?([A-Za-z_]+)\"? = ", text, re.MULTILINE))
    assert keys(model) - written - {"runs" if model is SettingsTable else ""} == set()


@pytest.mark.parametrize(("model", "half"), [(Policy, 0), (SettingsTable, 1)])
def test_every_key_stands_in_the_reference_under_its_table(model: type[BaseModel], half: int) -> None:
    shape = shape_of(model)
    for path, leaf in leaves(shape, NAMES):
        if path[-1] in ("API", "NAME") or "day" in path[:-2] or path.count("MODEL") + path.count("LANE") > 0 or path[0] == "limits":
            continue
        section = REFERENCE.split("\n## gateway.toml\n")[half]
        heading = f"[{'.'.join(path[:-1])}]" if len(path) > 1 else "The top"
        assert f"\n### `{heading}`" in section or f"\n### {heading}" in section, heading
        table = re.split(rf"\n### `?{re.escape(heading)}`?", section)[1].split("\n### ")[0]
        row = next((line for line in table.splitlines() if line.startswith(f"| `{path[-1]}` |")), None)
        assert row is not None, dotted(path)
        if leaf.default is not None and not isinstance(leaf.default, Path) and type(leaf.default) in (int, str, bool) and not leaf.required:
            shown = str(leaf.default).lower() if isinstance(leaf.default, bool) else str(leaf.default)
            assert f"`{shown}`" in row, f"{dotted(path)}: the reference must say its default {shown}"


def test_every_table_stands_in_the_reference() -> None:
    for model in (Policy, SettingsTable):
        for table in tables(shape_of(model)):
            if not {"MODEL", "LANE"} & set(table):
                assert f"[{'.'.join(table)}]" in REFERENCE, table


def test_every_key_is_described() -> None:
    for model in (Policy, SettingsTable):
        for path, leaf in leaves(shape_of(model), NAMES):
            assert leaf.description, dotted(path)


def test_every_bound_has_a_default_and_a_reason() -> None:
    for name, field in Bounds.model_fields.items():
        assert not field.is_required(), name
        assert field.description, name


def test_the_example_writes_the_defaults_of_the_bounds() -> None:
    settings = load_settings(ROOT / "gateway.example.toml")
    assert settings.bounds == Bounds()
