"""Short policies for tests: `policy(…)` is a whole document around a few rules."""

from __future__ import annotations

import textwrap

from gateway.core.policy import Policy
from gateway.policy.compile import compile_document
from gateway.ports import PolicyError

HEAD = """\
version: 1
name: p
run: {budgets: {turns: 9, tool_calls: 9, deadline: 90s, tokens: unlimited}}
defaults: {approvers: ["user:mia"]}
"""


def policy(rules: str, head: str = HEAD) -> bytes:
    """The head has 4 lines, so the first rule stands at line 6."""
    return (head + "tools:\n" + textwrap.indent(textwrap.dedent(rules).strip("\n"), "  ") + "\n").encode()


def ceiling(rules: str, more: str = "") -> bytes:
    return policy(rules, "version: 1\nname: c\nkind: ceiling\n" + more)


def compiled(text: bytes) -> Policy:
    return compile_document("p.yaml", text)


def mistakes(text: bytes) -> list[str]:
    """`line:column: message` of each mistake; [] if the document can be used."""
    try:
        compiled(text)
    except PolicyError as error:
        return [line.removeprefix("p.yaml:") for line in str(error).split("\n")]
    return []


def places(text: bytes) -> list[str]:
    """`line:column` of each mistake."""
    return [":".join(mistake.split(":")[:2]) for mistake in mistakes(text)]
