"""An HTTP upstream as a process of its own that misbehaves on demand: `python -m tests.faults.upstream FOLDER` says its port and serves.

A tool is a POST to `/<tool>` with its arguments as JSON. The argument `do` names the fault, or several with commas between them: the first
request of an `id` meets the first one, the next the next, all later ones the last. FAULTS says what each does; whatever took effect stands in
the journal before a byte of the answer leaves. `gate` waits until the file `gates/<id>` is there.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.journal import ANSWERED, DID, TOOK, Journal

HUGE = 17 * 1024 * 1024
_LONGEST = 256 * 1024
_POLL_S, _POLLS = 0.002, 1_000
_SLOW_S = 0.03


@dataclass(frozen=True)
class Request:
    """As it came in; header names in lower case."""

    tool: str
    headers: Mapping[str, str]
    body: bytes
    length: int

    @property
    def arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Wire:
    """One accepted connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def peek(self) -> Request | None:
        """The next request whole, left unread in the socket; None if the client has hung up, or stops in the middle."""
        for _ in range(_POLLS):
            data = self._socket.recv(_LONGEST, socket.MSG_PEEK)
            if not data or (request := _parsed(data)) is not None:
                return request if data else None
            time.sleep(_POLL_S)  # a peek can't wait for more than is there
        return None

    def read(self, request: Request) -> None:
        left = request.length
        while left:
            left -= len(self._socket.recv(left))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, body: bytes, status: str = "200 OK", **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
        self.send(head.encode() + body)

    def reset(self) -> None:
        """RST instead of FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def wait_for_end(self) -> None:
        """Until the client hangs up."""
        while self._socket.recv(4096):
            pass


def _parsed(data: bytes) -> Request | None:
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if len(rest) < length:
        return None
    return Request(first.split(" ")[1].lstrip("/"), headers, rest[:length], len(head) + 4 + length)


# ---- what can go wrong --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What becomes of a request that was read: does it take effect, and what is sent; False from `send` ends the connection."""

    send: Callable[[Wire, bytes], bool]
    effect: bool = True


def _says(status: str, **headers: str) -> Callable[[Wire, bytes], bool]:
    def send(wire: Wire, body: bytes) -> bool:
        wire.answer(body, status, **headers)
        return True

    return send


def _breaks(data: bytes) -> Callable[[Wire, bytes], bool]:
    def send(wire: Wire, body: bytes) -> bool:
        wire.send(data)
        return False

    return send


def _hang(wire: Wire, body: bytes) -> bool:
    wire.wait_for_end()
    return False


def _reset(wire: Wire, body: bytes) -> bool:
    wire.reset()
    return False


def _drip(wire: Wire, body: bytes) -> bool:
    wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while True:
        wire.send(b" ")
        time.sleep(0.02)


def _slow(wire: Wire, body: bytes) -> bool:
    time.sleep(_SLOW_S)
    wire.answer(body)
    return True


def _huge(wire: Wire, body: bytes) -> bool:
    wire.answer(b" " * HUGE)
    return False


FAULTS: Mapping[str, Fault] = {
    "ok": Fault(_says("200 OK")),
    "gate": Fault(_says("200 OK")),
    "slow": Fault(_slow),
    "stale": Fault(_says("200 OK")),  # and the next request on this connection is read and not answered
    "unread": Fault(_reset, effect=False),  # reset before the request is read
    "hang": Fault(_hang),
    "reset": Fault(_reset),
    "close": Fault(_breaks(b"")),
    "cut": Fault(_breaks(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")),
    "cut_chunk": Fault(_breaks(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{")),
    "garbage": Fault(_breaks(b"HELO this is no HTTP\r\n\r\n")),
    "drip": Fault(_drip),
    "huge": Fault(_huge),
    "429": Fault(_says("429 Too Many"), effect=False),
    "429_later": Fault(_says("429 Too Many", retry_after="1"), effect=False),
    "503": Fault(_says("503 Busy"), effect=False),
    "503_later": Fault(_says("503 Busy", retry_after="1"), effect=False),
    "500": Fault(_says("500 Failed")),
    "409": Fault(_says("409 Taken"), effect=False),
    "422": Fault(_says("422 Wrong"), effect=False),
    "redirect": Fault(_says("302 Found", location="http://127.0.0.1:9/elsewhere"), effect=False),
}


class Upstream:
    def __init__(self, folder: Path) -> None:
        self._gates = folder / "gates"
        self._gates.mkdir(parents=True, exist_ok=True)
        self._journal = Journal(folder / "journal")
        self._met: Counter[str] = Counter()
        self._lock = threading.Lock()

    def serve(self, connection: socket.socket) -> None:
        """One connection from its first request to its end."""
        wire = Wire(connection)
        try:
            while (request := wire.peek()) is not None and self._meet(wire, request):
                pass
        except OSError:
            pass  # the client hung up or reset; what it is owed stands in the journal
        finally:
            connection.close()

    def _meet(self, wire: Wire, request: Request) -> bool:
        does, arguments, key = self._does(request), request.arguments, request.headers.get("idempotency-key")
        fault = FAULTS[does]
        if does == "unread":
            return fault.send(wire, b"")
        wire.read(request)
        self._journal.note(TOOK, request.tool, key, arguments, int(request.headers["gateway-remaining-ms"]))
        while does == "gate" and not (self._gates / str(arguments["id"])).exists():
            time.sleep(_POLL_S)
        if fault.effect:
            self._journal.note(DID, request.tool, key, arguments)
        goes_on = fault.send(wire, json.dumps({"did": request.tool, "id": arguments.get("id")}).encode())
        self._journal.note(ANSWERED, request.tool, key, arguments)
        return self._leave(wire) if does == "stale" else goes_on

    def _does(self, request: Request) -> str:
        """The fault of this request, by how many of its id came before."""
        arguments = request.arguments
        script = str(arguments.get("do", "ok")).split(",")
        with self._lock:
            met = self._met[str(arguments.get("id"))]
            self._met[str(arguments.get("id"))] += 1
        return script[min(met, len(script) - 1)]

    def _leave(self, wire: Wire) -> bool:
        """The connection has gone stale: who uses it again is read, and gets nothing."""
        request = wire.peek()
        if request is not None:
            wire.read(request)
            self._journal.note(TOOK, request.tool, request.headers.get("idempotency-key"), request.arguments)
        return False


def main() -> None:
    upstream = Upstream(Path(sys.argv[1]))
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=upstream.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
