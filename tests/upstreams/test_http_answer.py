"""An HTTP answer as a CallToolResult: nothing lost, nothing guessed."""

from __future__ import annotations

import base64

import pytest

from gateway.upstreams.http_answer import answer_of

JSON = {"Content-Type": "application/json"}


def result(body: bytes, kind: str | None = None, status: int = 200):
    return answer_of(status, {} if kind is None else {"Content-Type": kind}, body, "shop.pay").result


def test_a_json_object_is_text_and_structure_with_exact_integers():
    body = b'{"id": 12345678901234567890123,  "x": 1.0}'
    found = result(body, "application/json")
    assert found["content"] == [{"type": "text", "text": body.decode()}]
    assert found["structuredContent"] == {"id": 12345678901234567890123, "x": 1.0}
    assert found["isError"] is False


@pytest.mark.parametrize("body", [b"[1]", b"3", b'"x"', b"null", b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":' * 99 + b"1" + b"}" * 99, b""])
def test_whatever_is_no_json_object_has_no_structure(body):
    assert "structuredContent" not in result(body, "application/json")


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/html", b"<p>", "<p>"),
        ("text/plain; charset=iso-8859-1", b"\xfc", "ü"),
        ("text/plain; charset=UTF-8", "ü".encode(), "ü"),
        ("application/problem+json", b"[]", "[]"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        (None, "ü".encode(), "ü"),
    ],
)
def test_text_is_one_text_block(kind, body, text):
    assert result(body, kind)["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("image/png", b"\x89PNG"),
        ("application/octet-stream", b"plain"),
        ("text/plain", b"\xff\xfe"),
        ("text/plain; charset=idna", b"x"),
        (None, b"\xff"),
    ],
)
def test_anything_else_is_a_base64_resource(kind, body):
    (block,) = result(body, kind)["content"]
    assert block["type"] == "resource"
    assert base64.b64decode(block["resource"]["blob"]) == body
    assert block["resource"]["mimeType"] == (kind or "application/octet-stream")
    assert block["resource"]["uri"] == "tool:shop.pay"


@pytest.mark.parametrize(("status", "error"), [(200, False), (204, False), (299, False), (302, True), (400, True), (500, True)])
def test_only_a_success_is_no_error(status, error):
    assert result(b"", status=status)["isError"] is error


def test_an_empty_success_has_no_content_and_an_empty_error_says_its_status():
    assert result(b"", status=204)["content"] == []
    assert "404" in result(b"", status=404)["content"][0]["text"]


def test_a_redirect_names_where_it_leads_and_no_more_than_fits():
    answer = answer_of(302, {"Location": "http://evil.test/" + "x" * 5000}, b"<html>", "shop.pay")
    (block,) = answer.result["content"]
    assert "http://evil.test/" in block["text"]
    assert len(block["text"]) < 600


def test_the_wait_counts_for_errors_only():
    assert answer_of(503, {"Retry-After": "3"}, b"", "t").retry_after_ms == 3000
    assert answer_of(200, {"Retry-After": "3"}, b"", "t").retry_after_ms is None
