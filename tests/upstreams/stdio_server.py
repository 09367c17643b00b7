"""An MCP server on stdio that behaves as badly as its first argument and the called tool say. Only the standard library.

Eras: `modern` (2026-07-28), `legacy` (2025-11-25), `silent` (legacy, answers nothing before initialize), `fragile` (legacy, dies of it),
`mute` (never answers), `refusing` (answers initialize with an error). Each message that comes in is appended to the file that $HEARD names.
"""

import json
import os
import subprocess
import sys
import threading
import time

ERA = sys.argv[1]
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang", "die", "flood")]
PENDING: dict = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def raw(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def result(message, value):
    send({"id": message["id"], "result": value})


def text(value):
    return {"content": [{"type": "text", "text": value}], "isError": False}


def error(message, code, words="no"):
    send({"id": message["id"], "error": {"code": code, "message": words}})


def greeted(message):
    """The handshake of each era; True if the message was part of it."""
    if message["method"] == "server/discover":
        if ERA == "modern":
            result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        elif ERA == "fragile":
            os._exit(1)
        elif ERA != "silent":
            error(message, -32601)
        return True
    if message["method"] == "initialize":
        if ERA in ("modern", "refusing"):
            error(message, -32601)
        else:
            result(message, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
        return True
    return False


def listed(message):
    """Two tools a page."""
    start = int(message.get("params", {}).get("cursor", "0"))
    more = {"nextCursor": str(start + 2)} if start + 2 < len(TOOLS) else {}
    result(message, {"tools": TOOLS[start : start + 2], **more})


def echo(message, given):
    result(message, {**text("ok"), "structuredContent": message["params"], "_meta": {"theirs": 1, "tool-call-gateway/call": "faked"}})


def late(message, given):
    threading.Timer(given["seconds"], lambda: result(message, text("late"))).start()


def noise(message, given):
    raw("no json\n\n{\n[1]\n" + '{"jsonrpc":"2.0","id":999,"result":{}}\n' + '{"jsonrpc":"2.0","method":5}\n')
    result(message, text("after the noise"))


def flood(message, given):
    for number in range(20_000):
        print(f"line {number}", file=sys.stderr)
    result(message, text("flooded"))


def big_id_last(message, given):
    raw(json.dumps({"result": text("x" * given["bytes"]), "jsonrpc": "2.0", "id": message["id"]}) + "\n")


def progress(message, given):
    for step in (1, 2):
        send({"method": "notifications/progress", "params": {"progressToken": message["params"]["_meta"]["progressToken"], "progress": step}})
    result(message, text("done"))


def ask(message, given):
    for number, method in enumerate(("ping", "roots/list", "sampling/createMessage", "elicitation/create")):
        PENDING[f"s{number}"] = None
        send({"id": f"s{number}", "method": method, "params": {}})
    PENDING["asked by"] = message


def grandchild(message, given):
    result(message, text(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)))


def change(message, given):
    TOOLS.append({"name": "new", "inputSchema": {"type": "object"}})
    send({"method": "notifications/tools/list_changed"})
    result(message, text("changed"))


def deaf(message, given):
    result(message, text("deaf"))
    time.sleep(60)


CALLS = {
    "echo": echo,
    "late": late,
    "hang": lambda message, given: None,
    "die": lambda message, given: os._exit(3),
    "noise": noise,
    "flood": flood,
    "big": lambda message, given: result(message, text("x" * given["bytes"])),
    "big_id_last": big_id_last,
    "twice": lambda message, given: raw('{"jsonrpc":"2.0","id":ID,"result":{"content":[],"content":[]}}\n'.replace("ID", str(message["id"]))),
    "malformed": lambda message, given: raw('{"jsonrpc":"2.0","id":ID,"result":{},"error":{}}\n'.replace("ID", str(message["id"]))),
    "no_result": lambda message, given: result(message, "text"),
    "progress": progress,
    "ask": ask,
    "grandchild": grandchild,
    "pid": lambda message, given: result(message, text(str(os.getpid()))),
    "change": change,
    "deaf": deaf,
    "unknown": lambda message, given: error(message, -32602, "Unknown tool"),
}


def called(message):
    CALLS[message["params"]["name"]](message, message["params"]["arguments"])


def main():
    print("starting", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "HEARD" in os.environ:
            with open(os.environ["HEARD"], "a") as heard:
                heard.write(line)
        if ERA == "mute" or "method" not in message:
            if message.get("id") in PENDING:
                PENDING[message["id"]] = message
                if all(PENDING.values()):
                    result(PENDING["asked by"], {"content": [], "structuredContent": PENDING})
            continue
        if ERA == "fragile" and message["method"] not in ("initialize", "notifications/initialized", "tools/list", "tools/call"):
            os._exit(1)
        if not greeted(message) and "id" in message:
            (listed if message["method"] == "tools/list" else called)(message)


main()
