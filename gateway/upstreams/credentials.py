"""What an upstream is shown to know the gateway by. None of it goes into a message, a log line, a repr or the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from gateway.upstreams.oauth import Tokens


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """`headers` and the parameters of `query` go with every request as they are; `tokens`, if there are any, gives an Authorization."""

    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    tokens: Tokens | None = None

    @property
    def query_text(self) -> str:
        """The parameters as they stand in a URL, without a `?`."""
        return "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self.query.items())

    @property
    def header_names(self) -> frozenset[str]:
        """In lower case: what nobody else may set."""
        return frozenset(map(str.lower, self.headers)) | ({"authorization"} if self.tokens is not None else set())


NONE = Credentials()
