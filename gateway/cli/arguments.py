"""The shape of the command line: what every command takes, wherever on the line it stands."""

from __future__ import annotations

import argparse
from typing import Any

CONFIG = "gateway.yaml"


class Parser(argparse.ArgumentParser):
    """Takes `--config` and `--json` before and after the command; argparse makes subparsers of the same class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        self.add_argument("-c", "--config", metavar="FILE", default=argparse.SUPPRESS, help=f"the deployment file (default: {CONFIG})")
        self.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="JSON on stdout instead of text")


def counting(text: str) -> int:
    """A whole number from 1 on, for `--limit`."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 1 to 65535")
    return int(text)
