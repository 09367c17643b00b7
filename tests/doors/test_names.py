"""Listed names follow the catalog, and are worked out only when it changes."""

from __future__ import annotations

from gateway.doors.names import Names
from tests.doors.mcp.stage import FakeEngine, tool


def test_names_are_kept_while_the_catalog_gives_the_same_tools_and_made_anew_when_it_changes():
    catalog = FakeEngine(tool("crm.echo"))
    current = Names(catalog)
    before = current()
    assert (before.name("crm__echo"), before.name("crm__new"), current() is before) == ("crm.echo", None, True)
    catalog.all_tools = (tool("crm.echo"), tool("crm.new"))
    assert (current().name("crm__new"), current() is before) == ("crm.new", False)
