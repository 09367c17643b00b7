"""An MCP server on stdio (revision 2026-07-28) with the same tools and the same argument `do` as the HTTP upstream of these tests.

Only the standard library. Each message that comes in is appended to the file that $HEARD names, as one line of JSON.
$DESCRIBED begins each description.
"""

import json
import os
import sys

TOOLS = sys.argv[1].split(",")
DESCRIBED = os.environ.get("DESCRIBED", "Does")
SCHEMA = {"type": "object", "properties": {"do": {"type": "string"}, "id": {"type": "string"}, "size": {"type": "integer"}}}
UNENFORCEABLE = {"type": "object", "properties": {"id": {"$ref": "https://example.com/elsewhere.json"}}}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def schema_of(tool):
    return UNENFORCEABLE if tool == "odd" else SCHEMA


def called(message):
    tool, given = message["params"]["name"], message["params"]["arguments"]
    do, body = given.get("do", "ok"), {"did": tool, "id": str(given.get("id"))}
    if do == "hang":
        return
    if do == "die":
        os._exit(3)
    if do == "garbage":
        send({"id": message["id"], "result": "no result of a call"})
        return
    if do == "big":
        body["filler"] = "x" * 2048
    if do == "secret":
        body["card"] = {"number": "4111 1111 1111 1111", "brand": "visa"}
    result = {"content": [{"type": "text", "text": json.dumps(body)}], "structuredContent": body, "isError": do == "error"}
    send({"id": message["id"], "result": result})


def main():
    for line in sys.stdin:
        with open(os.environ["HEARD"], "a") as heard:
            heard.write(line)
        message = json.loads(line)
        match message.get("method"):
            case "server/discover":
                send({"id": message["id"], "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
            case "tools/list":
                tools = [{"name": tool, "description": f"{DESCRIBED} {tool}.", "inputSchema": schema_of(tool)} for tool in TOOLS]
                send({"id": message["id"], "result": {"tools": tools}})
            case "tools/call":
                called(message)


main()
