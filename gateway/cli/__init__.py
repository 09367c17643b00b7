"""The command line: `gateway COMMAND …`. One file a family of commands; each adds its parsers and runs its part."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gateway.cli import authoring, checking, holds, records, serving
from gateway.cli.output import Failure, note
from gateway.ports import LedgerFault, PolicyError

FAMILIES = (serving, authoring, checking, records, holds)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="gateway", description="A gateway between AI agents and their tools.")
    top.add_argument("--config", "-c", default="gateway.yaml", help="the deployment file (default: gateway.yaml)")
    top.add_argument("--json", action="store_true", help="JSON on stdout instead of text")
    commands = top.add_subparsers(dest="command", required=True)
    for family in FAMILIES:
        family.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0 well, 1 something is wrong and was said, 2 the command line itself."""
    args = parser().parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except Failure as failure:
        note(f"gateway: {failure}")
        return failure.code
    except (PolicyError, LedgerFault) as fault:
        note(f"gateway: {fault}")
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
