"""Parameters of an operation, and how their arguments become text: the styles of OpenAPI, after RFC 6570.

What a style leaves undefined (lists in lists), and an item that holds the style's own delimiter, is refused at the call: a server that
decodes first would read another list than the one that was judged. Every value is encoded for its place; only the delimiters stand as they
are. Source: OpenAPI 3.1.1 §4.8.12 (Parameter Object), 3.0.4 §4.7.12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from gateway.core.model import Json
from gateway.upstreams.http_request import path_text
from gateway.upstreams.sending import unsendable
from gateway.wire.json import dumps

STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles that are sent, by place; the first is what a parameter without one has."""

_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_HEADER: Final = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`name`: what the upstream calls it; `argument`: what the tool does. `as_json`: its value goes as one JSON text.

    All methods raise UpstreamFault `unsendable`. None means absent, but in a path, which has no place for that.
    """

    name: str
    argument: str
    place: str
    style: str = "form"
    explode: bool = True
    as_json: bool = False

    def in_path(self, value: Json) -> str:
        return self._joined(value, ",", lambda text: path_text(self.argument, text))

    def in_query(self, value: Json) -> Iterator[tuple[str, str]]:
        """Encoded (name, value) pairs. An exploded object gives its members under their own names."""
        if value is None:
            return
        if self.as_json or not isinstance(value, dict | list):
            yield quoted(self.name), quoted(self._text(value))
        elif self.style == "deepObject":
            yield from self._deep(quoted(self.name), value)
        elif not self.explode:
            if value:
                yield quoted(self.name), self._joined(value, _DELIMITERS[self.style], quoted)
        else:
            pairs = value.items() if isinstance(value, dict) else ((self.name, item) for item in value)
            yield from ((quoted(name), quoted(self._text(part))) for name, part in pairs)

    def in_header(self, value: Json) -> str:
        text = self._joined(value, ",", str)
        if not _HEADER.fullmatch(text):
            raise unsendable(f"argument {self.argument!r} can't be a header: it has characters other than visible ASCII and spaces")
        return text

    def in_cookie(self, value: Json) -> str:
        if self.explode and isinstance(value, dict | list) and not self.as_json:
            raise unsendable(f"argument {self.argument!r} can't be a cookie: the interface says of no way to put a list or object into one")
        return f"{quoted(self.name)}={self._joined(value, ',', quoted)}"

    def _joined(self, value: Json, delimiter: str, encode: Callable[[str], str]) -> str:
        if self.as_json or not isinstance(value, dict | list):
            return encode(self._text(value))
        parts = [[name, self._text(part)] for name, part in value.items()] if isinstance(value, dict) else [[self._text(item)] for item in value]
        equals = "=" if self.explode else delimiter
        for text in (text for part in parts for text in part):
            if unquote(delimiter) in text or (isinstance(value, dict) and unquote(equals) in text):
                raise unsendable(f"argument {self.argument!r} can't be sent: an item holds {unquote(delimiter)!r}, which stands between items")
        return delimiter.join(equals.join(map(encode, part)) for part in parts)

    def _deep(self, name: str, value: Json) -> Iterator[tuple[str, str]]:
        if not isinstance(value, dict):
            raise unsendable(f"argument {self.argument!r} is wanted as an object")
        for key, part in value.items():
            inside = f"{name}%5B{quoted(key)}%5D"
            yield from self._deep(inside, part) if isinstance(part, dict) else [(inside, quoted(self._text(part)))]

    def _text(self, value: Json) -> str:
        if self.as_json:
            return dumps(value).decode()
        if value is None or isinstance(value, dict | list):
            raise unsendable(f"argument {self.argument!r} can't be sent: where it stands, there is no way to write null, or a list or object inside")
        return value if isinstance(value, str) else dumps(value).decode()


def quoted(text: str) -> str:
    return quote(text, safe="")
