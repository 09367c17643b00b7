"""Short names: who gets one, who keeps the prefixed one, and that no name ever means two tools."""

from __future__ import annotations

from itertools import permutations

import pytest

from gateway.core.naming import ShortNames, short_names
from gateway.core.policy import PolicySet
from gateway.wire.mcp import listed_name
from tests.policy.writing import compiled, policy


def names(rules: str, *tools: str) -> ShortNames:
    return short_names(PolicySet("s", compiled(policy(rules))), tools)


def test_a_rule_may_spell_out_a_name_for_its_tool() -> None:
    found = names("- {tool: crm.get_order, effect: read_only, as: order}\n- {tool: crm.*, effect: read_only}", "crm.get_order", "crm.other")
    assert (found.tools, found.names, found.prefixed) == ({"order": "crm.get_order"}, {"crm.get_order": "order"}, {})


def test_a_name_that_is_spelled_out_is_its_tools_while_its_upstream_is_away() -> None:
    found = names('- {tool: crm.get, effect: read_only, as: read}\n- {tool: files.*, effect: read_only, as: "*"}', "files.read")
    assert found.tools == {"read": "crm.get"}
    assert list(found.prefixed) == ["files.read"]


def test_a_pattern_lists_each_tool_under_its_own_name() -> None:
    found = names('- {tool: files.*, effect: read_only, as: "*"}\n- {tool: git.*, effect: read_only}', "files.read", "files.list-all", "git.log")
    assert found.names == {"files.read": "read", "files.list-all": "list-all"}


def test_a_name_that_two_tools_would_share_goes_to_none_of_them() -> None:
    for order in permutations(["files.read", "git.read", "git.log"]):
        found = names('- {tool: "*.*", effect: read_only, as: "*"}', *order)
        assert found.tools == {"log": "git.log"}
        assert found.prefixed.keys() == {"files.read", "git.read"}


@pytest.mark.parametrize("own", ["a__b", "a.b", "a/b", "x" * 65])
def test_an_own_name_that_could_be_taken_for_a_prefixed_one_or_that_not_every_client_takes_is_not_used(own: str) -> None:
    found = names('- {tool: "*.*", effect: read_only, as: "*"}', f"up.{own}")
    assert (found.tools, list(found.prefixed)) == ({}, [f"up.{own}"])


def test_no_short_name_can_be_a_prefixed_one() -> None:
    for tool in ("up.a", "x" * 64 + ".a", "up." + "y" * 128, "a.b.c"):
        assert "__" in listed_name(tool)


def test_a_rule_in_shadow_and_the_absence_of_a_rule_name_nothing() -> None:
    rules = "- {tool: crm.get, effect: read_only, as: order, mode: shadow}\n- {tool: crm.get, effect: read_only}"
    assert names(rules, "crm.get", "crm.other").tools == {}
