"""Bodies as they go over the wire, read again by parsers that are not ours."""

from __future__ import annotations

import base64
import json
from email import message_from_bytes
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.openapi.bodies import BINARY, FORM, JSON, MULTIPART, TEXT, Body, Part
from gateway.upstreams.openapi.parameters import Parameter

PNG = b"\x89PNG\r\n\x1a\n\x00--"


def written(kind: str, value: Any, **more: Any) -> tuple[bytes, str]:
    body, headers = Body(kind, "x/y", "body", **more).written({"body": value})
    assert list(headers) == ["content-type"]
    return body, headers["content-type"]


def parts(value: Any, **kinds: Part) -> list[Message]:
    body, kind = written(MULTIPART, value, parts=kinds)
    message = message_from_bytes(b"Content-Type: multipart/form-data;" + kind.partition(";")[2].encode() + b"\r\n\r\n" + body)
    assert not message.defects
    return message.get_payload()  # type: ignore[return-value]


def refused(kind: str, value: Any, **more: Any) -> bool:
    with pytest.raises(UpstreamFault) as caught:
        written(kind, value, **more)
    return caught.value.kind == "unsendable"


@pytest.mark.parametrize("value", [{"a": [1, None]}, [], None, "ü", 2**70])
def test_json_is_the_value_itself(value: Any) -> None:
    body, kind = written(JSON, value)
    assert (json.loads(body), kind) == (value, "x/y")


def test_a_form_repeats_lists_writes_deep_values_as_json_and_leaves_out_null() -> None:
    body, _ = written(FORM, {"a": [1, "x&y"], "b": {"c": 1}, "d": None, "e": "ü=", "f": [{"g": 1}]})
    assert parse_qsl(body.decode("ascii")) == [("a", "1"), ("a", "x&y"), ("b", '{"c":1}'), ("e", "ü="), ("f", '[{"g":1}]')]


def test_a_forms_fields_are_written_as_their_encoding_says() -> None:
    styles = {"a": Parameter("a", "a", "query", "pipeDelimited", False), "b": Parameter("b", "b", "query", "deepObject")}
    body, _ = written(FORM, {"a": [1, 2], "b": {"c": 1}}, styles=styles)
    assert parse_qsl(body.decode("ascii")) == [("a", "1|2"), ("b[c]", "1")]


def test_each_field_of_a_multipart_form_is_a_part_of_its_kind() -> None:
    given = {"photo": base64.b64encode(PNG).decode(), "text": "ü\r\n--", "many": ["a", "b"], "about": {"a": 1}, "list": [{"b": 2}], "n": 5}
    found = parts(given, photo=Part(BINARY, "image/png"), list=Part(JSON))
    assert [(one.get_param("name", header="content-disposition"), one.get_content_type()) for one in found] == [
        ("photo", "image/png"), ("text", "text/plain"), ("many", "text/plain"), ("many", "text/plain"), ("about", "application/json"),
        ("list", "application/json"), ("n", "text/plain"),
    ]  # fmt: skip
    contents = [one.get_payload(decode=True) for one in found]
    assert contents == [PNG, "ü\r\n--".encode(), b"a", b"b", b'{"a":1}', b'[{"b":2}]', b"5"]
    assert [one.get_filename() for one in found] == ["photo", *[None] * 6]


def test_no_name_and_no_content_makes_a_part_of_its_own() -> None:
    hostile = 'a"\r\nContent-Type: x\r\n\r\n--'
    (found,) = parts({hostile: "--x\r\nContent-Disposition: form-data; name=b\r\n\r\nc"})
    assert found.get_payload(decode=True).startswith(b"--x")  # type: ignore[union-attr]
    assert found.get_content_type() == "text/plain"
    (found,) = parts({'a"; filename="x': "b"})
    assert found.get_filename() is None


def test_the_boundary_is_another_each_time() -> None:
    assert written(MULTIPART, {"a": "b"})[1] != written(MULTIPART, {"a": "b"})[1]


def test_texts_are_utf_8_and_bytes_come_as_base64() -> None:
    assert written(TEXT, "ü")[0] == "ü".encode()
    assert written(TEXT, 5)[0] == b"5"
    assert written(BINARY, base64.b64encode(PNG).decode())[0] == PNG


@pytest.mark.parametrize(
    ("kind", "value"),
    [(FORM, []), (MULTIPART, "x"), (TEXT, None), (TEXT, {}), (BINARY, "not base64!"), (BINARY, "YQ"), (BINARY, 5), (BINARY, None)],
)
def test_a_value_of_another_kind_is_refused(kind: str, value: Any) -> None:
    assert refused(kind, value)


def test_a_field_of_another_kind_is_refused() -> None:
    assert refused(MULTIPART, {"a": "?"}, parts={"a": Part(BINARY)})
    assert refused(MULTIPART, {"a": {}}, parts={"a": Part(TEXT)})


def test_an_absent_body_sends_nothing_and_a_null_one_sends_null() -> None:
    body = Body(JSON, "application/json", "body")
    assert body.written({"other": 1}) == (b"", {})
    assert body.written({"body": None})[0] == b"null"


def test_a_spread_body_takes_its_fields_and_no_others() -> None:
    body = Body(JSON, "application/json", None, False, ("a", "b"))
    assert body.written({"a": 1, "id": 2})[0] == b'{"a":1}'
    assert body.written({"id": 2}) == (b"", {})
    assert Body(JSON, "application/json", None, True, ("a",)).written({})[0] == b"{}"
