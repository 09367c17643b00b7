"""Plain ASGI: bounded bodies, whole answers, departures."""

import asyncio
from typing import Any

import pytest

from gateway.doors import http
from gateway.doors.http import WHOLE, CallerLeft, Departure, header, read_body, send_json, send_problem, trace_of
from gateway.doors.problems import problem
from gateway.ports import RequestFault
from gateway.wire import json

pytestmark = pytest.mark.anyio


def receiving(*messages: dict[str, Any]) -> Any:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    return receive


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def answered(send: Any, *args: Any, method: str = "GET", request: tuple[tuple[bytes, bytes], ...] = ()) -> tuple[int, Any, bytes]:
    sent: list[dict[str, Any]] = []

    async def collect(message: dict[str, Any]) -> None:
        sent.append(message)

    await send({"headers": request, "method": method}, collect, *args)
    return sent[0]["status"], sent[0]["headers"], sent[1]["body"]


async def test_a_body_is_put_together_from_its_parts() -> None:
    assert await read_body({"headers": []}, receiving(part(b"ab", True), part(b"", True), part(b"c"))) == b"abc"


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    assert await read_body({"headers": [(b"content-length", b"3")]}, receiving(part(b"abc")), 3) == b"abc"


async def test_a_body_that_says_it_is_too_long_is_refused_unread() -> None:
    async def receive() -> Any:
        raise AssertionError("read")

    with pytest.raises(RequestFault) as caught:
        await read_body({"headers": [(b"content-length", b"4")]}, receive, 3)
    assert caught.value.reason == "request.too_large"


async def test_a_body_that_grows_too_long_is_refused_whatever_it_said() -> None:
    with pytest.raises(RequestFault) as caught:
        await read_body({"headers": [(b"content-length", b"1")]}, receiving(part(b"ab", True), part(b"cd", True)), 3)
    assert caught.value.reason == "request.too_large"


async def test_a_body_that_never_ends_is_given_up() -> None:
    with pytest.raises(RequestFault) as caught:
        await read_body({"headers": []}, receiving(part(b"a", True)), timeout_s=0.01)
    assert caught.value.reason == "request.malformed"


async def test_a_body_that_has_come_whole_is_read_without_a_timer() -> None:
    assert await read_body({"headers": [], WHOLE: True}, receiving(part(b"abc")), timeout_s=0) == b"abc"
    with pytest.raises(RequestFault):
        await read_body({"headers": []}, receiving(part(b"abc", True)), timeout_s=0)


async def test_a_caller_that_leaves_within_its_body_gets_no_answer() -> None:
    with pytest.raises(CallerLeft):
        await read_body({"headers": []}, receiving(part(b"a", True), {"type": "http.disconnect"}))


async def test_an_answer_is_whole_json_with_its_length() -> None:
    status, headers, body = await answered(send_json, 201, {"a": 2**70}, [(b"location", b"/x")])
    assert status == 201
    assert json.parse(body) == {"a": 2**70}
    assert dict(headers) == {b"content-type": b"application/json", b"content-length": str(len(body)).encode(), b"location": b"/x"}


async def test_an_answer_to_head_has_the_length_but_no_body() -> None:
    _, headers, body = await answered(send_json, 200, {"a": 1}, method="HEAD")
    assert dict(headers)[b"content-length"] == b"7"
    assert body == b""


async def test_a_problem_has_its_own_media_type_and_headers() -> None:
    status, headers, body = await answered(send_problem, problem(RequestFault("auth.required", "no")))
    assert status == 401
    assert dict(headers)[b"content-type"] == b"application/problem+json"
    assert dict(headers)[b"www-authenticate"].startswith(b"Bearer")
    assert json.parse(body)["reason"] == "auth.required"


@pytest.mark.parametrize(("sent", "echoed"), [(b"req-1", b"req-1"), (b"a b", None), (b"", None), (b"x" * 129, None), (b"a\r\nb", None)])
async def test_a_request_id_comes_back_if_it_is_one(sent: bytes, echoed: bytes | None) -> None:
    _, headers, _ = await answered(send_json, 200, {}, request=((b"x-request-id", sent),))
    assert dict(headers).get(b"x-request-id") == echoed


def test_the_trace_keeps_only_what_is_well_formed() -> None:
    parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert trace_of([(b"traceparent", parent), (b"x-request-id", b"r1"), (b"cookie", b"c")]) == {"traceparent": parent.decode(), "x-request-id": "r1"}
    assert trace_of([(b"traceparent", b"00-xyz"), (b"x-request-id", b"\x00")]) == {}


def test_a_header_is_its_first_value() -> None:
    assert header([(b"a", b"1"), (b"a", b"2")], b"a") == b"1"
    assert header([], b"a") is None


async def test_a_caller_that_leaves_while_waiting_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LISTEN_AFTER_S", 0)
    with Departure(receiving(part(b""), {"type": "http.disconnect"})) as gone:
        await asyncio.wait_for(gone, 5)


async def test_a_caller_that_stays_is_not_gone_and_nothing_is_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LISTEN_AFTER_S", 0)
    before = len(asyncio.all_tasks())
    with Departure(receiving()) as gone:
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before + 1
    await asyncio.sleep(0)
    assert not gone.done()
    assert len(asyncio.all_tasks()) == before


async def test_a_quick_answer_listens_for_nothing() -> None:
    async def receive() -> Any:
        raise AssertionError("listened")

    with Departure(receive):
        await asyncio.sleep(0)
