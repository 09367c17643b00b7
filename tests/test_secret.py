"""A secret shows itself to nobody who doesn't ask."""

import dataclasses

import pytest

from gateway.secret import Secret


def test_a_secret_never_shows_itself():
    secret = Secret("hunter2")
    wrapped = dataclasses.make_dataclass("Wrapped", ["secret"], frozen=True)(secret)
    shown = [str(secret), repr(secret), f"{secret}", f"{secret!r}", "%s" % secret, repr([secret]), repr({"a": secret}), repr(wrapped)]  # noqa: UP031
    assert not any("hunter2" in text for text in shown)
    assert secret.reveal() == "hunter2"
    assert not hasattr(secret, "__dict__")


def test_secrets_are_equal_by_text_and_never_equal_to_text():
    assert Secret("ü") == Secret("ü")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    with pytest.raises(TypeError):
        hash(Secret("a"))
