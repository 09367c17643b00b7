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
from gateway.cli.arguments import command, group, listing, steering
from gateway.cli.output import Failure
from gateway.cli.place import asked, reading
from gateway.core.events import CallProbed, CallReconciled
from gateway.core.left import budget_left
from gateway.core.lifecycle import CALL, RUN
from gateway.core.run import Tree, stream_of
from gateway.doors.render import budget_json, time_text, visible
from gateway.ledger.ledger import StoreLedger
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
STOPS = {"freeze": "let a run start nothing more for now", "resume": "let a frozen run go on", "cancel": "end a run as cancelled"}


def add(commands: Any) -> None:
    runs = group(commands, "runs", "list, show, freeze, resume or cancel runs")
    some = listing(runs, lambda args: asyncio.run(list_runs(args)))
    some.add_argument("--state", choices=[state for state in RUN if state != "new"], help="only those in this state")
    some.add_argument("--principal", metavar="ID", help="only those of this principal, such as agent:refund-bot")
    show = command(runs, "show", "show one run with its budget and calls", lambda args: asyncio.run(show_run(args)))
    show.add_argument("id", metavar="RUN", help="its id, run_…, or a run key that only one run has")
    for act, what in STOPS.items():
        one = steering(runs, act, what, steer)
        one.add_argument("id", metavar="RUN", help="its id, run_…, as `gateway runs list` shows it")
        one.set_defaults(act=act)
    _add_calls(group(commands, "calls", "list calls, show one, or say what became of one in doubt"))
    command(commands, "verify", "recompute the ledger's chain, states and views", lambda args: asyncio.run(check_ledger(args)))


def _add_calls(calls: Any) -> None:
    some = listing(calls, lambda args: asyncio.run(list_calls(args)))
    some.add_argument("--run", dest="by_run", metavar="RUN", help="only those of this run, by its id")
    some.add_argument("--tool", dest="by_tool", metavar="TOOL", help="only those of this tool, by its full name, such as crm.get_order")
    some.add_argument("--state", dest="by_state", choices=[state for state in CALL if state != "new"], help="only those in this state")
    show = command(
        calls, "show", "show one call with its events, arguments and result, and why it was denied", lambda args: asyncio.run(show_call(args))
    )
    show.add_argument("id", metavar="CALL", help="its id, call_…, as `gateway calls list` shows it")
    word = steering(calls, "reconcile", "say what became of a call in doubt", reconcile)
    word.add_argument("id", metavar="CALL", help="its id, call_…, as `gateway calls list --state in_doubt` shows it")
    outcome = word.add_mutually_exclusive_group(required=True)
    for name, what in WORDS.items():
        outcome.add_argument(f"--{name.replace('_', '-')}", dest="outcome", action="store_const", const=name, help=what)
    word.add_argument("--why", metavar="TEXT", required=True, help="how you know; it is recorded with your name")
    word.add_argument("--result", metavar="JSON", help="with --happened: the tool's own answer, for repeats of the call")


async def list_runs(args: argparse.Namespace) -> None:
    where = {name: value for name, value in (("state", args.state), ("principal", args.principal)) if value}
    async with reading(args.config) as ledger:
        rows = await ledger.rows("runs", where, limit=args.limit)
    output.listed(rows, RUN_COLUMNS, as_json=args.json, nothing="No runs.")


async def show_run(args: argparse.Namespace) -> None:
    async with reading(args.config) as ledger:
        row = await _run_row(ledger, args.id)
        tree = await ledger.state(row["stream"])
        assert isinstance(tree, Tree)
        calls = await ledger.rows("calls", {"run": row["run"]}, limit=1000)
    budget = budget_json(budget_left(tree, row["run"], SystemClock().now_ms()))
    if args.json:
        output.say_json({**output.plain(row), "budget": budget, "calls": list(map(_call, calls))})
        return
    output.fields([*((name, row[name]) for name in row if name not in ("stream", "due_at")), *budget.items()])
    output.say()
    output.table(reversed(calls), CALL_COLUMNS, nothing="No calls.")


async def _run_row(ledger: StoreLedger, id: str) -> Mapping[str, Any]:
    """The run with this id, or else the only one with this key."""
    rows = await ledger.rows("runs", {"run": id}, limit=1) or await ledger.rows("runs", {"run_key": id}, limit=10)
    if len(rows) > 1:
        raise Failure(f"Several runs have the key {id!r}; name one by its id: {', '.join(row['run'] for row in rows)}.")
    if not rows:
        raise Failure(f"There is no run {id!r}, neither as id (they look like run_…) nor as run key; `gateway runs list` names them.")
    return rows[0]


def steer(args: argparse.Namespace) -> None:
    after = asked(args.config, args.url, "POST", "runs", args.id, args.act, body={})
    if args.json:
        output.say_json(after)
    else:
        output.say(visible(f"{after['run']} is {after['status']}."))


async def list_calls(args: argparse.Namespace) -> None:
    where = {name: value for name in ("run", "tool", "state") if (value := getattr(args, f"by_{name}"))}
    async with reading(args.config) as ledger:
        rows = await ledger.rows("calls", where, limit=args.limit)
    output.listed(rows, ("call", "run", *CALL_COLUMNS[1:]), as_json=args.json, nothing="No calls.", shown=_call)


async def show_call(args: argparse.Namespace) -> None:
    async with reading(args.config) as ledger:
        rows = await ledger.rows("calls", {"call": args.id}, limit=1)
        if not rows:
            raise Failure(f"There is no call {args.id!r}; `gateway calls list` names them.")
        row, stream = _call(rows[0]), stream_of(args.id)
        for name in ("arguments", "result"):
            data = await ledger.payload(stream, row[name]) if row[name] else None
            row[name] = json.loads(data) if data is not None else None
        events = [one for one in await ledger.events(stream, 0, 100_000) if getattr(one.event, "call", None) == args.id]
    told = [{"seq": one.seq, "at": time_text(one.at), "event": type(one.event).__name__, **_said(one.event)} for one in events]
    findings, shadowed = _findings(events, "findings"), _findings(events, "shadowed")
    if args.json:
        output.say_json({**row, "findings": findings, "shadowed": shadowed, "events": told})
        return
    output.fields((name, _text(name, row)) for name in row)
    for heading, found in (("why it was denied", findings), ("what shadow rules would have said", shadowed)):
        if found:
            output.say(f"\n{heading}")
            output.table(found, FINDING_COLUMNS, nothing="")
    output.say()
    output.table(told, ("seq", "at", "event", "by", "said"), nothing="No events.")


def reconcile(args: argparse.Namespace) -> None:
    body = {"outcome": args.outcome, "why": args.why}
    if args.result is not None:
        try:
            body["result"] = json.loads(args.result)
        except ValueError as wrong:
            raise Failure(f"--result is no JSON: {wrong}.") from None
    after = asked(args.config, args.url, "POST", "runs", stream_of(args.id), "calls", args.id, "reconcile", body=body)
    if args.json:
        output.say_json(after)
    else:
        output.say(visible(f"{after['call']} is {after['status']}. {after['message']}"))


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
        output.say_json(
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
