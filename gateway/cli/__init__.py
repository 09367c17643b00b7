"""The command line: `gateway COMMAND …`. One file a family of commands; each adds its parsers and runs its part."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from gateway.app import own_version
from gateway.cli import authoring, checking, holds, records, serving, stdio, tools
from gateway.cli.arguments import CONFIG, Parser
from gateway.cli.output import Failure, note
from gateway.ports import GatewayFault

FAMILIES = (serving, stdio, authoring, checking, records, holds, tools)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = Parser(prog="gateway", description="A gateway between AI agents and their tools.", epilog="`gateway COMMAND -h` says more.")
    top.add_argument("--version", action="version", version=f"gateway {own_version()}")
    top.set_defaults(config=CONFIG, json=False, run=lambda _: usage(top))
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for family in FAMILIES:
        family.add(commands)
    return top


def usage(top: argparse.ArgumentParser) -> int:
    top.print_help(sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0 well, 1 something is wrong and was said, 2 the command line itself."""
    args = parser().parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except (Failure, GatewayFault) as failure:
        said = str(failure)
    except BrokenPipeError:  # whoever read has left, which is no failure; what Python still flushes at its end goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        said = f"{error.filename or 'the system'}: {error.strerror or error}"
    except KeyboardInterrupt:
        return 130
    note(json.dumps({"error": said}, ensure_ascii=False) if args.json else f"gateway: {said}")
    return 1
