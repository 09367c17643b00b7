"""`gateway serve` and `gateway demo`: the commands that end with a gateway running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.app import serve
from gateway.cli.place import settings
from gateway.demo.story import tell


def add(commands: Any) -> None:
    one = commands.add_parser("serve", help="run the gateway")
    one.set_defaults(run=lambda args: serve(settings(args.config)))
    demo = commands.add_parser("demo", help="run everything embedded, with a scripted agent, and leave the gateway up")
    demo.add_argument("--once", action="store_true", help="end after the story; the exit status says whether it went as it should")
    demo.add_argument("--port", type=int, default=8700)
    demo.add_argument("--folder", type=Path, help="where its files go (default: a fresh temporary folder)")
    demo.set_defaults(run=lambda args: tell(args.port, args.folder, once=args.once))
