"""One operation as a tool, and how its arguments become a request: parameters by their styles, a body by its content type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.core.model import Json
from gateway.ports import Dispatch
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.http_request import Form, HttpTool
from gateway.upstreams.openapi.bodies import Body
from gateway.upstreams.openapi.parameters import Parameter, quoted
from gateway.upstreams.sending import unsendable


@dataclass(frozen=True, slots=True)
class Operation(HttpTool):
    """`parameters`: those of all places, and each `{name}` in `path` is one of them. `takes`: the body."""

    parameters: tuple[Parameter, ...] = ()
    takes: Body | None = None

    def form(self, base_url: str, credentials: Credentials) -> Form:
        return OperationForm(self, base_url, credentials)


class OperationForm(Form):
    """As for any HTTP tool: every argument ends in exactly one place, and none takes that of another, of the key or of the credentials."""

    def __init__(self, operation: Operation, base_url: str, credentials: Credentials) -> None:
        super().__init__(operation, base_url, credentials)
        self._by_place = {place: [one for one in operation.parameters if one.place == place] for place in ("query", "header", "cookie")}
        self._by_name = {one.name: one for one in operation.parameters if one.place == "path"}
        self._names = {*map(quoted, credentials.query), *(quoted(one.name) for one in self._by_place["query"])}
        self._takes = operation.takes
        self._taken |= {"content-type"} if operation.takes is not None else set()

    def _url(self, arguments: Mapping[str, Json]) -> str:
        pairs = [*self._query, *self._pairs(arguments)]
        path = self._base + self._path(arguments)
        return f"{path}?{'&'.join(pairs)}" if pairs else path

    def _in_segment(self, name: str, arguments: Mapping[str, Json]) -> str:
        parameter = self._by_name[name]
        return parameter.in_path(arguments.get(parameter.argument))

    def _pairs(self, arguments: Mapping[str, Json]) -> Iterator[str]:
        """An object whose members become parameters can't name one that is somebody else's."""
        for parameter in self._by_place["query"]:
            own = quoted(parameter.name)
            for name, text in parameter.in_query(arguments.get(parameter.argument)):
                if name != own and name in self._names:
                    raise unsendable(f"argument {parameter.argument!r} can't have a member of that name: it is a parameter of its own")
                yield f"{name}={text}"

    def _headers(self, arguments: Mapping[str, Json], dispatch: Dispatch) -> dict[str, str]:
        given = {place: [one for one in self._by_place[place] if arguments.get(one.argument) is not None] for place in ("header", "cookie")}
        headers = {one.name.lower(): one.in_header(arguments[one.argument]) for one in given["header"]}
        if given["cookie"]:
            headers["cookie"] = "; ".join(one.in_cookie(arguments[one.argument]) for one in given["cookie"])
        return headers | super()._headers(arguments, dispatch)

    def _body(self, arguments: Mapping[str, Json]) -> tuple[bytes, Mapping[str, str]]:
        return self._takes.written(arguments) if self._takes is not None else (b"", {})
