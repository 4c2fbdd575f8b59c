"""docs/control-api.md has every route, field and code that there is, and no route that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp import web
from pydantic import BaseModel

from gateway.control import bodies
from gateway.control.api import control_application
from gateway.control.problems import STATUS

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs" / "control-api.md").read_text()
MODELS = [model for model in vars(bodies).values() if isinstance(model, type) and issubclass(model, bodies.Body) and model is not bodies.Body]


def served() -> set[tuple[str, str]]:
    app: web.Application = control_application(None)  # type: ignore[arg-type]
    return {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None and route.method != "HEAD"}


def test_every_route_is_in_the_reference_and_no_other() -> None:
    told = set(re.findall(r"^\| `(GET|POST) (/[^?`]*)", REFERENCE, re.MULTILINE))
    assert told == served()
    assert len(told) >= 26


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_of_a_body_is_in_the_reference(model: type[BaseModel]) -> None:
    assert [name for name in model.model_fields if f"`{name}`" not in REFERENCE] == []


def test_every_word_that_a_result_may_be_is_in_the_reference() -> None:
    properties = bodies.ResultsBody.model_json_schema()["properties"].values()
    enumerated = {word for schema in properties for option in schema.get("anyOf", ()) for word in option.get("enum", ())}
    assert len(enumerated) == 10
    assert [word for word in enumerated if f"`{word}`" not in REFERENCE] == []


def test_every_code_of_an_error_is_in_the_reference_and_no_other() -> None:
    rooms = [path.read_text() for room in ("control", "runs") for path in (ROOT / "gateway" / room).glob("*.py")]
    raised = set(re.findall(r"""\bProblem\(\s*\d+,\s*"(\w+)\"""", "".join(rooms))) | STATUS.keys()
    assert len(raised) >= 12
    told = {code for row in re.findall(r"^\| (`.*?) \| [\d, ]+ \|", REFERENCE, re.MULTILINE) for code in re.findall(r"`(\w+)`", row)}
    assert told == raised
