"""The OpenAPI 3.1 document, put together from the operations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from gateway.doors.rest.operation import Operation
from gateway.doors.rest.schemas import COMPONENTS, COUNT, NAME, refer, shown

_OPEN_TO_ALL: dict[str, Any] = {
    "/healthz": {"get": {"summary": "Does the process answer?", "security": [], "responses": {}}},
    "/readyz": {"get": {"summary": "Can it take calls?", "security": [], "responses": {}}},
    "/openapi.json": {"get": {"summary": "This document", "security": [], "responses": {}}},
}
_STATUS = shown({"status": {"type": "string"}})


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Every path with its operations; a problem is every operation's default answer."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    for path, item in _OPEN_TO_ALL.items():
        answer = {"type": "object"} if path == "/openapi.json" else _STATUS
        described = {**item["get"], "operationId": path[1:].partition(".")[0], "responses": _responses({200: answer})}
        paths[path] = {"get": described}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tool call gateway", "version": version},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {"schemas": COMPONENTS, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _described(operation: Operation) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", operation.path)
    where = [{"name": name, "in": "path", "required": True, "schema": COUNT if name == "turn" else NAME} for name in names]
    where += [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in operation.query.items()]
    body = {} if operation.takes is None else {"requestBody": {"required": False, "content": _json(operation.takes)}}
    return {
        "operationId": operation.perform.__name__,
        "summary": operation.summary,
        "parameters": where,
        **body,
        "responses": _responses(operation.answers),
    }


def _responses(answers: Any) -> dict[str, Any]:
    described = {str(status): {"description": HTTPStatus(status).phrase, "content": _json(schema)} for status, schema in answers.items()}
    problem = {"description": "A problem (RFC 9457)", "content": {"application/problem+json": {"schema": refer("Problem")}}}
    return {**described, "default": problem}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
