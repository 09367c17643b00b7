"""`gateway stdio`: an MCP server for clients that start processes, on the deployment's policies and ledger.

Whoever can listen at the settings' address is the gateway, over HTTP too, since people approve there; whoever can't speaks to the one that does.
A client that outlives its gateway looks again, and may become it. On stdout stands nothing but the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import signal
import socket
from contextlib import ExitStack
from typing import Any

import httpx

from gateway.app import App, Server, create_app, said_once, server
from gateway.cli.arguments import CONFIG, command, url
from gateway.cli.output import Failure, note
from gateway.cli.place import address, own_key, settings
from gateway.cli.serving import log_to_stderr
from gateway.doors.http import MAX_BODY
from gateway.ports import LedgerFault
from gateway.settings import Settings
from gateway.stdio.bridge import Bridge, Gateway
from gateway.stdio.pipes import Closed, Pipes

PATIENCE_S = 10.0
"""How long a gateway is looked for: one that ends keeps its ledger a little longer than its address."""
AGAIN_S = 0.5
READY_S = 30.0
LAST_WORDS_S = 1.0
"""A client may close its end and still wait for answers; official ones send a signal after 2 s."""


def add(commands: Any) -> None:
    one = command(commands, "stdio", "be an MCP server on stdin and stdout, for clients that start processes", run_stdio)
    one.add_argument("--run", dest="run_key", metavar="RUN_KEY", type=run_key, help="the run of its calls (default: the principal's implicit one)")
    one.add_argument("--url", type=url, help=f"speak to the gateway at this address, whatever {CONFIG} says, and never become one")


def run_key(text: str) -> str:
    if not (text.isascii() and text.isprintable() and 0 < len(text) <= 256):
        raise argparse.ArgumentTypeError("a run key is 1 to 256 printable ASCII characters")
    return text


def run_stdio(args: argparse.Namespace) -> None:
    headers = {"authorization": f"Bearer {own_key()}"} | ({"gateway-run": args.run_key} if args.run_key else {})
    way = Way(None if args.url else settings(args.config), args.url, headers)
    log_to_stderr()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    protocol = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes where people look
    asyncio.run(bridged(way, 0, protocol))


async def bridged(way: Way, into: int, out: int) -> None:
    """Until the client closes its end, or a signal. Raises Failure if there is no gateway and none can be started."""
    loop, work = asyncio.get_running_loop(), asyncio.ensure_future(_bridge(way, into, out))
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        pass
    finally:
        await way.close()


async def _bridge(way: Way, into: int, out: int) -> None:
    pipes, over = Pipes(into, out, MAX_BODY), asyncio.get_running_loop().create_future()

    async def say(message: bytes) -> None:
        try:
            await pipes.say(message)
        except Closed:
            over.cancel()
            raise

    async def hear() -> None:
        async for line in pipes.lines():
            await bridge.hear(line)

    await way.open()
    bridge = Bridge(way, say)
    hearing = asyncio.ensure_future(hear())
    try:
        await asyncio.wait({hearing, over}, return_when=asyncio.FIRST_COMPLETED)
        await bridge.finish(LAST_WORDS_S)
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        await bridge.close()


class Way:
    """The port `Link`. `settings`: None if only `url` counts."""

    found: Gateway

    def __init__(self, settings: Settings | None, url: str | None, headers: dict[str, str]) -> None:
        self._settings, self._url, self._headers = settings, url, headers
        self._looking = asyncio.Lock()
        self._clients: list[httpx.AsyncClient] = []
        self._own: tuple[Server, asyncio.Task[None]] | None = None

    async def open(self) -> None:
        """Raises Failure, and PolicyError for settings or policies that can't be used."""
        try:
            self.found = await self._find()
        except ConnectionError as fault:
            raise Failure(str(fault)) from None

    async def renew(self, lost: Gateway) -> None:
        async with self._looking:
            if self.found is lost:
                self.found = await self._find()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        if self._own is not None:
            running, serving = self._own
            running.should_exit = True
            await serving

    async def _find(self) -> Gateway:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while True:
            try:
                return await self._try()
            except (ConnectionError, LedgerFault) as fault:
                if loop.time() >= end:
                    raise ConnectionError(str(fault)) from None
            await asyncio.sleep(AGAIN_S)

    async def _try(self) -> Gateway:
        """Raises ConnectionError or LedgerFault where another moment may help."""
        if self._settings is None or self._own is not None:
            return await self._at(str(self._url))
        at = _listening(self._settings)
        if at is None:
            return await self._at(address(self._settings))
        with ExitStack() as undo:
            undo.callback(at.close)
            found = await self._serving(self._settings, at)
            undo.pop_all()
        return found

    async def _at(self, url: str, *, ours: bool = False) -> Gateway:
        """The gateway that is ready there; our own needs no certificate for the name by which we ask."""
        base = url.rstrip("/")
        timeout = httpx.Timeout(None, connect=READY_S)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        client = httpx.AsyncClient(headers=self._headers, timeout=timeout, limits=limits, trust_env=False, verify=not ours)
        self._clients.append(client)
        try:
            answer = await client.get(f"{base}/readyz", timeout=READY_S)
        except (httpx.HTTPError, httpx.InvalidURL) as fault:
            raise ConnectionError(f"The gateway at {base} can't be reached: {fault or type(fault).__name__}.") from None
        if not answer.is_success:
            raise ConnectionError(f"What listens at {base} is no gateway that is ready; it answers /readyz with {answer.status_code}.")
        return Gateway(client, f"{base}/mcp")

    async def _serving(self, found: Settings, at: socket.socket) -> Gateway:
        """Be the gateway."""
        app = create_app(found)
        running = server(app, found)
        running.guest, port = True, asyncio.get_running_loop().create_future()
        running.listening = port.set_result
        serving = asyncio.ensure_future(_served(app, running, at))
        await asyncio.wait({serving, port}, return_when=asyncio.FIRST_COMPLETED)
        if not port.done():
            raise app.fault or Failure("The gateway could not be started; the log says why.")
        self._own = running, serving
        self._url = address(found).rpartition(":")[0] + f":{port.result()}"
        note(f"gateway at {self._url}, as long as this client stays")
        return await self._at(self._url, ours=True)


async def _served(app: App, running: Server, at: socket.socket) -> None:
    with said_once(app):
        try:
            await running.serve(sockets=[at])
        except SystemExit:
            pass  # how the server says that it didn't start; the app says why


def _listening(found: Settings) -> socket.socket | None:
    """The address, taken; None if somebody else has it."""
    host, port = found.listen.host, found.listen.port
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise Failure(f"Can't listen on {host} port {port}: {error.strerror}.") from None
