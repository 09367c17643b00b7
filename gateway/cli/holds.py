"""`gateway holds`: what waits for people, shown from the ledger; votes go to the running gateway with the person's own key."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from gateway.cli import output
from gateway.cli.arguments import counting
from gateway.cli.output import Failure
from gateway.cli.place import KEY_VARIABLE, asked, reading
from gateway.core.run import stream_of
from gateway.doors.render import hold_json, time_text, visible
from gateway.engine import HoldView

COLUMNS = ("hold", "state", "tool", "principal", "show", "held_at", "expires_at")


def add(commands: Any) -> None:
    holds = commands.add_parser("holds", help="list, show, approve or deny held calls").add_subparsers(required=True)
    listing = holds.add_parser("list", help="newest first")
    listing.add_argument("--all", action="store_true", help="also those that were decided or expired")
    listing.add_argument("--limit", type=counting, default=50)
    listing.set_defaults(run=lambda args: asyncio.run(list_holds(args)))
    show = holds.add_parser("show", help="one held call, with what would be executed")
    show.add_argument("id", metavar="HOLD")
    show.set_defaults(run=lambda args: asyncio.run(show_hold(args)))
    for vote, said in (("approve", "--note"), ("deny", "--reason")):
        one = holds.add_parser(vote, help=f"{vote} a held call, with your key in {KEY_VARIABLE}")
        one.add_argument("id", metavar="HOLD")
        one.add_argument(said, dest="note", default="", help="what the record, and for a denial the agent, is told")
        one.add_argument("--digest", required=vote == "approve", help="the hold's digest as `show` printed it, or its first 8 characters")
        one.add_argument("--url", help="the gateway's address, if not that of the settings")
        one.set_defaults(run=cast, vote=vote)


async def list_holds(args: argparse.Namespace) -> int:
    async with reading(args.config) as ledger:
        rows = await ledger.rows("holds", {} if args.all else {"state": "held"}, limit=args.limit)
    if args.json:
        output.as_json([output.plain(row) for row in rows])
    else:
        output.table(rows, COLUMNS, nothing="Nothing waits for approval.")
    return 0


async def show_hold(args: argparse.Namespace) -> int:
    async with reading(args.config) as ledger:
        tree = await ledger.state(stream_of(args.id)) if args.id.startswith("hold_") else None
        if tree is None or args.id not in tree.holds:
            raise Failure(f"There is no hold {args.id!r}.")
        hold = tree.holds[args.id]
        call, run = tree.calls[hold.call], tree.runs[hold.run]
        data = await ledger.payload(stream_of(args.id), call.arguments) if call.arguments else None
    arguments = json.loads(data) if data is not None else None
    if args.json:
        output.as_json(hold_json(HoldView(hold, call, run, arguments)))
        return 0
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
    return 0


def visible_json(value: Any) -> str:
    """JSON over several lines, with nothing in it that a terminal would obey."""
    return "\n".join("  " + visible(line) for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines())


def cast(args: argparse.Namespace) -> int:
    hold = asked(args.config, args.url, "GET", "holds", args.id)
    same = args.digest is None or (len(args.digest) >= 8 and hold["digest"].startswith(args.digest))
    body = {"digest": hold["digest"] if same else args.digest, "note" if args.vote == "approve" else "reason": args.note}
    after = asked(args.config, args.url, "POST", "holds", args.id, args.vote, body=body)
    if args.json:
        output.as_json(after)
    else:
        output.say(visible(f"{after['hold']} is {after['status']}."))
    return 0
