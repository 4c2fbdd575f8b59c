"""The OpenAPI document of the control plane, made from the table of operations and the models of bodies: for clients in other languages, and for tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from aiohttp import web
from pydantic.json_schema import models_json_schema

from gateway import __version__
from gateway.control.operations import EVERY, OPERATIONS, Operation
from gateway.control.views import answer

Json = dict[str, Any]

JSON = "application/json"
REF = "#/components/schemas/{model}"
ALWAYS = (400, 500, 503)
"""Statuses that any request can have: it can't be read, the gateway failed, the ledger or its clock does not allow it."""
MEANS = {
    400: "The request can't be read, or asks for what can't be.",
    401: "Over TCP: the token is missing or wrong.",
    404: "There is no such thing.",
    409: "What stands does not allow it.",
    413: "The body is too large.",
    500: "The gateway failed.",
    503: "Nothing can be written, or nothing is admitted now.",
}


@cache
def document() -> Json:
    bodies = [operation.body for operation in OPERATIONS if operation.body is not None]
    _, schemas = models_json_schema([(body, "validation") for body in bodies], ref_template=REF)
    paths: dict[str, Json] = {}
    for operation in EVERY:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "model-gateway control plane",
            "version": __version__,
            "description": "HTTP and JSON over a Unix socket, or over TCP with a token. Times are Unix milliseconds; what is unknown is an absent key.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas.get("$defs", {}), "Error": _error()},
        },
    }


def _operation(operation: Operation) -> Json:
    described: Json = {"operationId": operation.name, "summary": operation.does, "responses": _responses(operation)}
    parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", operation.path)] + [_parameter(name, "query") for name in operation.query]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        required = any(field.is_required() for field in operation.body.model_fields.values())
        described["requestBody"] = {"required": required, "content": {JSON: {"schema": {"$ref": REF.format(model=operation.body.__name__)}}}}
    return described


def _parameter(name: str, where: str) -> Json:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string", "minLength": 1 if where == "path" else 0}}


def _responses(operation: Operation) -> Json:
    given = {"type": "object", "required": list(operation.gives)} if operation.media == JSON else {"type": "string"}
    answered = {"content": {operation.media: {"schema": given}}}
    found: Json = {"200": {"description": "Done.", **answered}}
    if operation.makes:
        found["201"] = {"description": "Made.", **answered}
    statuses: Iterable[int] = sorted({*ALWAYS, *operation.refuses, 401, *((413,) if operation.body else ())})
    refused = {"content": {JSON: {"schema": {"$ref": REF.format(model="Error")}}}}
    found |= {str(status): {"description": MEANS[status], **refused} for status in statuses}
    if operation.ready:
        found["503"] = {"description": "Not now; the reasons are named.", **answered}
    return found


def _error() -> Json:
    names = ("code", "message", "problem", "cause", "mend")
    inner = {"type": "object", "required": list(names), "properties": {name: {"type": "string"} for name in names}}
    return {"type": "object", "required": ["error"], "properties": {"error": inner}}


async def show_document(_request: web.Request) -> web.Response:
    return answer(document())
