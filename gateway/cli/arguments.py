"""The shape of the command line: what every command takes, wherever on the line it stands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

CONFIG = "gateway.yaml"
KEY_VARIABLE = "GATEWAY_KEY"


class Parser(argparse.ArgumentParser):
    """Takes `--config` and `--json` before and after the command; argparse makes subparsers of the same class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        self.add_argument("-c", "--config", metavar="FILE", default=argparse.SUPPRESS, help=f"the deployment file (default: {CONFIG})")
        self.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="JSON on stdout instead of text")


def command(commands: Any, name: str, what: str, run: Callable[[argparse.Namespace], int | None]) -> argparse.ArgumentParser:
    """A command and what it does, as both its own help and the one above it tell."""
    one: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    one.set_defaults(run=run)
    return one


def group(commands: Any, name: str, what: str) -> Any:
    """A command that takes another; the commands below it."""
    return commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".").add_subparsers(required=True)


def listing(commands: Any, run: Callable[[argparse.Namespace], int | None]) -> argparse.ArgumentParser:
    one = command(commands, "list", "list the newest first", run)
    one.add_argument("--limit", metavar="N", type=counting, default=50, help="how many at most (default: 50)")
    return one


def steering(commands: Any, name: str, what: str, run: Callable[[argparse.Namespace], int | None]) -> argparse.ArgumentParser:
    """A command that the running gateway performs, for whoever has a key."""
    one = command(commands, name, f"{what}, with your key in the environment as {KEY_VARIABLE}", run)
    one.add_argument("--url", type=url, help="the gateway's address, if not that of the deployment file")
    return one


def url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} doesn't begin with http:// or https://")
    return text.rstrip("/")


def counting(text: str) -> int:
    """A whole number from 1 on, for `--limit`."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 1 to 65535")
    return int(text)
