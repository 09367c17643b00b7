"""`python mirror_server.py ERA stdio | PORT_FILE`: an MCP server that answers each call with the very text that it was given as its result;
its tool `hang` never answers.

ERA is `2026` or `session`. Only the standard library, and nothing between the text and the wire. Over HTTP each second answer is an event
stream.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ERA, WHERE = sys.argv[1:]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "mirror", "inputSchema": TEXT},
    {"name": "keep", "inputSchema": TEXT},
    {"name": "hang", "inputSchema": {"type": "object"}},
    {
        "name": "odd",
        "title": "Größe \u2028",
        "description": "Has what no revision knows.",
        "inputSchema": {**TEXT, "x-unknown": {"big": 2**70, "deep": [[[{"": None}]]]}},
        "annotations": {"readOnlyHint": True, "x-new": 1.0},
        "icons": [{"src": "data:,", "x-more": -0.0}],
        "_meta": {"a/b": {"c": [2**64, 0.1]}},
        "execution": {"unknown": "\U0001f600"},
    },
]
CAPABILITIES = {"tools": {}}


def answer(message):
    """The text of an answer; None to what wants none."""
    if "id" not in message or "method" not in message:
        return None
    method, params = message["method"], message.get("params", {})
    if method == "tools/call":
        result = params["arguments"]["text"]
    elif method == "tools/list":
        result = json.dumps({"tools": TOOLS})
    elif method == "server/discover" and ERA == "2026":
        result = json.dumps({"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES})
    elif method == "initialize" and ERA == "session":
        result = json.dumps({"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": {"name": "mirror", "version": "1"}})
    else:
        error = json.dumps({"code": -32601, "message": "Method not found"})
        return f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"error":{error}}}'
    return f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{result}}}'


class Post(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    count = 0

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if message["method"] == "tools/call" and message["params"]["name"] == "hang":
            self.close_connection = True
            self.rfile.read(1)  # ends when the other side does
            return
        said = answer(message)
        Post.count += 1
        if said is None:
            self.reply(202, "text/plain", b"")
        elif Post.count % 2 and message["method"] == "tools/call":
            self.reply(200, "text/event-stream", f"data: {said}\n\n".encode())
        else:
            self.reply(200, "application/json", said.encode())

    def do_GET(self):
        self.reply(405, "text/plain", b"")

    def do_DELETE(self):
        self.reply(200, "text/plain", b"")

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if ERA == "session":
            self.send_header("mcp-session-id", "one")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said):
        pass


if WHERE == "stdio":
    for line in sys.stdin:
        said = None if '"name":"hang"' in line else answer(json.loads(line))
        if said is not None:
            print(said, flush=True)
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Post)
    server.daemon_threads = True
    Path(WHERE).with_suffix(".new").write_text(str(server.server_port))
    Path(WHERE).with_suffix(".new").rename(WHERE)
    server.serve_forever()
