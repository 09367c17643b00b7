"""`gateway init`, `keys`, `schema`: for those who begin a deployment file and policies."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.cli import output
from gateway.cli.arguments import command, group
from gateway.cli.output import Failure
from gateway.keys import make_key
from gateway.policy.cases_schema import CASES_SCHEMA
from gateway.policy.schema import document_schema
from gateway.settings import SETTINGS_SCHEMA
from gateway.source import check_schema, read

STARTER = Path(__file__).with_name("starter")
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "policy": document_schema, "tests": lambda: CASES_SCHEMA, "settings": lambda: SETTINGS_SCHEMA,
}  # fmt: skip
KEY_SCHEMA = SETTINGS_SCHEMA["properties"]["principals"]["properties"]["keys"]["items"]


def add(commands: Any) -> None:
    init = command(commands, "init", "write a starting gateway.yaml and policies, and print its keys once", write_starter)
    init.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="where to write them (default: here)")
    new = command(group(commands, "keys", "make keys for principals"), "new", "print a key and its entry for gateway.yaml", new_key)
    new.add_argument("id", metavar="ID", help="like agent:refund-bot or user:mia")
    new.add_argument("--person", action="store_true", help="a person, who may vote if a role says so")
    new.add_argument("--group", action="append", default=[], help="a group that it belongs to; may be repeated")
    new.add_argument("--task-type", metavar="TYPE", action="append", default=[], help="a task type that its runs may have; may be repeated")
    schema = command(commands, "schema", "print the JSON Schema of a kind of file, for editors", print_schema)
    schema.add_argument("of", metavar="KIND", choices=tuple(SCHEMAS), help=f"one of {', '.join(SCHEMAS)}")


def new_key(args: argparse.Namespace) -> None:
    key, hashed = make_key()
    entry: dict[str, Any] = {"id": args.id, "sha256": hashed}
    if args.person:
        entry["person"] = True
    if args.group:
        entry["groups"] = args.group
    if args.task_type:
        entry["task_types"] = args.task_type
    if wrong := check_schema(read("entry", json.dumps(entry).encode()), KEY_SCHEMA):
        raise Failure("; ".join(mistake.message for mistake in wrong) + ".")
    if args.json:
        output.say_json({"key": key, "entry": entry})
        return
    output.note("The key is shown this once. Add the entry, which holds only its hash, to `principals: keys:` of gateway.yaml and start again.")
    output.say(f"key    {key}")
    output.say(f"entry  {json.dumps(entry)}")


def print_schema(args: argparse.Namespace) -> None:
    output.say_json(SCHEMAS[args.of]())


def write_starter(args: argparse.Namespace) -> None:
    """Copy the starter files, with fresh keys and a fresh secret; nothing that exists is overwritten."""
    folder = Path(args.folder)
    agent, approver = make_key(), make_key()
    names = {"@PYTHON@": json.dumps(sys.executable), "@AGENT_SHA256@": agent[1], "@APPROVER_SHA256@": approver[1]}
    files = {path.relative_to(STARTER): path.read_text("utf-8") for path in sorted(STARTER.rglob("*.yaml"))}
    if there := [str(folder / name) for name in (*files, Path("gateway.secret")) if (folder / name).exists()]:
        raise Failure(f"Nothing was written, since there is already {' and '.join(there)}.")
    for name, text in files.items():
        for mark, value in names.items():
            text = text.replace(mark, value)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    secret = folder / "gateway.secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(48), "ascii")
    wrote = [*(str(folder / name) for name in files), str(secret)]
    if args.json:
        output.say_json({"files": wrote, "keys": {"agent:first": agent[0], "user:you": approver[0]}})
        return
    output.note("These keys are shown this once; gateway.yaml holds only their hashes.")
    output.say(f"agent:first  {agent[0]}")
    output.say(f"user:you     {approver[0]}")
    step = "" if folder.resolve() == Path.cwd() else f"`cd {shlex.quote(str(folder))}`, "
    output.note(f"Wrote {', '.join(wrote)}. Next: {step}`gateway check`, `gateway test`, `gateway serve`.")
