"""API keys: made here, shown once; everybody else knows only the hash."""

from __future__ import annotations

import secrets
from hashlib import sha256


def make_key() -> tuple[str, str]:
    """A fresh key, and the hash that settings hold."""
    key = f"gwk_{secrets.token_urlsafe(32)}"
    return key, hashed(key)


def hashed(key: str) -> str:
    """Lower-case hex SHA-256, the form of `sha256` in gateway.yaml."""
    return sha256(key.encode()).hexdigest()
