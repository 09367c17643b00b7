"""Documents for the tests: two of our own, small ones written as Python data, and requests read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.ports import UpstreamFault
from gateway.source import Position
from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.openapi import Api, read_api
from gateway.upstreams.openapi.document import Document, Node, Unusable
from gateway.upstreams.openapi.operations import Found, Reader, find, names
from gateway.upstreams.openapi.request import Operation
from tests.upstreams.origin import Seen, dispatch

DOCUMENTS = Path(__file__).parent / "documents"
SHOP, FLEET = DOCUMENTS / "shop.yaml", DOCUMENTS / "fleet.json"


def own(path: Path, **more: Any) -> Api:
    return read_api(path, path.name, **more)


def document(data: Mapping[str, Any], version: str = "3.1.0") -> Document:
    """A document that was read; every place is the first."""
    whole = {"openapi": version, "info": {}, "paths": {}, **data}
    return Document(Node(whole, ""), version.startswith("3.0"), lambda pointer: Position("x", 1, 1))


def read(paths: Mapping[str, Any], version: str = "3.1.0", credentials: Credentials = NONE, **more: Any) -> list[Operation]:
    """The operations of these paths. Raises Unusable."""
    it = document({"paths": paths, **more}, version)
    found = [one for one in find(it) if isinstance(one, Found)]
    reader = Reader(it, credentials)
    return [reader.read(one, name) for one, name in zip(found, names(found), strict=True)]


def one(operation: Mapping[str, Any], path: str = "/x", method: str = "post", **more: Any) -> Operation:
    (it,) = read({path: {method: operation}}, **more)
    return it


def sending(content_type: str, schema: Any, **media: Any) -> dict[str, Any]:
    """An operation that takes this body."""
    return {"requestBody": {"required": True, "content": {content_type: {"schema": schema, **media}}}}


def unusable(operation: Mapping[str, Any], path: str = "/x", method: str = "post", **more: Any) -> str:
    """Where the operation can't be used; from its own place on where that is inside it."""
    with pytest.raises(Unusable) as caught:
        one(operation, path, method, **more)
    return caught.value.pointer.removeprefix(f"/paths/{path.replace('/', '~1')}/{method}")


def filled(operation: Operation, arguments: Mapping[str, Any] | None = None, credentials: Credentials = NONE, **more: Any) -> Seen:
    """The request of one call, read again."""
    head, _, body = operation.form("https://api.test/v1", credentials).filled(dispatch(arguments or {}, **more), 5000).partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    method, target, _ = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(headers) == len(lines), "a header stands twice"
    assert "\n" not in head.decode().replace("\r\n", "")
    assert int(headers.get("content-length", "0")) == len(body)
    return Seen(method, target, headers, body)


def refused(operation: Operation, arguments: Mapping[str, Any], **more: Any) -> bool:
    with pytest.raises(UpstreamFault) as caught:
        filled(operation, arguments, **more)
    return caught.value.kind == "unsendable"


def file(folder: Path, data: Mapping[str, Any] | str, name: str = "api.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data, indent=1))
    return path
