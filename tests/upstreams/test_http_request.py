"""How an HTTP tool's arguments become a request, and what is refused before a byte leaves."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import UpstreamFault
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.http_request import Form, HttpTool
from gateway.wire.json import parse
from tests.upstreams.origin import dispatch


def form(path: str = "/orders/{order}", method: str = "POST", auth=None, **more) -> Form:
    more = {"sends_body": method == "POST"} | more
    return Form(HttpTool("pay", "Pays.", method, path, {"type": "object"}, **more), "https://shop.test/v1/", Credentials(auth or {}))


def filled(it: Form, arguments=None, **more):
    """The request read again: its URL, its headers, and its body, None where none is announced."""
    head, _, body = it.filled(dispatch(arguments or {}, **more), 5000).partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    _, target, version = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    assert (version, len(headers), "\n" in head.decode().replace("\r\n", "")) == ("HTTP/1.1", len(lines), False)
    assert headers.get("content-length", "0") == str(len(body))
    return f"https://{headers['host']}{target}", headers, body if "content-length" in headers else None


def refused(it: Form, arguments, **more) -> bool:
    with pytest.raises(UpstreamFault) as caught:
        filled(it, arguments, **more)
    return caught.value.kind == "unsendable"


def test_arguments_go_into_the_path_the_query_the_headers_and_the_rest_into_the_body():
    it = form(query=["dry"], headers={"X-Shop": "{shop}", "X-Version": "3"})
    url, headers, body = filled(it, {"order": "a b/ü?#%", "dry": True, "shop": "north", "amount": 5, "note": None})
    assert url == "https://shop.test/v1/orders/a%20b%2F%C3%BC%3F%23%25?dry=true"
    assert (headers["x-shop"], headers["x-version"], headers["content-type"]) == ("north", "3", "application/json")
    assert body == b'{"amount":5,"note":null}'


def test_a_query_repeats_lists_leaves_out_null_and_writes_objects_as_json():
    url, headers, body = filled(form("/orders", "GET", query=["a", "b", "c", "d", "e"]), {"a": [1, "x&y"], "b": "ü", "c": None, "d": {"e": 1}})
    assert url == "https://shop.test/v1/orders?a=1&a=x%26y&b=%C3%BC&d=%7B%22e%22%3A1%7D"
    assert body is None
    assert "content-type" not in headers


def test_without_a_body_an_argument_that_has_no_place_is_unsendable():
    assert refused(form("/orders", "GET", query=["a"]), {"a": 1, "admin": True})


def test_integers_of_any_size_and_numbers_are_written_exactly():
    url, _, body = filled(form("/orders/{order}"), {"order": 2**70, "amount": 2**70, "rate": 0.1})
    assert url.endswith(f"/orders/{2**70}")
    assert parse(body) == {"amount": 2**70, "rate": 0.1}


@pytest.mark.parametrize("value", ["", ".", "..", "../admin", "a/../b", "a\\..\\b", "./x", "a\r\nb", "a\nb", "a\0b", "\x7f", None, [], {}, ["a"]])
def test_a_path_argument_that_could_leave_its_segment_is_unsendable(value):
    assert refused(form(), {"order": value})


def test_a_missing_path_argument_is_unsendable():
    assert refused(form(), {})


@pytest.mark.parametrize(("a", "b"), [(".", "."), ("", "."), ("", "")])
def test_two_arguments_in_one_segment_do_not_make_dots_together(a, b):
    assert refused(form("/x/{a}{b}/y"), {"a": a, "b": b})


def test_dots_inside_a_segment_are_fine():
    assert filled(form(), {"order": "..a.b.."})[0].endswith("/orders/..a.b..")


def test_already_encoded_text_is_encoded_again():
    assert filled(form(), {"order": "%2e%2e%2f"})[0].endswith("/orders/%252e%252e%252f")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_no_path_argument_adds_a_segment_a_query_or_a_fragment(value):
    try:
        url = urlsplit(filled(form(), {"order": value})[0])
    except UpstreamFault:
        return
    assert url.path.count("/") == 3
    assert url.path.startswith("/v1/orders/")
    assert not {url.path.rpartition("/")[2]} & {"", ".", ".."}
    assert (url.netloc, url.query, url.fragment) == ("shop.test", "", "")


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "ü", "\0", None, ["a"], {}])
def test_a_header_argument_that_could_end_the_header_is_unsendable(value):
    assert refused(form("/x", headers={"X-Shop": "{shop}"}), {"shop": value})


def test_an_absent_header_argument_sends_no_header():
    assert "x-shop" not in filled(form("/x", headers={"X-Shop": "{shop}"}), {})[1]


def test_a_header_from_an_argument_cannot_replace_the_upstreams_credentials_or_ours():
    names = {"AUTHORIZATION": "{x}", "Gateway-Deadline": "{x}", "Idempotency-key": "{x}", "Accept-Encoding": "{x}"}
    it = form("/x", headers=names, auth={"Authorization": "Bearer s"})
    _, headers, _ = filled(it, {"x": "stolen"}, send_as=("header", "Idempotency-Key"))
    assert "stolen" not in headers.values()
    assert headers["authorization"] == "Bearer s"


def test_the_deadline_travels_absolute_and_relative():
    _, headers, _ = filled(form("/x"))
    assert headers["gateway-deadline"] == "2026-11-29T18:00:05.000Z"
    assert headers["gateway-remaining-ms"] == "5000"


@pytest.mark.parametrize(
    ("send_as", "where"),
    [
        (("header", "Idempotency-Key"), ("idempotency-key", "k" * 64)),
        (("header_quoted", "Idempotency-Key"), ("idempotency-key", '"' + "k" * 64 + '"')),
    ],
)
def test_the_key_goes_into_the_header_that_the_policy_names(send_as, where):
    assert where in filled(form("/x"), send_as=send_as)[1].items()


def test_the_key_goes_into_the_argument_that_the_policy_names():
    assert parse(filled(form("/x"), {"a": 1}, send_as=("argument", "request_id"))[2]) == {"a": 1, "request_id": "k" * 64}
    assert filled(form("/x/{request_id}"), send_as=("argument", "request_id"))[0].endswith("k" * 64)


def test_a_key_that_cannot_be_sent_as_wanted_stops_the_call():
    assert refused(form("/x"), {}, send_as=("meta", "key"))


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "HOST", "Authorization", "X-Fixed", "Gateway-Deadline", "a b", "a\r\nb", ""])
def test_a_key_cannot_be_sent_as_a_header_that_is_taken_or_none(name):
    assert refused(form("/x", headers={"x-fixed": "1"}, auth={"authorization": "s"}), {}, send_as=("header", name))


@pytest.mark.parametrize("where", [{"headers": {"Gateway-Deadline": "never"}}, {"auth": {"gateway-deadline": "never"}}])
def test_no_setting_replaces_the_deadline(where):
    assert filled(form("/x", **where))[1]["gateway-deadline"] == "2026-11-29T18:00:05.000Z"


def test_a_trace_does_not_replace_a_header_that_is_set():
    assert filled(form("/x", headers={"X-Request-Id": "fixed"}), trace={"x-request-id": "r1"})[1]["x-request-id"] == "fixed"


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "HOST", "Connection", "Expect", "a b", "a\r\nb", "a:", "", "ü"])
def test_a_header_that_frames_the_request_or_is_no_name_is_refused_at_once(name):
    for more in ({"headers": {name: "x"}}, {"headers": {name: "{x}"}}, {"auth": {name: "x"}}):
        with pytest.raises(ValueError, match="header"):
            form("/x", **more)


@pytest.mark.parametrize("value", ["s3cret\r\nx: y", "s3cret\n", "s3crét", "s3cret\0"])
def test_credentials_that_could_end_a_header_are_refused_at_once_and_not_shown(value):
    with pytest.raises(ValueError, match="authorization") as caught:
        form("/x", auth={"authorization": value})
    assert "s3cr" not in str(caught.value)


def test_credentials_in_the_query_go_with_every_request_and_no_argument_replaces_them():
    it = Form(HttpTool("a", "A.", "GET", "/a", {}, query=["q", "key"]), "https://shop.test", Credentials(query={"key": "s&x=1"}))
    assert filled(it, {"q": "key=2"})[0] == "https://shop.test/a?key=s%26x%3D1&q=key%3D2"
    assert filled(it, {"key": "mine"})[0] == "https://shop.test/a?key=s%26x%3D1"
    plain = Form(HttpTool("a", "A.", "GET", "/a", {}), "https://shop.test", Credentials(query={"key": "s"}))
    assert filled(plain)[0] == "https://shop.test/a?key=s"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GE T", "/x"), ("", "/x"), ("GET\r\n", "/x"), ("GET", "/a b"), ("GET", "/a\r\nb"), ("GET", "/ü"), ("GET", "/a#b")],
)
def test_a_method_or_path_that_cannot_stand_in_a_request_line_is_refused_at_once(method, path):
    with pytest.raises(ValueError, match=r"method|path"):
        form(path, method)


@pytest.mark.parametrize(
    ("method", "sends_body", "length"),
    [("GET", False, None), ("DELETE", False, None), ("POST", False, "0"), ("PUT", True, "2")],
)
def test_a_length_is_announced_where_a_body_is_expected(method, sends_body, length):
    assert filled(form("/x", method, sends_body=sends_body))[1].get("content-length") == length


def test_trace_headers_travel_and_nothing_else_of_the_trace_does():
    trace = {"traceparent": "00-a-b-01", "x-request-id": "r1", "tracestate": "a\r\nx: y", "authorization": "x"}
    _, headers, _ = filled(form("/x"), trace=trace)
    assert (headers["traceparent"], headers["x-request-id"]) == ("00-a-b-01", "r1")
    assert not {"tracestate", "authorization"} & set(headers)


def test_a_definition_has_what_the_tool_says_and_nothing_more():
    plain = HttpTool("a", "A.", "GET", "/a", {"type": "object"})
    rich = HttpTool("a", "A.", "GET", "/a", {"type": "object"}, output_schema={"x": 1}, annotations={"readOnlyHint": True})
    assert set(plain.definition()) == {"name", "description", "inputSchema"}
    assert rich.definition()["outputSchema"] == {"x": 1}
    assert rich.definition()["annotations"] == {"readOnlyHint": True}
