"""`gateway runs`, `gateway calls`, `gateway verify`: what the ledger holds, read without disturbing the gateway; the stops of a run; and a
person's word on a call in doubt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.cli import output
from gateway.cli.arguments import counting
from gateway.cli.output import Failure
from gateway.cli.place import KEY_VARIABLE, asked, reading
from gateway.core.events import CallProbed, CallReconciled
from gateway.core.left import budget_left
from gateway.core.lifecycle import CALL, RUN
from gateway.core.run import Tree, stream_of
from gateway.doors.render import budget_json, time_text, visible
from gateway.ledger.sqlite import SqliteLedger
from gateway.ledger.verify import verify
from gateway.ports import Recorded
from gateway.system import SystemClock

RUN_COLUMNS = ("run", "principal", "policy", "state", "status", "reason", "turns", "opened_at", "run_key")
CALL_COLUMNS = ("call", "turn", "tool", "state", "reason", "attempt", "hold", "asked_at")
FINDING_COLUMNS = ("reason", "message", "rule")

WORDS = {
    "happened": "it took effect",
    "did_not_happen": "it did not: it is sent once more if its run is open and in time, else it frees its key",
    "abandoned": "nobody will ever know: it is never sent again",
}
STOPS = {"freeze": "admit nothing more for now", "resume": "let a frozen run go on", "cancel": "end a run as cancelled"}


def add(commands: Any) -> None:
    runs = commands.add_parser("runs", help="list, show, freeze, resume or cancel runs").add_subparsers(required=True)
    listing = runs.add_parser("list", help="newest first")
    listing.add_argument("--state", choices=[state for state in RUN if state != "new"])
    listing.add_argument("--principal")
    listing.add_argument("--limit", type=counting, default=50)
    listing.set_defaults(run=lambda args: asyncio.run(list_runs(args)))
    show = runs.add_parser("show", help="one run with its budget and calls")
    show.add_argument("id", metavar="RUN", help="its id, run_…, or a run key that only one run has")
    show.set_defaults(run=lambda args: asyncio.run(show_run(args)))
    for act, what in STOPS.items():
        one = runs.add_parser(act, help=f"{what}, with your key in {KEY_VARIABLE}")
        one.add_argument("id", metavar="RUN")
        one.add_argument("--url", help="the gateway's address, if not that of the settings")
        one.set_defaults(run=steer, act=act)
    _add_calls(commands)
    check = commands.add_parser("verify", help="recompute the ledger's chain, states and views")
    check.set_defaults(run=lambda args: asyncio.run(check_ledger(args)))


def _add_calls(commands: Any) -> None:
    calls = commands.add_parser("calls", help="list calls, show one, or say what became of one in doubt").add_subparsers(required=True)
    listing = calls.add_parser("list", help="newest first")
    listing.add_argument("--run", dest="by_run")
    listing.add_argument("--tool", dest="by_tool", help="its full name, such as crm.get_order")
    listing.add_argument("--state", dest="by_state", choices=[state for state in CALL if state != "new"])
    listing.add_argument("--limit", type=counting, default=50)
    listing.set_defaults(run=lambda args: asyncio.run(list_calls(args)))
    show = calls.add_parser("show", help="one call with its events, arguments and result, and why it was denied")
    show.add_argument("id", metavar="CALL")
    show.set_defaults(run=lambda args: asyncio.run(show_call(args)))
    word = calls.add_parser("reconcile", help=f"say what became of a call in doubt, with your key in {KEY_VARIABLE}")
    word.add_argument("id", metavar="CALL")
    outcome = word.add_mutually_exclusive_group(required=True)
    for name, what in WORDS.items():
        outcome.add_argument(f"--{name.replace('_', '-')}", dest="outcome", action="store_const", const=name, help=what)
    word.add_argument("--why", required=True, help="how you know; it is recorded with your name")
    word.add_argument("--result", metavar="JSON", help="with --happened: the tool's own answer, for repeats of the call")
    word.add_argument("--url", help="the gateway's address, if not that of the settings")
    word.set_defaults(run=reconcile)


async def list_runs(args: argparse.Namespace) -> int:
    where = {name: value for name, value in (("state", args.state), ("principal", args.principal)) if value}
    async with reading(args.config) as ledger:
        rows = await ledger.rows("runs", where, limit=args.limit)
    if args.json:
        output.as_json([output.plain(row) for row in rows])
    else:
        output.table(rows, RUN_COLUMNS, nothing="No runs.")
    return 0


async def show_run(args: argparse.Namespace) -> int:
    async with reading(args.config) as ledger:
        row = await _run_row(ledger, args.id)
        tree = await ledger.state(row["stream"])
        assert isinstance(tree, Tree)
        calls = await ledger.rows("calls", {"run": row["run"]}, limit=1000)
    budget = budget_json(budget_left(tree, row["run"], SystemClock().now_ms()))
    if args.json:
        output.as_json({**output.plain(row), "budget": budget, "calls": list(map(_call, calls))})
        return 0
    output.fields([*((name, row[name]) for name in row if name not in ("stream", "due_at")), *budget.items()])
    output.say()
    output.table(reversed(calls), CALL_COLUMNS, nothing="No calls.")
    return 0


async def _run_row(ledger: SqliteLedger, id: str) -> Mapping[str, Any]:
    """The run with this id, or else the only one with this key."""
    rows = await ledger.rows("runs", {"run": id}, limit=1) or await ledger.rows("runs", {"run_key": id}, limit=10)
    if len(rows) > 1:
        raise Failure(f"Several runs have the key {id!r}; name one by its id: {', '.join(row['run'] for row in rows)}.")
    if not rows:
        raise Failure(f"There is no run {id!r}, neither as id (they look like run_…) nor as run key; `gateway runs list` names them.")
    return rows[0]


def steer(args: argparse.Namespace) -> int:
    after = asked(args.config, args.url, "POST", "runs", args.id, args.act, body={})
    if args.json:
        output.as_json(after)
    else:
        output.say(visible(f"{after['run']} is {after['status']}."))
    return 0


async def list_calls(args: argparse.Namespace) -> int:
    where = {name: value for name in ("run", "tool", "state") if (value := getattr(args, f"by_{name}"))}
    async with reading(args.config) as ledger:
        rows = await ledger.rows("calls", where, limit=args.limit)
    if args.json:
        output.as_json(list(map(_call, rows)))
    else:
        output.table(rows, ("call", "run", *CALL_COLUMNS[1:]), nothing="No calls.")
    return 0


async def show_call(args: argparse.Namespace) -> int:
    async with reading(args.config) as ledger:
        rows = await ledger.rows("calls", {"call": args.id}, limit=1)
        if not rows:
            raise Failure(f"There is no call {args.id!r}.")
        row, stream = _call(rows[0]), stream_of(args.id)
        for name in ("arguments", "result"):
            data = await ledger.payload(stream, row[name]) if row[name] else None
            row[name] = json.loads(data) if data is not None else None
        events = [one for one in await ledger.events(stream, 0, 100_000) if getattr(one.event, "call", None) == args.id]
    told = [{"seq": one.seq, "at": time_text(one.at), "event": type(one.event).__name__, **_said(one.event)} for one in events]
    findings, shadowed = _findings(events, "findings"), _findings(events, "shadowed")
    if args.json:
        output.as_json({**row, "findings": findings, "shadowed": shadowed, "events": told})
        return 0
    output.fields((name, _text(name, row)) for name in row)
    for heading, found in (("why it was denied", findings), ("what shadow rules would have said", shadowed)):
        if found:
            output.say(f"\n{heading}")
            output.table(found, FINDING_COLUMNS, nothing="")
    output.say()
    output.table(told, ("seq", "at", "event", "by", "said"), nothing="No events.")
    return 0


def reconcile(args: argparse.Namespace) -> int:
    body = {"outcome": args.outcome, "why": args.why}
    if args.result is not None:
        try:
            body["result"] = json.loads(args.result)
        except ValueError as wrong:
            raise Failure(f"--result is no JSON: {wrong}.") from None
    after = asked(args.config, args.url, "POST", "runs", stream_of(args.id), "calls", args.id, "reconcile", body=body)
    if args.json:
        output.as_json(after)
    else:
        output.say(visible(f"{after['call']} is {after['status']}. {after['message']}"))
    return 0


def _call(row: Mapping[str, Any]) -> dict[str, Any]:
    """A call's row; one that was denied at once had neither effect nor upstream, whatever the columns hold."""
    undecided = {"effect": None, "upstream": None} if row["state"] == "denied" and row["hold"] is None else {}
    return {**output.plain(row), **undecided}


def _said(event: Any) -> dict[str, str]:
    """Who said what of a call in doubt: a probe, or a person."""
    if isinstance(event, CallReconciled):
        return {"by": event.by, "said": f"{event.state}: {event.why}"}
    return {"by": f"probe:{event.tool}", "said": f"{event.found}: {event.message}"} if isinstance(event, CallProbed) else {}


def _text(name: str, row: Mapping[str, Any]) -> Any:
    if name in ("effect", "upstream"):
        return row[name] or "-"
    if name in ("arguments", "result") and row[name] is not None:
        return json.dumps(row[name], ensure_ascii=False)
    return row[name]


def _findings(events: Sequence[Recorded], kind: str) -> list[dict[str, Any]]:
    """What guards said in these events: `findings` refused the call, `shadowed` were only recorded."""
    found = [one for recorded in events for one in getattr(recorded.event, kind, ())]
    return [{name: one.get(name) for name in FINDING_COLUMNS} for one in found]


async def check_ledger(args: argparse.Namespace) -> int:
    async with reading(args.config) as ledger:
        report = await verify(ledger, lambda stream, done: output.progress(f"verifying {done} streams … {stream}"))
    output.progress("")
    if args.json:
        output.as_json(
            {
                "streams": report.streams, "events": report.events, "payloads": report.payloads, "rows": report.rows,
                "erased": [one.hash for one in report.erased],
                "problems": [{"stream": p.stream, "seq": p.seq, "what": p.what, "message": p.message} for p in report.problems],
            }
        )  # fmt: skip
        return 1 if report.problems else 0
    for problem in report.problems:
        output.say(f"{problem.stream}{'' if problem.seq is None else f' seq {problem.seq}'}: {problem.what}: {problem.message}")
    counted = f"{report.streams} streams, {report.events} events, {report.payloads} payloads ({len(report.erased)} erased), {report.rows} rows"
    output.say(f"{'NOT sound' if report.problems else 'Sound'}: {counted}; {len(report.problems)} problems.")
    return 1 if report.problems else 0
