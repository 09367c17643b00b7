"""An OpenAPI document read as an upstream: where it is, its operations as tools, and all that its reader should know.

An operation that can't be a tool is left out with the reason; the rest work. Which operations are wanted, patterns say: `METHOD /path`
(`* /path`), `tag:NAME`, or an operationId; `*` and `?` stand for any text and any character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from gateway.core.model import Json
from gateway.source import Mistake, SourceError, child
from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.http_dial import Origin
from gateway.upstreams.openapi.document import Document, Node, Unusable, load
from gateway.upstreams.openapi.operations import Found, Reader, find, names
from gateway.upstreams.openapi.request import Operation
from gateway.upstreams.openapi.security import missing

_URL: Final = re.compile(r"[\x21\x22\x24-\x3e\x40-\x7a\x7c\x7e]+")
"""Without spaces, blanks to fill in, a query or a fragment."""


@dataclass(frozen=True, slots=True)
class Api:
    """`remarks`: what was left out and why, and what will fail."""

    base_url: str
    operations: tuple[Operation, ...]
    remarks: tuple[Mistake, ...]


def read_api(
    path: Path,
    name: str,
    *,
    base_url: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    credentials: Credentials = NONE,
    judge: Callable[[Mapping[str, Json]], object] | None = None,
) -> Api:
    """`name`: what remarks call the file. Without `base_url` the document's first server is asked. `judge`: is asked whether each input
    schema can be enforced, and gives a text if not. Raises SourceError."""
    document = load(path, name)
    try:
        base_url = base_url or _server(document.root.get("servers"), "/servers")
    except Unusable as unusable:
        raise SourceError([_told(document, unusable)]) from None
    remarks: list[Unusable] = []
    operations, wanted = [], []
    reader = Reader(document, credentials)
    for found, tool in _selected(document, include, exclude, remarks):
        try:
            _check_server(document, found, base_url)
            operations.append(reader.read(found, tool))
            wanted.append(found)
            if judge is not None and isinstance(why := judge(operations[-1].input_schema), str):
                remarks.append(Unusable(found.node.pointer, f"{found} will be held back: {why}"))
        except Unusable as unusable:
            remarks.append(Unusable(unusable.pointer, f"{found} is left out: {unusable.message}"))
    remarks += missing(document, wanted, credentials)
    return Api(base_url, tuple(operations), tuple(sorted({_told(document, one) for one in remarks})))


def _told(document: Document, unusable: Unusable) -> Mistake:
    return Mistake(document.at(unusable.pointer), unusable.message, unusable.pointer)


# ---- which operations ---------------------------------------------------------------------------------------------------


def _selected(document: Document, include: Sequence[str], exclude: Sequence[str], remarks: list[Unusable]) -> Iterator[tuple[Found, str]]:
    """Each operation that is wanted, with its tool's name, which is the same whatever else is wanted."""
    everything = list(find(document))
    remarks += [one for one in everything if isinstance(one, Unusable)]
    all_found = [one for one in everything if isinstance(one, Found)]
    for pattern in (*include, *exclude):
        if not any(_fits(pattern, one) for one in all_found):
            remarks.append(Unusable("/paths", f"no operation is meant by {pattern!r}"))
    for found, tool in zip(all_found, names(all_found), strict=True):
        if (not include or any(_fits(pattern, found) for pattern in include)) and not any(_fits(pattern, found) for pattern in exclude):
            yield found, tool


def _fits(pattern: str, found: Found) -> bool:
    method, space, path = pattern.partition(" ")
    if pattern.startswith("tag:"):
        return any(fnmatchcase(tag, pattern.removeprefix("tag:")) for tag in found.tags)
    if space:
        return method in ("*", found.method.upper()) and fnmatchcase(found.path, path)
    return fnmatchcase(found.node.text("operationId") or "", pattern)


# ---- servers ------------------------------------------------------------------------------------------------------------


def _check_server(document: Document, found: Found, base_url: str) -> None:
    """An operation with servers of its own belongs to this upstream only if they are the same."""
    for owner in (found.node, found.item):
        if (servers := owner.get("servers")) is not None:
            own = _server(servers, servers.pointer)
            root = document.root.get("servers")
            if own != base_url and (root is None or own != _server(root, "/servers")):
                raise Unusable(servers.pointer, f"it is served at {own}; make that an upstream of its own, with this base_url")
            return


def _server(servers: Node | None, pointer: str) -> str:
    """The first server's URL, its variables by their defaults, without a slash at its end. Raises Unusable."""
    first = next(servers.items(), None) if servers is not None else None
    url = first.text("url") if first is not None else None
    if first is None or url is None:
        raise Unusable(pointer, "the document names no server; write base_url")
    variables = first.get("variables")
    for name, variable in variables.members() if variables is not None else ():
        url = url.replace(f"{{{name}}}", variable.text("default") or "")
    if not _is_whole(url):
        raise Unusable(child(first.pointer, "url"), f"{url[:200]!r} is no whole URL of a server; write base_url")
    return url.rstrip("/")


def _is_whole(url: str) -> bool:
    try:
        Origin.of(url)
    except ValueError:
        return False
    return _URL.fullmatch(url) is not None
