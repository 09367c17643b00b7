"""`gateway tools`: which definitions are accepted, what has changed since, and accepting it; all by the running gateway, with your key."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from difflib import unified_diff
from typing import Any

from gateway.cli import output
from gateway.cli.arguments import group, steering
from gateway.cli.output import Failure
from gateway.cli.place import asked
from gateway.doors.render import visible

COLUMNS = ("tool", "state", "digest", "accepted_at", "by", "note")
_HELD_BACK = ("changed", "new")
_SHORT = 12


def add(commands: Any) -> None:
    tools = group(commands, "tools", "list tools' definitions, show what has changed, or accept it")
    steering(tools, "list", "list all tools of all upstreams, and what is held back", list_tools)
    diff = steering(tools, "diff", "show what is held back because its definition has changed or is new", show_differences)
    diff.add_argument("names", metavar="TOOL", nargs="*", help="only these, by full name")
    accept = steering(tools, "accept", "accept definitions as you saw them", accept_tools)
    accept.add_argument("chosen", metavar="TOOL@DIGEST", nargs="+", type=_chosen, help="as `diff` prints it; the digest's first 8 characters will do")


def _chosen(text: str) -> tuple[str, str]:
    name, _, digest = text.partition("@")
    if not name or len(digest) < 8:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOOL@DIGEST with at least 8 characters of the digest")
    return name, digest


def list_tools(args: argparse.Namespace) -> int:
    tools = _known(args)
    if args.json:
        output.say_json(tools)
        return 0
    rows = [{**one, "digest": (one["digest"] or "")[:_SHORT], **_accepted(one)} for one in tools]
    output.table(rows, COLUMNS, nothing="No upstream offers a tool.")
    return 0


def _accepted(tool: dict[str, Any]) -> dict[str, Any]:
    accepted = tool["accepted"] or {}
    return {"accepted_at": accepted.get("at"), "by": accepted.get("by")}


def show_differences(args: argparse.Namespace) -> int:
    tools = _known(args)
    if unknown := set(args.names) - {one["tool"] for one in tools}:
        raise Failure(f"No upstream offers {visible(', '.join(sorted(unknown)))}.")
    held_back = [one for one in tools if one["state"] in _HELD_BACK and (not args.names or one["tool"] in args.names)]
    if args.json:
        output.say_json(held_back)
        return 0
    for one in held_back:
        output.say(f"{one['tool']} is {one['state']}")
        for line in difference(one["accepted_definition"], one["definition"]):
            output.say(f"  {visible(line)}")
        output.say()
    if held_back:
        output.say("Accept with `gateway tools accept " + " ".join(f"{one['tool']}@{one['digest'][:_SHORT]}" for one in held_back) + "`.")
    else:
        output.say("Nothing is held back.")
    return 0


def difference(before: Any, after: Any) -> Iterable[str]:
    """The lines of two JSON values that differ, with some around them; all of the second if there is no first."""
    old, new = ([] if one is None else json.dumps(one, indent=2, sort_keys=True, ensure_ascii=False).splitlines() for one in (before, after))
    return list(unified_diff(old, new, lineterm="", n=2))[2:]


def accept_tools(args: argparse.Namespace) -> int:
    now = {one["tool"]: one["digest"] for one in _known(args)}
    body = {"tools": {name: _whole(digest, now.get(name)) for name, digest in args.chosen}}
    after = asked(args.config, args.url, "POST", "tools", "accept", body=body)["tools"]
    if args.json:
        output.say_json(after)
    else:
        for one in after:
            output.say(f"{one['tool']} is {one['state']}.")
    return 0


def _whole(digest: str, now: str | None) -> str:
    return now if now is not None and now.startswith(digest) else digest


def _known(args: argparse.Namespace) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = asked(args.config, args.url, "GET", "tools")["tools"]
    return tools
