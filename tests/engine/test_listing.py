"""Which tools a run may see, and how."""

from __future__ import annotations

from gateway.core.deployment import Pin
from gateway.core.model import BudgetLeft, Effect, Tool
from gateway.core.naming import ShortNames, short_names
from gateway.core.policy import PolicySet
from gateway.engine.listing import Naming, listed
from gateway.policy.compile import compile_document
from tests.engine.stage import Tools

HEAD = "version: 1\nname: p\nrun: {budgets: {turns: 9, tool_calls: 9, deadline: 90s, tokens: unlimited}}\ntools:\n"
RULES = """\
  - {tool: crm.hidden, mode: shadow, effect: read_only}
  - {tool: crm.get_*, effect: read_only, allow_if: "args.id == 'never'"}
  - tool: crm.set
    effect: idempotent_write
    arguments: {bind: {tenant: principal.claims.tenant}}
    idempotency: {send_as: {argument: key}}
"""
SCHEMA = {"type": "object", "properties": {"id": {}, "tenant": {}, "key": {}}, "required": ["id", "tenant", "key"]}


def policies(rules: str = RULES) -> PolicySet:
    return PolicySet("s", compile_document("p.yaml", (HEAD + rules).encode()))


def tool(name: str, definition: dict[str, object] | None = None, **more: str) -> Tool:
    return Tool(name, *name.split("."), definition or {"inputSchema": SCHEMA, "x-own": 1}, "d", **more)


class Offered(Tools):
    """What upstreams offer now; `pinned`: what is accepted of them. All but `crm` are away."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__()
        self.tools, self.pinned = tools, dict[str, Pin]()

    def all(self) -> tuple[Tool, ...]:
        return self.tools

    def pins(self) -> dict[str, Pin]:
        return self.pinned

    def away(self, name: str) -> str | None:
        return None if name.startswith("crm.") else "not there yet"


def left(tool_calls: int | None) -> BudgetLeft:
    return BudgetLeft(None, False, tool_calls, None, None, None, None, None)


NONE = ShortNames({}, {}, {})


def names(*tools: Tool) -> list[str]:
    return [one.tool.name for one in listed(tools, policies(), NONE)]


def test_only_what_an_enforcing_rule_names_is_listed_by_name_whatever_its_conditions() -> None:
    assert names(tool("crm.set"), tool("crm.get_b"), tool("crm.get_a"), tool("crm.drop"), tool("crm.hidden")) == ["crm.get_a", "crm.get_b", "crm.set"]


def test_a_tool_whose_schema_can_not_be_enforced_is_not_listed() -> None:
    assert names(tool("crm.get_a", unsupported="$ref to elsewhere")) == []


def test_a_tool_whose_definition_is_not_the_accepted_one_is_not_listed() -> None:
    assert names(tool("crm.get_a", unaccepted="changed"), tool("crm.get_b")) == ["crm.get_b"]


def test_what_the_gateway_fills_in_is_hidden_and_all_else_is_as_the_upstream_says() -> None:
    [shown] = listed([tool("crm.set")], policies(), NONE)
    assert shown.definition["inputSchema"] == {"type": "object", "properties": {"id": {}}, "required": ["id"]}
    assert shown.definition["x-own"] == 1
    assert shown.effect is Effect.IDEMPOTENT_WRITE
    assert SCHEMA["required"] == ["id", "tenant", "key"]


def test_what_is_filled_in_is_hidden_wherever_the_schema_speaks_of_the_same_object() -> None:
    part = {"properties": {"key": {}, "id": {}}, "required": ["key", "id"]}
    schema = {"allOf": [part], "anyOf": [part, True], "oneOf": [{"anyOf": [part]}], "properties": {"id": {"anyOf": [part]}}}
    [shown] = listed([tool("crm.set", {"inputSchema": schema})], policies(), NONE)
    left = {"properties": {"id": {}}, "required": ["id"]}
    hidden = {"allOf": [left], "anyOf": [left, True], "oneOf": [{"anyOf": [left]}], "properties": {"id": {"anyOf": [part]}}}
    assert shown.definition["inputSchema"] == hidden


def test_what_a_rule_in_shadow_would_fill_in_is_not_hidden() -> None:
    shadow = '  - {tool: crm.set, mode: shadow, effect: idempotent_write, arguments: {bind: {tenant: run.id}}}\n  - {tool: crm.set}\n'
    [shown] = listed([tool("crm.set")], policies(shadow.replace("crm.set}", "crm.set, effect: idempotent_write}")), NONE)
    assert shown.definition["inputSchema"] == SCHEMA


def test_the_policy_has_the_last_word_on_effects_and_the_upstream_on_all_else() -> None:
    theirs = {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": True, "title": "T"}
    one, other = tool("crm.get_a", {"annotations": theirs}), tool("crm.set", {"annotations": {"readOnlyHint": True}})
    assert [shown.definition["annotations"] for shown in listed([one, other], policies(), NONE)] == [
        theirs | {"readOnlyHint": True}, {"readOnlyHint": False, "idempotentHint": True},
    ]  # fmt: skip
    act = policies("  - {tool: crm.set, approval: {approvers: [\"user:mia\"]}}\n")
    assert listed([other], act, NONE)[0].definition["annotations"] == {"readOnlyHint": False, "idempotentHint": False}


def test_a_policy_may_list_definitions_untouched() -> None:
    one, quiet = tool("crm.get_a"), policies(RULES + "listing: {effect: false}\n")
    assert listed([one], quiet, NONE)[0].definition == one.definition


def test_a_policy_may_say_in_descriptions_how_many_calls_are_left() -> None:
    told = policies(RULES + "listing: {budget: true}\n")
    one, bare = tool("crm.get_a", {"description": "Gets."}), tool("crm.get_b")
    texts = [shown.definition["description"] for shown in listed([one, bare], told, NONE, left(7))]
    assert ("7 tool calls" in texts[0], texts[0].startswith("Gets. (")) == (True, True)
    assert texts[1].startswith("(")
    assert "any number of" in listed([one], told, NONE, left(None))[0].definition["description"]
    assert "description" not in listed([bare], policies(), NONE, left(7))[0].definition


def test_a_schema_of_another_form_is_shown_as_it_is() -> None:
    for odd in ({"inputSchema": True}, {}, {"inputSchema": {"properties": 1, "required": 2, "allOf": 3}}):
        definition = listed([tool("crm.set", dict(odd, x=1))], policies(), NONE)[0].definition
        assert {name: part for name, part in definition.items() if name != "annotations"} == {**odd, "x": 1}


def test_a_short_name_stands_beside_the_definition() -> None:
    short = policies('  - {tool: crm.get, effect: read_only, as: "*"}\n  - {tool: crm.set, effect: read_only}\n')
    tools = [tool("crm.get"), tool("crm.set")]
    found = listed(tools, short, short_names(short, ["crm.get", "crm.set"]))
    assert [(one.tool.name, one.short) for one in found] == [("crm.get", "get"), ("crm.set", None)]


def test_short_names_follow_the_catalog_and_leave_out_what_can_not_be_listed() -> None:
    every, naming = policies('  - {tool: "*.get", effect: read_only, as: "*"}\n'), Naming()
    offered = Offered(tool("crm.get"), tool("shop.get", unsupported="$ref to elsewhere"))
    assert naming.of(offered, every).tools == {"get": "crm.get"}
    assert naming.of(offered, every) is naming.of(offered, every)
    offered.tools = (*offered.tools, tool("till.get"))
    assert naming.of(offered, every).tools == {}


def test_the_tools_of_an_upstream_that_was_not_there_yet_keep_their_names() -> None:
    every, offered = policies('  - {tool: "*.*", effect: read_only, as: "*"}\n'), Offered(tool("crm.get"))
    offered.pinned = {"shop.get": Pin("d", "", 0), "shop.put": Pin("d", "", 0), "crm.gone": Pin("d", "", 0)}
    assert Naming().of(offered, every).tools == {"put": "shop.put"}
