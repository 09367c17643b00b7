"""The key and the deadline, as every upstream sends them."""

from __future__ import annotations

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.sending import arguments_of, key_header, refuse_way, rfc3339
from tests.upstreams.origin import dispatch

KEY = "k" * 64


@pytest.mark.parametrize(
    ("send_as", "arguments", "header"),
    [
        (None, {"a": 1}, {}),
        (("argument", "request_id"), {"a": 1, "request_id": KEY}, {}),
        (("header", "Idempotency-Key"), {"a": 1}, {"idempotency-key": KEY}),
        (("header_quoted", "Idempotency-Key"), {"a": 1}, {"idempotency-key": f'"{KEY}"'}),
        (("meta", "key"), {"a": 1}, {}),
    ],
)
def test_the_key_goes_to_one_place(send_as, arguments, header):
    it = dispatch({"a": 1}, send_as=send_as)
    assert arguments_of(it) == arguments
    assert key_header(it) == header
    assert it.arguments == {"a": 1}


def test_a_way_that_an_upstream_has_not_is_refused():
    refuse_way(dispatch(send_as=None), "meta")
    refuse_way(dispatch(send_as=("header", "K")), "meta")
    with pytest.raises(UpstreamFault) as caught:
        refuse_way(dispatch(send_as=("meta", "key")), "meta")
    assert caught.value.kind == "unsendable"


def test_a_deadline_is_written_in_utc():
    assert rfc3339(1795975205007) == "2026-11-29T18:00:05.007Z"
