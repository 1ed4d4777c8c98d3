"""The OpenAPI document of the REST API, made of the table of routes. Source: OpenAPI 3.1; Flink's rest_v1_dispatcher.yml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from penstock import __version__
from penstock.hosting.rest.routes import Route

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_NUMBERS: Final = frozenset({"subtaskindex", "attempt", "checkpointid"})
_IDS: Final = frozenset({"jobid", "vertexid", "triggerid", "applicationid"})


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document, as JSON data."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock REST API",
            "description": "The REST API of Flink 2.3, answered by the driver of Penstock's jobs.",
            "version": __version__,
        },
        "servers": [{"url": "/v1"}, {"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Errors": {
                    "type": "object",
                    "required": ["errors"],
                    "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', route.path)}",
        "summary": route.summary,
        "parameters": [
            *(_parameter(name) for name in _PARAMETER.findall(route.path)),
            *({"name": name, "in": "query", "schema": {"type": "string"}} for name in route.query),
        ],
        "responses": {
            "2XX": {"description": "The answer.", "content": {"application/json": {}}},
            "default": {
                "description": "An error.",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}
                },
            },
        },
    }
    if route.changes:
        operation["security"] = [{}, {"token": []}]
    if route.method in {"POST", "PUT", "PATCH"}:
        body = {"application/json": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"content": body}
    return operation


def _parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in _NUMBERS:
        schema = {"type": "integer", "minimum": 0}
    elif name in _IDS:
        schema = {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}
