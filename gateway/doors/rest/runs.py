"""Runs: open, look at, end, freeze, resume; their events and their tools."""

from __future__ import annotations

from typing import Any

from gateway.core.run import Run
from gateway.doors.render import budget_json, event_json, row_json, run_json
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.doors.rest.schemas import COUNT, LIMIT, NAME, NAME_OR_NULL, NOTE, NOTHING, fields, refer
from gateway.engine import ListedTool, RunRequest
from gateway.wire import anthropic, openai

PAGE = 50
_EVENTS = 500

_OPEN = fields(
    {
        "run_key": {**NAME_OR_NULL, "description": "Opening with the same key again returns the same run."},
        "policy": NAME_OR_NULL,
        "task_type": NAME_OR_NULL,
        "goal": {"type": ["string", "null"], "maxLength": 4000},
        "labels": {"type": ["object", "null"], "additionalProperties": {"type": "string", "maxLength": 256}},
        "budgets": {"type": ["object", "null"], "description": "Tighter caps, in the policy's own words: turns, tool_calls, deadline, cost_usd…"},
        "parent_run": NAME_OR_NULL,
        "continues": NAME_OR_NULL,
    }
)
_PART = {"type": ["string", "array", "null"], "maxLength": 20_000, "maxItems": 200, "items": {"type": "string", "maxLength": 4000}}
_HANDOFF = {**fields({"done": _PART, "open": _PART, "next": _PART}), "type": ["object", "null"]}


async def open_run(x: Exchange) -> Answer:
    asked = {name: value for name, value in x.body.items() if value is not None}
    view = await x.engine.open_run(x.caller, RunRequest("rest", **asked))
    body = {**run_json(view), "token": _token(x, view.run)}
    return Answer(200 if view.existed else 201, body, [(b"location", f"/v1/runs/{view.run.id}".encode())])


def _token(x: Exchange, run: Run) -> str:
    return x.authenticate.run_token(run.id, x.caller.principal.id, run.limits.max_age_ms)


async def list_runs(x: Exchange) -> Answer:
    limit = x.query.get("limit", PAGE)
    rows = await x.engine.runs(x.caller, state=x.query.get("state"), limit=limit, before=x.query.get("before"))
    return Answer(200, {"runs": [row_json(row) for row in rows], "next": rows[-1]["run"] if len(rows) == limit else None})


async def show_run(x: Exchange) -> Answer:
    return Answer(200, run_json(await x.engine.run(x.caller, x.path["run"])))


async def cancel_run(x: Exchange) -> Answer:
    return Answer(200, run_json(await x.engine.cancel_run(x.caller, x.path["run"])))


async def finish_run(x: Exchange) -> Answer:
    return Answer(200, run_json(await x.engine.finish_run(x.caller, x.path["run"], x.body.get("handoff"))))


async def freeze_run(x: Exchange) -> Answer:
    return Answer(200, run_json(await x.engine.freeze_run(x.caller, x.path["run"], x.body.get("note", ""))))


async def resume_run(x: Exchange) -> Answer:
    return Answer(200, run_json(await x.engine.resume_run(x.caller, x.path["run"])))


async def list_events(x: Exchange) -> Answer:
    after = x.query.get("after", 0)
    events = await x.engine.events(x.caller, x.path["run"], after, x.query.get("limit", _EVENTS))
    return Answer(200, {"events": [event_json(one) for one in events], "next": events[-1].seq if events else after, "budget": await _budget(x)})


async def list_tools(x: Exchange) -> Answer:
    tools = await x.engine.tools(x.caller, x.path["run"])
    write, names = _FORMS[x.query.get("format", "mcp")], x.names()
    return Answer(200, {"tools": [write(one.short or names.listed(one.tool.name), one) for one in tools], "budget": await _budget(x)})


async def _budget(x: Exchange) -> dict[str, Any]:
    return budget_json((await x.engine.run(x.caller, x.path["run"])).budget)


def _mcp_tool(name: str, one: ListedTool) -> dict[str, Any]:
    return {**one.definition, "name": one.tool.name, "effect": one.effect}


def _openai_tool(name: str, one: ListedTool) -> dict[str, Any]:
    return openai.tool(name, one.definition.get("description"), one.definition["inputSchema"])


def _anthropic_tool(name: str, one: ListedTool) -> dict[str, Any]:
    return anthropic.tool(name, one.definition.get("description"), one.definition["inputSchema"])


_FORMS = {"mcp": _mcp_tool, "openai": _openai_tool, "anthropic": _anthropic_tool}
_RUN = {200: refer("Run")}
OPERATIONS = (
    Operation("POST", "/v1/runs", open_run, "Open a run", {201: refer("OpenedRun"), 200: refer("OpenedRun")}, _OPEN),
    Operation(
        "GET", "/v1/runs", list_runs, "List runs, newest first", {200: refer("Runs")},
        query={"state": {"enum": ["open", "frozen", "closing", "closed"], "type": "string"}, "limit": LIMIT, "before": NAME},
    ),
    Operation("GET", "/v1/runs/{run}", show_run, "Look at a run", _RUN),
    Operation("POST", "/v1/runs/{run}/cancel", cancel_run, "End a run as cancelled", _RUN, NOTHING),
    Operation("POST", "/v1/runs/{run}/finish", finish_run, "End a run as completed", _RUN, fields({"handoff": _HANDOFF})),
    Operation("POST", "/v1/runs/{run}/freeze", freeze_run, "Admit nothing more for now", _RUN, fields({"note": NOTE})),
    Operation("POST", "/v1/runs/{run}/resume", resume_run, "Let a frozen run go on", _RUN, NOTHING),
    Operation(
        "GET", "/v1/runs/{run}/events", list_events, "Read what was recorded", {200: refer("Events")}, query={"after": COUNT, "limit": LIMIT}
    ),
    Operation(
        "GET", "/v1/runs/{run}/tools", list_tools, "List the tools that the run may use", {200: refer("Tools")},
        query={"format": {"enum": list(_FORMS), "type": "string"}},
    ),
)  # fmt: skip
