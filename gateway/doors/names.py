"""The catalog's tools as clients name them; one for all doors."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.model import Tool
from gateway.ports import Catalog
from gateway.wire.mcp import ListedNames


class Names:
    """Call it for the names of now; made anew only when the catalog gives another sequence."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tools: Sequence[Tool] | None = None
        self._names = ListedNames(())

    def __call__(self) -> ListedNames:
        tools = self._catalog.all()
        if tools is not self._tools:
            self._tools, self._names = tools, ListedNames(tool.name for tool in tools)
        return self._names
