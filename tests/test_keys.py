"""API keys: fresh each time, long enough to be unguessable, and known to others only by their hash."""

from __future__ import annotations

import hashlib

from gateway.doors.auth import RUN_TOKEN
from gateway.keys import hashed, make_key


def test_each_key_is_fresh_and_unguessable() -> None:
    keys = [make_key()[0] for _ in range(100)]
    assert len(set(keys)) == 100
    assert all(key.startswith("gwk_") and len(key) >= len("gwk_") + 43 for key in keys), "43 characters of base64url are 256 bits"


def test_a_key_comes_with_its_hash_in_the_form_of_settings() -> None:
    key, its = make_key()
    assert its == hashed(key) == hashlib.sha256(key.encode()).hexdigest()


def test_a_key_can_stand_in_a_header_and_is_never_taken_for_a_run_token() -> None:
    key, _ = make_key()
    assert key.isascii()
    assert key.isprintable()
    assert " " not in key
    assert not key.startswith(RUN_TOKEN)
