"""A document as an upstream: its server, which operations are wanted, and what its reader is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.policy.shapes import compile_shape
from gateway.source import SourceError
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.openapi import Api, read_api
from tests.upstreams.openapi.stage import FLEET, SHOP, file, own

KEY = Credentials({"x-shop-key": "s"})


def served(folder: Path, *servers: Any, base_url: str | None = None, **item: Any) -> Api:
    data = {"openapi": "3.1.0", "info": {}, "paths": {"/x": {"get": {}, **item}, "/y": {"get": {}}}}
    path = file(folder, {**data, "servers": list(servers)} if servers else data)
    return read_api(path, "api.json", base_url=base_url)


def named(api: Api) -> set[str]:
    return {it.name for it in api.operations}


@pytest.mark.parametrize(("path", "url", "count"), [(SHOP, "https://eu.shop.test/v2", 11), (FLEET, "https://fleet.test/api", 6)])
def test_a_document_becomes_tools_whose_schemas_can_be_judged(path: Path, url: str, count: int) -> None:
    api = own(path, credentials=KEY)
    assert (api.base_url, len(api.operations), api.remarks) == (url, count, ())
    for it in api.operations:
        assert compile_shape(it.input_schema)({"no_such_argument": 1})


# ---- which operations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("include", "exclude", "tools"),
    [
        (["GET /orders*"], [], {"getOrder", "findOrders"}),
        (["* /orders/*"], [], {"getOrder", "putOrder", "delete_orders_order_id"}),
        (["tag:goods"], ["*Photo"], {"createCategory", "setPrice"}),
        (["pay", "getO?der"], [], {"pay", "getOrder"}),
        ([], ["tag:*", "putFile"], {"addNote"}),
        (["GET /orders"], ["GET /orders"], set()),
    ],
)
def test_patterns_say_which_operations_are_wanted(include: list[str], exclude: list[str], tools: set[str]) -> None:
    assert named(own(SHOP, include=include, exclude=exclude)) == tools


def test_a_pattern_that_means_nothing_is_told() -> None:
    api = own(SHOP, include=["GET /orders", "get /orders", "tag:none"], exclude=["none"], credentials=KEY)
    assert len(api.remarks) == 3


def test_an_operation_that_cannot_be_a_tool_is_left_out_with_its_place_and_the_rest_work(tmp_path: Path) -> None:
    api = served(tmp_path, {"url": "https://a.test"}, post={"parameters": [{"name": "a", "in": "query", "style": "odd"}]}, put=5)
    assert named(api) == {"get_x", "get_y"}
    assert [(str(one.position), "POST /x is left out" in one.message) for one in api.remarks] == [("api.json:12:16", True), ("api.json:16:11", False)]


def test_what_is_not_wanted_is_not_told_of(tmp_path: Path) -> None:
    data = {"openapi": "3.1.0", "info": {}, "paths": {"/x": {"get": {"parameters": 5}}, "/y": {"get": {}}}}
    assert read_api(file(tmp_path, data), "x", base_url="http://a", include=["* /y"]).remarks == ()


def test_missing_credentials_are_told() -> None:
    (remark,) = own(SHOP).remarks
    assert "X-Shop-Key" in remark.message


# ---- servers ------------------------------------------------------------------------------------------------------------


def test_base_url_goes_before_the_documents_server(tmp_path: Path) -> None:
    assert served(tmp_path, {"url": "https://a.test"}, base_url="http://b.test").base_url == "http://b.test"


@pytest.mark.parametrize(
    "servers",
    [
        (),
        ({"url": "/v1"},),
        ({"url": "https://a.test?x=1"},),
        ({"url": "https://{region}.a.test"},),
        ({"url": "https://u:p@a.test"},),
        ({"url": "ftp://a.test"},),
        ({},),
        (5,),
    ],
)
def test_a_document_without_a_whole_server_wants_base_url(tmp_path: Path, servers: Any) -> None:
    with pytest.raises(SourceError) as caught:
        served(tmp_path, *servers)
    assert "base_url" in str(caught.value)
    assert served(tmp_path, *servers, base_url="https://b.test").base_url == "https://b.test"


def test_an_operation_that_is_served_elsewhere_is_left_out_unless_the_upstream_is_there(tmp_path: Path) -> None:
    root, elsewhere = {"url": "https://a.test"}, {"servers": [{"url": "https://up.a.test/"}]}
    assert named(served(tmp_path, root, **elsewhere)) == {"get_y"}
    assert named(served(tmp_path, root, base_url="https://up.a.test", **elsewhere)) == {"get_x", "get_y"}
    assert named(served(tmp_path, root, servers=[root], base_url="http://127.0.0.1:1")) == {"get_x", "get_y"}


def test_a_document_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        read_api(file(tmp_path, "[]"), "x")
