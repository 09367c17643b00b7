"""Claims that leave the gateway and come back: signed with its secrets, readable by anyone, each kind for one purpose only.

Every secret is tried, whether or not an earlier one fits, and each comparison takes constant time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence


class Seal:
    """`secrets`: the first signs, all verify. `purpose` keeps one kind of token from being taken for another."""

    def __init__(self, secrets: Sequence[bytes], purpose: bytes) -> None:
        self._secrets = tuple(secrets)
        self._purpose = purpose

    def sealed(self, claims: bytes) -> str:
        """Claims and signature, of A-Z a-z 0-9 _ - and one dot."""
        return _text(claims) + "." + _text(self._sign(self._secrets[0], claims))

    def opened(self, token: str) -> bytes | None:
        """The claims; None for a token that isn't ours, or isn't in the one spelling that we write."""
        try:
            claims, signature = map(_bytes, token.split("."))
        except ValueError:
            return None
        fits = [hmac.compare_digest(self._sign(secret, claims), signature) for secret in self._secrets]
        return claims if any(fits) else None

    def _sign(self, secret: bytes, claims: bytes) -> bytes:
        return hmac.digest(secret, self._purpose + b"\0" + claims, "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Raises ValueError; only what `_text` writes is read, so that one token has one spelling."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
    if _text(data) != text:
        raise ValueError("another spelling of base64url")
    return data
