"""Short names: what a policy lists tools as (`as`) in place of `upstream__tool`. They are for clients only; the record has full names.

A short name never holds `__` and a prefixed one always does, so that neither can be taken for the other. A name that two tools would share
goes to none of them: both keep their prefixed names. What a rule spells out is that tool's, whether its upstream is there or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.core.policy import PolicySet

OWN = "*"
"""`as: "*"`: the tool's own name, as its upstream gives it."""
SHORT = r"(?!.*__)[A-Za-z0-9_-]{1,64}"


class ShortNames(Struct, frozen=True):
    """`tools`: short name -> tool; `names`: tool -> short name; `prefixed`: tool -> why it has none though its rule says `as`."""

    tools: Mapping[str, str]
    names: Mapping[str, str]
    prefixed: Mapping[str, str]


def short_names(policies: PolicySet, tools: Iterable[str]) -> ShortNames:
    """Over all tools that could be listed, by full name, whatever their order."""
    spelled = {rule.listed_as: rule.tool for rule in policies.policy.rules if rule.listed_as not in (None, OWN) and not rule.shadow_mode}
    own: dict[str, list[str]] = {}
    for tool in sorted(tools):
        if policies.rule_for(tool).listed_as == OWN:
            own.setdefault(tool.partition(".")[2], []).append(tool)
    given: dict[str, str] = {str(name): tool for name, tool in spelled.items()}
    prefixed: dict[str, str] = {}
    for name, alike in own.items():
        claims = [*alike, *([spelled[name]] if name in spelled else [])]
        if len(claims) > 1:
            prefixed |= {tool: f"{name!r} would also be {' and '.join(one for one in claims if one != tool)}" for tool in alike}
        elif not re.fullmatch(SHORT, name):
            prefixed[alike[0]] = f"{name!r} is no name that every client takes: letters, digits, - and _, without __, at most 64"
        else:
            given[name] = alike[0]
    return ShortNames(given, {tool: name for name, tool in given.items()}, prefixed)
