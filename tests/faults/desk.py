"""An MCP server on stdio (revision 2026-07-28) that misbehaves on demand: `python -m tests.faults.desk FOLDER TOOLS`.

It has the tools of the HTTP upstream and a journal of its own in the same folder.

The argument `do`: ok, hang, die (after the effect, before the answer), twice (answers twice), flood (4 MiB on stderr first), noise (lines on
stdout that are no messages), stranger (answers a request that nobody made, then this one), garbage (an answer that is no result of a call),
error (a JSON-RPC error), refuse (`isError`, nothing done).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.faults.journal import ANSWERED, DID, TOOK, Journal

SCHEMA = {"type": "object", "properties": {"do": {"type": "string"}, "id": {"type": "string"}, "size": {"type": "integer"}}}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def before(do: str) -> None:
    """What comes before the answer."""
    if do == "die":
        os._exit(3)
    if do == "flood":
        for _ in range(64):
            sys.stderr.write("x" * 65_535 + "\n")
        sys.stderr.flush()
    if do == "noise":
        print("this is no message\n{\n" + "[" * 200, flush=True)
    if do == "stranger":
        send({"id": 999_999, "result": {"content": []}})


def answer(do: str, id: Any, tool: str, arguments: dict[str, Any]) -> None:
    body = {"did": tool, "id": arguments.get("id")}
    result: Any = {"content": [{"type": "text", "text": json.dumps(body)}], "structuredContent": body, "isError": do == "refuse"}
    if do == "error":
        send({"id": id, "error": {"code": -32000, "message": "it went wrong"}})
        return
    send({"id": id, "result": "no result of a call" if do == "garbage" else result})
    if do == "twice":
        send({"id": id, "result": {**result, "structuredContent": {"did": "something else"}}})


def called(journal: Journal, message: dict[str, Any]) -> None:
    params = message["params"]
    tool, arguments, key = params["name"], params["arguments"], params.get("_meta", {}).get("key")
    do = str(arguments.get("do", "ok"))
    journal.note(TOOK, tool, key, arguments)
    if do != "refuse":
        journal.note(DID, tool, key, arguments)
    if do == "hang":
        return
    before(do)
    answer(do, message["id"], tool, arguments)
    journal.note(ANSWERED, tool, key, arguments)


def main() -> None:
    journal = Journal(Path(sys.argv[1]) / "desk")
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "server/discover":
                send({"id": message["id"], "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
            case "tools/list":
                tools = [{"name": tool, "description": f"Does {tool}.", "inputSchema": SCHEMA} for tool in sys.argv[2].split(",")]
                send({"id": message["id"], "result": {"tools": tools}})
            case "tools/call":
                called(journal, message)


if __name__ == "__main__":
    main()
