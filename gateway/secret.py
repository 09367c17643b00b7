"""A text that doesn't show itself."""

from __future__ import annotations

import hmac


class Secret:
    """A text that is only shown by `reveal()`; two are compared in constant time. Not hashable."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())
