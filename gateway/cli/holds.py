"""`gateway holds`: what waits for people, shown from the ledger; votes go to the running gateway with the person's own key."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from gateway.cli import output
from gateway.cli.arguments import command, group, listing, steering
from gateway.cli.output import Failure
from gateway.cli.place import asked, reading
from gateway.core.run import stream_of
from gateway.doors.render import hold_json, time_text, visible
from gateway.engine import HoldView

_ID = "its id, hold_…, as `gateway holds list` shows it"
COLUMNS = ("hold", "state", "tool", "principal", "show", "held_at", "expires_at")


def add(commands: Any) -> None:
    holds = group(commands, "holds", "list, show, approve or deny held calls")
    some = listing(holds, lambda args: asyncio.run(list_holds(args)))
    some.add_argument("--all", action="store_true", help="also those that were decided or expired")
    show = command(holds, "show", "show one held call, with what would be executed", lambda args: asyncio.run(show_hold(args)))
    approve = steering(holds, "approve", "approve a held call", cast)
    deny = steering(holds, "deny", "deny a held call", cast)
    for one in (show, approve, deny):
        one.add_argument("id", metavar="HOLD", help=_ID)
    approve.add_argument("--digest", required=True, help="what you saw: the digest as `show` prints it, or 8 characters of its beginning")
    deny.add_argument("--digest", help="the same, to deny only that")
    approve.add_argument("--note", default="", help="what the record is told")
    deny.add_argument("--reason", dest="note", default="", help="what the record and the agent are told")
    approve.set_defaults(vote="approve")
    deny.set_defaults(vote="deny")


async def list_holds(args: argparse.Namespace) -> None:
    async with reading(args.config) as ledger:
        rows = await ledger.rows("holds", {} if args.all else {"state": "held"}, limit=args.limit)
    output.listed(rows, COLUMNS, as_json=args.json, nothing="Nothing waits for approval.")


async def show_hold(args: argparse.Namespace) -> None:
    async with reading(args.config) as ledger:
        tree = await ledger.state(stream_of(args.id)) if args.id.startswith("hold_") else None
        if tree is None or args.id not in tree.holds:
            raise Failure(f"There is no hold {args.id!r}; `gateway holds list --all` names them.")
        hold = tree.holds[args.id]
        call, run = tree.calls[hold.call], tree.runs[hold.run]
        data = await ledger.payload(stream_of(args.id), call.arguments) if call.arguments else None
    arguments = json.loads(data) if data is not None else None
    if args.json:
        output.say_json(hold_json(HoldView(hold, call, run, arguments)))
        return
    shown = {
        "hold": hold.id, "state": hold.state, "asks": visible(hold.show), "tool": call.tool, "principal": run.principal, "run": run.id,
        "goal": run.goal, "call": call.id, "rules": ", ".join(r.rule for r in hold.requirements),
        "approvers": "; ".join(f"{r.quorum} of {', '.join(r.approvers)}" for r in hold.requirements),
        "votes": ", ".join(f"{v.by} {v.vote}" for v in hold.votes), "held": time_text(hold.held_at), "decide by": time_text(hold.expires_at),
        "execute by": time_text(hold.execute_by), "digest": hold.digest,
    }  # fmt: skip
    output.fields(shown.items())
    output.say("arguments")
    output.say(visible_json(arguments))
    if hold.state == "held":
        output.say(f"\nDecide with `gateway holds approve {hold.id} --digest {hold.digest[:12]}` or `gateway holds deny {hold.id} --reason …`.")


def visible_json(value: Any) -> str:
    """JSON over several lines, with nothing in it that a terminal would obey."""
    return "\n".join("  " + visible(line) for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines())


def cast(args: argparse.Namespace) -> None:
    hold = asked(args.config, args.url, "GET", "holds", args.id)
    same = args.digest is None or (len(args.digest) >= 8 and hold["digest"].startswith(args.digest))
    body = {"digest": hold["digest"] if same else args.digest, "note" if args.vote == "approve" else "reason": args.note}
    after = asked(args.config, args.url, "POST", "holds", args.id, args.vote, body=body)
    if args.json:
        output.say_json(after)
    else:
        output.say(visible(f"{after['hold']} is {after['status']}{what_follows(after)}."))


def what_follows(hold: dict[str, Any]) -> str:
    """From one's vote."""
    if hold["status"] == "approved":
        return f": the call may be executed until {hold['execute_by']}"
    wanted = "; ".join(f"{one['quorum']} of {', '.join(one['approvers'])}" for one in hold["requirements"] if not one["met"])
    return f": your vote counts, and still it takes {wanted}" if hold["status"] == "held" else ""
