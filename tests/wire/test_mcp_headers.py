"""Headers that repeat the body: what is sent is what the other side accepts, and each disagreement is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import mcp_headers
from gateway.wire.jsonrpc import Request, RpcError
from gateway.wire.mcp_headers import HeaderError, check_name, check_params, decoded, encoded, marked_arguments, mirrored

MESSAGES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "messages.json").read_text())
ACCOUNT = {"mcp-param-account": ("account",)}


def agrees(headers: dict[str, str], marked: mcp_headers.Marked, arguments: dict[str, Any]) -> bool:
    try:
        check_params(headers, marked, arguments, 1)
    except RpcError:
        return False
    return True


# -- values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("us-west1", "us-west1"),
        ("acc 1", "acc 1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?open", "=?base64?open"),
        ("close?=", "close?="),
        ("", "=?base64??="),
    ],
)
def test_a_value_is_encoded_as_the_specification_shows(value: str, sent: str) -> None:
    assert encoded(value) == sent
    assert decoded(sent) == value


@given(st.text())
def test_any_text_survives_a_header(value: str) -> None:
    sent = encoded(value)
    assert all("\x20" <= char <= "\x7e" for char in sent)
    assert decoded(sent.strip(" \t")) == value


@pytest.mark.parametrize(
    "sent", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", "=?base64?SGVsbG9=?=", "=?base64?é?=", "é", "a\x00b", "a\r\nb"]
)
def test_what_is_not_canonical_or_not_ascii_is_refused(sent: str) -> None:
    with pytest.raises(HeaderError):
        decoded(sent)


@pytest.mark.parametrize("sent", ["=?base64?=", "SGVsbG8=", "=?BASE64?SGVsbG8=?=", "a\tb"])
def test_what_lacks_a_marker_is_literal(sent: str) -> None:
    assert decoded(sent) == sent


# -- names ----------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_no_text_agrees_with_no_header() -> None:
    request = Request(1, "tools/call", {"name": 5})
    for sent in ({"mcp-name": "5"}, {}):
        with pytest.raises(RpcError):
            check_name({"mcp-method": "tools/call", **sent}, request)


def test_another_method_or_name_is_told_under_the_requests_id() -> None:
    for sent in ({"mcp-method": "tools/list", "mcp-name": "a"}, {"mcp-method": "tools/call", "mcp-name": "b"}):
        with pytest.raises(RpcError) as caught:
            check_name(sent, Request(7, "tools/call", {"name": "a"}))
        assert (caught.value.code, caught.value.id) == (-32020, 7)


def test_a_name_header_on_a_method_that_names_nothing_is_ignored() -> None:
    check_name({"mcp-method": "tools/list", "mcp-name": "x"}, Request(1, "tools/list", {}))


# -- arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ({"mcp-param-account": "acc 1"}, {"account": "acc 1"}),
        ({"mcp-param-account": " acc 1\t"}, {"account": "acc 1"}),
        ({"mcp-param-account": "=?base64?YWNjIDE=?="}, {"account": "acc 1"}),
        ({"mcp-param-account": ""}, {"account": ""}),
        ({"mcp-param-account": "42"}, {"account": 42}),
        ({"mcp-param-account": "42.0"}, {"account": 42}),
        ({"mcp-param-account": "-7"}, {"account": -7.0}),
        ({"mcp-param-account": "true"}, {"account": True}),
        ({}, {}),
        ({}, {"account": None}),
        ({}, {"account": ["the schema's matter"]}),
        ({}, {"account": 1.5}),
        ({"mcp-param-other": "x"}, {}),
    ],
)
def test_a_header_that_agrees_passes(sent: dict[str, str], arguments: dict[str, Any]) -> None:
    assert agrees(sent, ACCOUNT, arguments)


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ({}, {"account": "acc 1"}),
        ({}, {"account": ""}),
        ({"mcp-param-account": "acc 2"}, {"account": "acc 1"}),
        ({"mcp-param-account": "ACC 1"}, {"account": "acc 1"}),
        ({"mcp-param-account": "x"}, {}),
        ({"mcp-param-account": "null"}, {"account": None}),
        ({"mcp-param-account": "=?base64?YWNjIDE?="}, {"account": "acc 1"}),
        ({"mcp-param-account": "43"}, {"account": 42}),
        ({"mcp-param-account": "43"}, {"account": 42.0}),
        ({"mcp-param-account": "9007199254740992"}, {"account": 9007199254740993}),
        ({"mcp-param-account": "4_2"}, {"account": 42}),
        ({"mcp-param-account": "1"}, {"account": True}),
        ({"mcp-param-account": "True"}, {"account": True}),
        ({}, {"account": False}),
        ({}, {"account": 0}),
    ],
)
def test_a_header_that_is_missing_or_disagrees_is_refused(sent: dict[str, str], arguments: dict[str, Any]) -> None:
    assert not agrees(sent, ACCOUNT, arguments)


def test_a_nested_argument_is_read_at_its_exact_path() -> None:
    marked = {"mcp-param-zip": ("address", "zip")}
    assert agrees({"mcp-param-zip": "10115"}, marked, {"address": {"zip": "10115"}, "zip": "1"})
    assert agrees({}, marked, {"address": "10115"})
    assert not agrees({}, marked, {"address": {"zip": "10115"}})


def test_a_disagreement_is_told_under_the_requests_id() -> None:
    with pytest.raises(RpcError) as caught:
        check_params({}, ACCOUNT, {"account": "a"}, 7)
    assert (caught.value.code, caught.value.id) == (-32020, 7)


# -- schemas --------------------------------------------------------------------------------------------------------------


def test_the_captured_schema_marks_its_argument() -> None:
    pay = MESSAGES["2026 listed"]["result"]["tools"][1]
    assert marked_arguments(pay["inputSchema"]) == ACCOUNT
    for bare in ({"type": "object"}, {"properties": 5, "$defs": []}, {"properties": {"a": True}}):
        assert marked_arguments(bare) == {}


def test_a_mark_is_found_down_a_chain_of_properties_and_data_is_no_schema() -> None:
    zip_code = {"type": "integer", "x-mcp-header": "Zip"}
    schema = {
        "properties": {
            "address": {"type": "object", "properties": {"zip": zip_code}},
            "x-mcp-header": {"type": "string", "default": {"x-mcp-header": "no"}},
        },
        "examples": [{"x-mcp-header": "no"}],
    }
    assert marked_arguments(schema) == {"mcp-param-zip": ("address", "zip")}


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "Root", "type": "string"},
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "a\r\nb"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "é"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 5}}},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string", "null"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}},
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"properties": {"a": {"items": {"properties": {"b": {"type": "string", "x-mcp-header": "A"}}}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {"patternProperties": {"^a": {"type": "string", "x-mcp-header": "A"}}},
        {"$defs": {"t": {"type": "string", "x-mcp-header": "A"}}},
        {"if": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
    ],
)
def test_a_mark_that_the_protocol_forbids_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(HeaderError):
        marked_arguments(schema)


# -- what a client sends --------------------------------------------------------------------------------------------------


def test_a_request_is_mirrored_as_captured() -> None:
    request = MESSAGES["2025 bare call"]
    assert mirrored(request, "2026-07-28", ACCOUNT) == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "pay",
        "mcp-param-account": "acc 1",
    }
    assert mirrored(MESSAGES["2026 list"], "2026-07-28", {}) == {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


@given(st.one_of(st.none(), st.text(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1)), st.text(min_size=1))
def test_what_a_client_mirrors_a_server_accepts(value: Any, name: str) -> None:
    request = {"method": "tools/call", "params": {"name": name, "arguments": {"account": value}}}
    headers = mirrored(request, "2026-07-28", ACCOUNT)
    assert agrees(headers, ACCOUNT, {"account": value})
    check_name(headers, Request(1, "tools/call", {"name": name}))


@pytest.mark.parametrize("value", [2**53, -(2**53), 1.5, [], {}])
def test_an_argument_that_no_header_carries_is_not_sent(value: Any) -> None:
    with pytest.raises(HeaderError):
        mirrored({"method": "tools/call", "params": {"name": "pay", "arguments": {"account": value}}}, "2026-07-28", ACCOUNT)


@pytest.mark.parametrize("value", [2**53 - 1, -(2**53) + 1])
def test_the_last_safe_integers_are_sent(value: int) -> None:
    request = {"method": "tools/call", "params": {"name": "pay", "arguments": {"account": value}}}
    assert mirrored(request, "2026-07-28", ACCOUNT)["mcp-param-account"] == str(value)
