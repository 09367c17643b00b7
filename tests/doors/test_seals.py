"""Claims come back only as they were signed, for the purpose they were signed for."""

from __future__ import annotations

import pytest

from gateway.doors.seals import Seal

OLD, NEW = b"o" * 32, b"n" * 32
SEAL = Seal([NEW, OLD], b"tickets")


@pytest.mark.parametrize("claims", [b"", b"a", b'{"a":"\xc3\xa9"}', bytes(range(256))])
def test_claims_come_back_as_they_were(claims: bytes) -> None:
    token = SEAL.sealed(claims)
    assert SEAL.opened(token) == claims
    assert token.replace("-", "").replace("_", "").replace(".", "", 1).isalnum() or not claims


def test_every_secret_verifies_and_the_first_signs() -> None:
    assert SEAL.opened(Seal([OLD], b"tickets").sealed(b"a")) == b"a"
    assert Seal([OLD], b"tickets").opened(SEAL.sealed(b"a")) is None


def test_a_token_for_one_purpose_is_none_for_another() -> None:
    assert Seal([NEW], b"sessions").opened(SEAL.sealed(b"a")) is None


def test_no_other_spelling_and_no_changed_byte_is_taken() -> None:
    token = SEAL.sealed(b"some claims")
    claims, _, signature = token.partition(".")
    changed = [token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in range(len(token))]
    for wrong in (*changed, "", ".", token + ".", token + "=", claims, claims + ".", "." + signature, f"{claims}.{signature}.{signature}", "é.é"):
        assert SEAL.opened(wrong) is None, wrong
