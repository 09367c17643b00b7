"""Composition root: Settings -> adapters, engine, doors, one ASGI app; opened in order, closed in reverse; and the server around it."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.app_adapters import caps, catalog, ledger, principals, refuse_unusable
from gateway.app_protocol import BoundedHttp
from gateway.core import deployment, events
from gateway.doors.auth import Authenticator, OwnHostOnly
from gateway.doors.mcp import McpDoor
from gateway.doors.names import Names
from gateway.doors.rest import RestDoor
from gateway.engine import Engine, fault, stopping
from gateway.engine.sweep import RECORDING_S
from gateway.policy.lint import Deployment, lint
from gateway.policy.store import LoadedPolicies, load_policies
from gateway.ports import Decision, GatewayFault, Ledger, PolicyError
from gateway.settings import Settings
from gateway.settings_document import is_loopback
from gateway.system import SystemClock, SystemIds

KEEP_ALIVE_S = 75
CONCURRENCY = 4096

log = logging.getLogger("gateway")


def create_app(settings: Settings) -> App:
    """Raises PolicyError when settings or policies can't be used; opens nothing yet."""
    refuse_unusable(settings)
    policies = load_policies(settings.policies)
    known = [principal for _, principal in principals(settings)]
    if wrong := [remark for remark in lint(policies, Deployment(principals=known)) if remark.is_error]:
        raise PolicyError("\n".join(map(str, wrong)))
    return App(settings, policies)


class App:
    """The ASGI application. Nothing is open before its lifespan has started. `policies` and `catalog` are there to be read.

    `fault`: what kept it from starting."""

    def __init__(self, settings: Settings, policies: LoadedPolicies) -> None:
        clock, keys = SystemClock(), _secrets(settings)
        self.policies = policies
        self._grace_ms = settings.stop_grace_ms
        self.fault: GatewayFault | None = None
        self._ledger = ledger(settings, clock)
        self.catalog = catalog(settings, self._ledger)
        self.engine = Engine(
            self._ledger, self.catalog, policies, clock, SystemIds(clock, keys[0]),
            caps=caps(settings), retain_payloads_ms=settings.retain_payloads_ms,
        )  # fmt: skip
        authenticate, names = Authenticator(principals(settings), keys, clock), Names(self.catalog)
        self._rest = RestDoor(self.engine, authenticate, names, self._ready, own_version())
        self._mcp = McpDoor(self.engine, authenticate, names, keys, clock, server_info={"name": "tool-call-gateway", "version": own_version()})
        known = is_loopback(settings.listen.host) and not settings.behind_proxy
        self._doors = OwnHostOnly(self._route, frozenset({settings.listen.host, *settings.hosts}) if known or settings.hosts else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._doors(scope, receive, send)

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"]
        is_mcp = path == "/mcp" or (path.startswith("/r/") and path.endswith("/mcp") and path.count("/") == 3)
        return self._mcp(scope, receive, send) if is_mcp else self._rest(scope, receive, send)

    async def _ready(self) -> None:
        """Raises until calls can be taken, and while they can't: the gateway stops, or its ledger can't be written."""
        if self.engine.stopping:
            raise fault(stopping())
        await self._ledger.transact([deployment.STREAM], lambda states, now: Decision((), None))

    # ---- life -----------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Admit nothing more and answer who waits; what is on the wire has its grace, the rest is recorded. May be called again."""
        self._mcp.stop()  # streams that would go on for ever
        await self.engine.stop(self._grace_ms)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            opened = await self._open()
        except GatewayFault as fault:
            self.fault = fault
            await send({"type": "lifespan.startup.failed", "message": str(fault)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await opened.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> AsyncExitStack:
        """All that was opened, to be closed in reverse; what was opened before a failure is closed again."""
        async with AsyncExitStack() as stack:
            await self._ledger.open()
            stack.push_async_callback(self._ledger.close)
            await record_policies(self._ledger, self.policies)
            stack.push_async_callback(self.catalog.close)
            await self.catalog.open()
            stack.push_async_callback(self.stop)
            await self.engine.start()
            gc.collect()
            gc.freeze()  # what lives as long as the process need never be looked through again
            gc.set_threshold(20_000, 50, 100)  # states are large and free of cycles: 8 % of a call's CPU went into looking through them
            return stack.pop_all()


async def record_policies(ledger: Ledger, policies: LoadedPolicies) -> None:
    """Say in the stream `gateway` which files are loaded, if they are others than last time; their texts are kept."""
    texts = {policy.digest: text for policy, text in policies.documents()}

    def step(states: Mapping[str, Any], now: int) -> Decision:
        known = states[deployment.STREAM]
        if known.policies == policies.digest:
            return Decision((), None)
        loaded = events.PoliciesLoaded(known.number + 1, policies.digest, policies.files)
        return Decision(((deployment.STREAM, loaded),), None, policies=texts)

    await ledger.transact([deployment.STREAM], step)


def _secrets(settings: Settings) -> list[bytes]:
    if settings.secret:
        return [secret.reveal().encode() for secret in settings.secret]
    log.warning("gateway.yaml names no secret, so one was made for this process: run tokens end with it")
    return [secrets.token_bytes(32)]


def own_version() -> str:
    """The version that is installed."""
    try:
        return version("tool-call-gateway")
    except PackageNotFoundError:  # run from its sources
        return "0"


# ---- serving ------------------------------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """`listening` is told the port once the gateway can be reached on it. `guest`: signals are somebody else's to take."""

    listening: Callable[[int], None] | None = None
    guest = False

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with nullcontext() if self.guest else super().capture_signals():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.listening is not None:
            self.listening(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """The gateway stops first, so that whoever waits is answered before connections are closed."""
        ending = asyncio.ensure_future(self._app.stop())
        await super().shutdown(sockets)
        await ending


def server(app: App, settings: Settings) -> Server:
    """A server with its limits set; the doors log what matters, so there is no access log."""
    return Server(
        uvicorn.Config(
            app,
            host=settings.listen.host,
            port=settings.listen.port,
            loop="auto",
            http=BoundedHttp,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONCURRENCY,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.stop_grace_ms // 1000 + RECORDING_S + 2,  # the last resort: the gateway has answered before
            proxy_headers=bool(settings.behind_proxy),
            forwarded_allow_ips=list(settings.behind_proxy),
            ssl_certfile=settings.tls.cert if settings.tls else None,
            ssl_keyfile=settings.tls.key if settings.tls else None,
        ),
        app,
    )


def serve(settings: Settings, listening: Callable[[App, int], None] | None = None, listen: socket.socket | None = None) -> None:
    """Run until SIGINT or SIGTERM. `listening` is told the port once there is one that answers; `listen` is a socket that is open already.

    Raises PolicyError before anything is opened, the app's GatewayFault when that couldn't start, SystemExit(1) when the server couldn't,
    which is then logged."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = create_app(settings)
    running = server(app, settings)
    if listening is not None:
        running.listening = lambda port: listening(app, port)
    with said_once(app):
        try:
            running.run([listen] if listen else None)
        except SystemExit:  # the server's own statuses mean nothing to whoever started us
            raise (app.fault or SystemExit(1)) from None


@contextmanager
def said_once(app: App) -> Iterator[None]:
    """The app's fault is raised, so the server needn't log it too."""
    log_of_server = logging.getLogger("uvicorn.error")
    log_of_server.addFilter(quiet := lambda _: app.fault is None)
    try:
        yield
    finally:
        log_of_server.removeFilter(quiet)
