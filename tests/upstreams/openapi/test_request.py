"""Calls of operations become requests: every argument in its place, and none in another's."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.credentials import Credentials
from gateway.upstreams.oauth import Tokens
from gateway.upstreams.openapi.request import Operation
from tests.upstreams.openapi.stage import FLEET, SHOP, filled, one, own, refused, sending

TOOLS = {it.name: it for api in (own(SHOP), own(FLEET)) for it in api.operations}


def parameter(name: str, place: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, **({"required": True} if place == "path" else {}), **more}


def taking(*parameters: dict[str, Any], path: str = "/x", **more: Any) -> Operation:
    return one({"parameters": list(parameters)}, path, "get", **more)


@pytest.mark.parametrize(
    ("tool", "arguments", "target"),
    [
        ("getOrder", {"order_id": "a/b ü", "fields": ["id", "lines"]}, "/v1/orders/a%2Fb%20%C3%BC?fields=id,lines"),
        ("findOrders", {}, "/v1/orders"),
        ("findOrders", {"filter": {"state": "open"}, "ids": [1, 2]}, "/v1/orders?filter%5Bstate%5D=open&ids=1%7C2"),
        ("findOrders", {"state": ["open", "paid"], "page": {"offset": 5, "limit": 1}}, "/v1/orders?state=open&state=paid&offset=5&limit=1"),
        ("findOrders", {"words": ["a", "b"], "near": {"lat": 1.5}}, "/v1/orders?words=a%20b&near=%7B%22lat%22%3A1.5%7D"),
        ("report", {"path_id": 7, "format": "csv", "query_id": "x", "filter": "y"}, "/v1/reports/7.csv?id=x&%24filter=y"),
    ],
)
def test_parameters_go_into_the_path_and_the_query(tool: str, arguments: dict[str, Any], target: str) -> None:
    assert filled(TOOLS[tool], arguments).target == target


def test_parameters_go_into_headers_and_cookies() -> None:
    seen = filled(TOOLS["findOrders"], {"session": "a b;c", "X-Parts": ["x", "y"]})
    assert (seen.headers["cookie"], seen.headers["x-parts"]) == ("session=a%20b%3Bc", "x,y")
    assert not {"cookie", "x-parts"} & set(filled(TOOLS["findOrders"], {"X-Parts": None}).headers)


@pytest.mark.parametrize(
    ("tool", "arguments", "content_type", "body"),
    [
        ("createOrder", {"lines": [{"sku": "a", "amount": 1}], "note": None}, "application/json", b'{"note":null,"lines":[{"sku":"a","amount":1}]}'),
        ("putOrder", {"order_id": "1", "lines": []}, "application/json", b'{"lines":[]}'),
        ("pay", {"body": {"kind": "card"}}, "application/json", b'{"kind":"card"}'),
        ("setPrice", {"sku": "a", "amount": 1.5, "tags": ["x", "y"], "codes": ["p", "q"]}, "application/x-www-form-urlencoded",
         b"amount=1.5&tags=x&tags=y&codes=p%7Cq"),
        ("addNote", {"body": "ü"}, "text/plain; charset=utf-8", "ü".encode()),
        ("putFile", {"name": "a", "body": "AP8="}, "application/octet-stream", b"\x00\xff"),
        ("cars/update", {"car": 1, "name": None}, "application/merge-patch+json", b'{"name":null}'),
        ("calibrate", {"body": [1, 2.5]}, "application/json", b"[1,2.5]"),
    ],
)  # fmt: skip
def test_bodies_go_out_in_their_content_type(tool: str, arguments: dict[str, Any], content_type: str, body: bytes) -> None:
    seen = filled(TOOLS[tool], arguments)
    assert (seen.headers["content-type"], seen.body) == (content_type, body)


def test_without_a_body_no_content_type_goes_out() -> None:
    seen = filled(TOOLS["cars/update"], {"car": 1})
    assert ("content-type" in seen.headers, seen.headers["content-length"]) == (False, "0")
    assert "content-length" not in filled(TOOLS["delete_orders_order_id"], {"order_id": "1"}).headers


@pytest.mark.parametrize("value", ["", ".", "..", "../x", "a/../b", "a\\..\\b", "a\r\nb", "\0", None, {}, [], [".."]])
def test_a_path_argument_stays_in_its_segment(value: Any) -> None:
    assert refused(TOOLS["getOrder"], {"order_id": value})


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n", "ü", "\0", ["a\nb"]])
def test_no_argument_ends_a_header(value: Any) -> None:
    assert refused(TOOLS["findOrders"], {"X-Parts": value})


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_no_text_leaves_the_query_or_the_cookie_it_was_given_for(value: str) -> None:
    seen = filled(taking(parameter("q", "query"), parameter("c", "cookie")), {"q": value, "c": value})
    assert parse_qsl(urlsplit(seen.target).query, keep_blank_values=True) == [("q", value)]
    assert seen.headers["cookie"].count(";") == 0


# ---- what is somebody else's --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["state", "key", "other"])
def test_the_members_of_an_exploded_object_name_no_parameter_and_no_credential(member: str) -> None:
    operation = taking(parameter("page", "query"), parameter("state", "query"))
    more = {"credentials": Credentials(query={"key": "s3cret"})}
    if member == "other":
        assert filled(operation, {"page": {member: 1}}, **more).target == "/v1/x?key=s3cret&other=1"
    else:
        assert refused(operation, {"page": {member: 1}}, **more)


@pytest.mark.parametrize("name", ["Authorization", "X-Key", "Cookie", "Gateway-Deadline", "User-Agent", "Host", "Content-Type", "Accept"])
def test_what_the_gateway_or_its_credentials_fill_in_is_no_argument(name: str) -> None:
    credentials = Credentials({"x-key": "s3cret", "cookie": "s=1"}, {"q": "s3cret"}, Tokens("http://id/", "a", "b"))
    found = [parameter(name, "header"), parameter("s", "cookie"), parameter("q", "query"), parameter("left", "query")]
    assert list(taking(*found, credentials=credentials).input_schema["properties"]) == ["left"]  # type: ignore[arg-type]


def test_the_key_goes_where_the_policy_says_and_no_argument_takes_its_place() -> None:
    operation = taking(parameter("Idempotency-Key", "header"))
    assert filled(operation, {"Idempotency-Key": "mine"}, send_as=("header", "Idempotency-Key")).headers["idempotency-key"] == "k" * 64
    assert filled(operation, {}, send_as=("argument", "Idempotency-Key")).headers["idempotency-key"] == "k" * 64
    assert refused(TOOLS["addNote"], {"body": "x"}, send_as=("header", "Content-Type"))
    assert refused(TOOLS["addNote"], {"body": "x"}, send_as=("meta", "k"))
    body = filled(one(sending("application/json", {"properties": {"a": {}, "request_id": {}}})), {"a": 1}, send_as=("argument", "request_id")).body
    assert json.loads(body) == {"a": 1, "request_id": "k" * 64}


def test_the_deadline_and_the_trace_travel_as_for_every_tool() -> None:
    headers = filled(TOOLS["getOrder"], {"order_id": "1"}, trace={"x-request-id": "r1"}).headers
    assert (headers["gateway-remaining-ms"], headers["x-request-id"]) == ("5000", "r1")
