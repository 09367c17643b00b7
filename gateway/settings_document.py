"""gateway.yaml while it is being turned into settings: checked data with secrets in place, and the mistakes so far.

What has a mistake is left out and the rest is judged all the same, so that one run shows everything there is to put right.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gateway.settings_schema import SECRETS
from gateway.settings_secrets import with_secrets
from gateway.source import Mistake, Source, child

_Value = TypeVar("_Value")


class Document:
    """The mistakes of one file. `folder` is where relative paths start; `root` is the file's mapping."""

    def __init__(self, source: Source, mistakes: list[Mistake], environ: Mapping[str, str], folder: Path) -> None:
        data, unresolved = with_secrets(source, SECRETS, environ, folder)
        self.source, self.folder = source, folder
        known = {mistake.position for mistake in mistakes}
        self.mistakes = mistakes + [mistake for mistake in unresolved if mistake.position not in known]
        self._broken = frozenset(mistake.pointer for mistake in self.mistakes if mistake.pointer is not None)
        self.root = Section(self, "", data if isinstance(data, dict) else {})

    def usable(self, pointer: str) -> bool:
        """Was no mistake found before in this value as such, nor in what holds it?"""
        return not any(pointer == broken or pointer.startswith(f"{broken}/") for broken in self._broken)

    def sound(self, pointer: str) -> bool:
        """Usable, and so is everything in it?"""
        return self.usable(pointer) and not any(broken.startswith(f"{pointer}/") for broken in self._broken)


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of the file. Members that are absent and members that can't be used look alike: their mistake is known already."""

    document: Document
    pointer: str
    members: Mapping[str, Any]

    def at(self, *steps: str | int) -> str:
        return child(self.pointer, *steps)

    def get(self, key: str, default: Any = None) -> Any:
        return self.members[key] if key in self.members and self.document.usable(self.at(key)) else default

    def sound(self, key: str) -> bool:
        return self.document.sound(self.at(key))

    def convert(self, key: str, convert: Callable[[Any], _Value], default: _Value) -> _Value:
        """The converted member; a ValueError becomes a mistake."""
        value = self.get(key)
        if value is None:
            return default
        try:
            return convert(value)
        except ValueError as error:
            self.report(str(error), key)
            return default

    def section(self, key: str) -> Section:
        """A mapping inside; empty where there is none."""
        return Section(self.document, self.at(key), self.get(key, {}))

    def sections(self, key: str) -> Iterator[Section]:
        """The mappings of a list inside that are sound throughout."""
        for index, item in enumerate(self.get(key, ())):
            if self.document.sound(self.at(key, index)):
                yield Section(self.document, self.at(key, index), item)

    def report(self, message: str, *steps: str | int) -> None:
        """A mistake of this mapping, or of what stands `steps` further in."""
        self.document.mistakes.append(Mistake(self.document.source.at(self.at(*steps)), message, self.at(*steps)))

    def line(self, *steps: str | int) -> int:
        return self.document.source.at(self.at(*steps)).line


def http_url(text: str, *, query: bool = False) -> str:
    """The URL as it is; `query` allows one. Raises ValueError, which never shows what may be a password."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a URL has no spaces and only printable ASCII characters")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("wanted a URL such as https://billing.internal or http://127.0.0.1:9001/mcp")
    if "@" in parts.netloc:
        raise ValueError("a URL carries no user or password; credentials belong under auth")
    if parts.fragment or (parts.query and not query):
        raise ValueError("a fragment or query is not allowed in this URL")
    return text


def host_and_port(text: str) -> tuple[str, int]:
    """`127.0.0.1:8700`, `[::1]:8700` or `localhost:8700`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is not host:port, such as 127.0.0.1:8700")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, such as [::1]:8700")
    if not re.fullmatch("[A-Za-z0-9.-]+", host):
        raise ValueError(f"{text!r}: {host!r} is no host; all addresses are 0.0.0.0 or [::]")
    return host, int(port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
