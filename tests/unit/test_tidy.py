"""The house rules that a reader relies on, held by reading the source: sizes, cards, names, and what must not stand in the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = sorted((ROOT / "gateway").rglob("*.py"))
PACKAGES = sorted(path.parent for path in SOURCE if path.name == "__init__.py" and path.parent != ROOT / "gateway")
FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 50
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "base", "common", "core"}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCE, ids=named)
def test_a_file_fits_in_one_reading(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long


@pytest.mark.parametrize("path", SOURCE, ids=named)
def test_a_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring and "TODO" not in docstring


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_a_rooms_card_lists_each_of_its_modules(package: Path) -> None:
    card = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = [path.name for path in package.iterdir() if (path.suffix == ".py" and path.name not in {"__init__.py", "__main__.py"})]
    missing = [name for name in modules if not re.search(rf"\b{re.escape(name.removesuffix('.py'))}\b", card)]
    assert not missing


@pytest.mark.parametrize("path", SOURCE, ids=named)
def test_a_module_is_named_by_what_it_is(path: Path) -> None:
    assert path.stem not in FORBIDDEN_NAMES


def test_the_project_speaks_of_itself_alone() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    forbidden = re.compile(
        "|".join(["/work" + "/main", "/work" + "/shared", r"\.\./" + "shared", "pypi" + r"\.org", "registry" + r"\.npmjs", "files" + r"\.pythonhosted"])
    )
    found = []
    for name in tracked:
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 2_000_000:
            found += [name for line in path.read_bytes().decode("utf-8", "replace").splitlines() if forbidden.search(line)][:1]
    assert not found
