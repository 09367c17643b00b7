"""Credentials are what they are given to be, and don't show themselves."""

from __future__ import annotations

import pytest

from gateway.upstreams.credentials import Credentials
from gateway.upstreams.oauth import Tokens


def test_the_query_is_encoded_and_cannot_add_a_parameter():
    assert Credentials(query={"api key": "a&b=c#d", "x": "ü"}).query_text == "api%20key=a%26b%3Dc%23d&x=%C3%BC"


@pytest.mark.parametrize(
    ("credentials", "names"),
    [
        (Credentials(), set()),
        (Credentials({"X-Key": "s"}), {"x-key"}),
        (Credentials(tokens=Tokens("http://id/", "me", "s3cret")), {"authorization"}),
    ],
)
def test_the_headers_that_nobody_else_may_set(credentials, names):
    assert credentials.header_names == names


def test_nothing_shows_itself():
    assert "s3cret" not in repr(Credentials({"a": "s3cret"}, {"b": "s3cret"}, Tokens("http://id/", "me", "s3cret")))
