"""`gateway serve` and `gateway demo`: the commands that end with a gateway running."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.app import App, own_version, serve
from gateway.app_workers import Workers
from gateway.cli import output
from gateway.cli.arguments import command, counting, port
from gateway.cli.output import Failure
from gateway.cli.place import address, settings, shown
from gateway.demo.story import tell
from gateway.ports import PolicyError
from gateway.settings import Settings

DEMO_PORT = 8700


def add(commands: Any) -> None:
    one = command(commands, "serve", "run the gateway", run_gateway)
    one.add_argument("--workers", type=counting, default=1, metavar="N", help="processes that share the work; takes a ledger in PostgreSQL")
    demo = command(commands, "demo", "run everything embedded, with a scripted agent, and leave the gateway up", run_demo)
    demo.add_argument("--once", action="store_true", help="end after the story; the exit status says whether it went as it should")
    demo.add_argument("--port", type=port, help=f"where its gateway listens (default: {DEMO_PORT}; with --once any, if that is taken)")
    demo.add_argument("--folder", type=Path, help="where its files go and stay (default: a temporary folder)")


def run_gateway(args: argparse.Namespace) -> int:
    found = settings(args.config)
    if args.workers > 1 and found.ledger.postgresql is None:
        raise Failure(f"A ledger in SQLite belongs to one process; --workers takes `ledger: postgresql://…` in {args.config}.")
    log_to_stderr()
    if wrong := cant_listen(found.listen.host, found.listen.port):
        raise Failure(f"{wrong}; end what listens there, or change `listen` in {args.config}.")
    try:
        return serve_all(args, found)
    except PolicyError as wrong:
        raise Failure(f"The gateway can't start with these settings and policies; `gateway check` says more:\n{wrong}") from None


def serve_all(args: argparse.Namespace, found: Settings) -> int:
    """In this process, or in as many as were asked for."""
    if args.workers == 1:
        serve(found, lambda app, port: announce(app, found, port, as_json=args.json))
        return 0
    listen = listening(found.listen.host, found.listen.port)

    def work(serving: Callable[[], None] | None) -> None:
        def first(app: App, port: int) -> None:
            if serving is not None:
                announce(app, found, port, as_json=args.json)
                serving()

        serve(found, first, listen)

    return Workers(args.workers, work).run()


def run_demo(args: argparse.Namespace) -> int:
    chosen = args.port or DEMO_PORT
    wrong = cant_listen("127.0.0.1", chosen)
    if wrong and (args.port or not args.once):
        raise Failure(f"{wrong}; give the demo another with --port.")
    if args.folder and (args.folder / "gateway.yaml").exists():
        raise Failure(f"{args.folder / 'gateway.yaml'} exists already; the demo wants a folder of its own.")
    return tell(None if wrong else chosen, args.folder, once=args.once)


def cant_listen(host: str, port: int) -> str | None:
    """Why a server couldn't listen there; None if it can."""
    try:
        listening(host, port).close()
    except OSError as error:
        return f"Can't listen on {host} port {port}: {str(error.strerror).partition(' (while')[0]}"
    return None


def listening(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def announce(app: App, found: Settings, port: int, *, as_json: bool) -> None:
    """Say on stdout what came up: where it listens, what it loaded, who is away."""
    url = address(found).rpartition(":")[0] + f":{port}"
    policies, ceilings = ([one.name for one in each] for each in (app.policies.policies, app.policies.ceilings))
    tools = app.catalog.all()
    away = {one.name: why for one in found.upstreams if (why := app.catalog.away(one.name))}
    if as_json:
        output.say_json({"url": url, "policies": policies, "ceilings": ceilings, "tools": [tool.name for tool in tools], "away": away})
        return
    output.say(f"gateway {own_version()} at {url}: MCP at /mcp and /r/RUN_KEY/mcp, REST at /v1, described at /openapi.json")
    under = f"; ceilings {', '.join(ceilings)}" if ceilings else ""
    output.say(f"policies   {', '.join(policies)}{under} (from {shown(found.policies)})")
    output.say(f"tools      {len(tools)} of {_count(len(found.upstreams), 'upstream')}{_held_back(sum(not tool.usable for tool in tools))}")
    if away:
        output.say(f"away       {len(away)} of {len(found.upstreams)}: {', '.join(away)}; tried again until they answer")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _held_back(number: int) -> str:
    return f", {number} of them held back, as the log says" if number else ""


def log_to_stderr() -> None:
    """The log for people; of what uvicorn tells about itself only what is wrong."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
