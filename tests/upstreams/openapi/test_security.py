"""Which credentials a document wants and the upstream hasn't."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.oauth import Tokens
from gateway.upstreams.openapi.operations import Found, find
from gateway.upstreams.openapi.security import missing
from tests.upstreams.openapi.stage import document

SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "param": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "Basic"},
    "oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://id/token", "scopes": {}}}},
    "code": {"type": "oauth2", "flows": {"authorizationCode": {}}},
    "again": {"$ref": "#/components/securitySchemes/key"},
    "lost": {"$ref": "#/none"},
}
AUTHORIZED = Credentials({"authorization": "Bearer x"})


def wanted(security: Any, credentials: Credentials = NONE, root: Any = None) -> list[str]:
    operation = {} if security is None else {"security": security}
    data = {"paths": {"/a": {"get": operation}, "/b": {"get": operation}}, "components": {"securitySchemes": SCHEMES}}
    it = document(data if root is None else {**data, "security": root})
    found = [one for one in find(it) if isinstance(one, Found)]
    return [one.message for one in missing(it, found, credentials)]


@pytest.mark.parametrize(
    ("scheme", "told", "credentials"),
    [
        ("key", "api_key: {header: X-Key", Credentials({"x-key": "s"})),
        ("param", "api_key: {query: key", Credentials(query={"key": "s"})),
        ("cookie", "Cookie: sid=", Credentials({"cookie": "sid=1"})),
        ("bearer", "bearer:", AUTHORIZED),
        ("basic", "basic:", Credentials({"authorization": "Basic x"})),
        ("oauth", "token_url: https://id/token", Credentials(tokens=Tokens("http://id/", "a", "b"))),
        ("code", "bearer:", AUTHORIZED),
        ("again", "api_key: {header: X-Key", Credentials({"x-key": "s"})),
        ("lost", "lost", AUTHORIZED),
        ("unknown", "unknown", AUTHORIZED),
    ],
)
def test_what_is_missing_is_told_once_with_what_to_write(scheme: str, told: str, credentials: Credentials) -> None:
    (message,) = wanted([{scheme: []}])
    assert told in message
    assert "and 1 more" in message
    assert wanted([{scheme: []}], credentials) == []


def test_one_alternative_is_enough_and_all_of_its_schemes_are_needed() -> None:
    both = [{"key": [], "bearer": []}]
    assert wanted([*both, {"param": []}], Credentials(query={"key": "s"})) == []
    assert len(wanted(both, AUTHORIZED)) == 1
    assert wanted(both, Credentials({"authorization": "Bearer x", "x-key": "s"})) == []


def test_an_operation_without_a_say_has_the_documents_and_one_that_wants_nothing_wants_nothing() -> None:
    assert len(wanted(None, root=[{"key": []}])) == 1
    assert wanted([], root=[{"key": []}]) == []
    assert wanted([{}, {"key": []}]) == []
    assert wanted(None) == []
    assert wanted("x") == []
