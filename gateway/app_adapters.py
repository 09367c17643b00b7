"""Settings -> adapters: ledger, upstreams, principals. What this version can't run is refused by name, never passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from gateway.core import streams
from gateway.core.guards.guard import Shape
from gateway.core.model import Json, Principal, PrincipalCaps
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.sqlite import SqliteLedger
from gateway.policy.schema_index import ShapeError
from gateway.policy.shapes import compile_shape
from gateway.ports import Clock, Ledger, PolicyError, Upstream
from gateway.settings import (
    CommandSettings,
    HttpSettings,
    HttpToolSettings,
    KeySettings,
    McpCommandSettings,
    McpUrlSettings,
    OpenApiSettings,
    Settings,
    UpstreamSettings,
)
from gateway.settings_document import is_loopback
from gateway.upstreams.catalog import Catalog
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.http_request import HttpTool
from gateway.upstreams.mcp_http import McpHttp
from gateway.upstreams.mcp_stdio import McpStdio
from gateway.upstreams.pins import Pins


def refuse_unusable(settings: Settings) -> None:
    """Raises PolicyError, a line a mistake, for what would be unsafe or isn't built yet."""
    if wrong := list(_unusable(settings)):
        raise PolicyError("\n".join(f"gateway.yaml: {line}" for line in wrong))


def _unusable(settings: Settings) -> Iterator[str]:
    """Whoever wrote these parts relies on them; starting without would be a quiet hole."""
    listen = settings.listen
    if not is_loopback(listen.host) and not (settings.keys and (settings.tls or settings.behind_proxy)):
        yield f"listen: {listen.host} can be reached from other machines; that needs principals, and tls or behind_proxy"
    if settings.ledger.postgresql and not settings.secret:
        yield "secret: the processes that share a ledger in PostgreSQL need one in common"
    absent: dict[str, object] = {
        "principals.jwt": settings.jwt,
        "limits.quotas": any(limit.quotas for limit in settings.limits),
        "notify": settings.notify.webhook or settings.notify.apprise,
    }
    kinds = {OpenApiSettings: "openapi", CommandSettings: "command"}
    for one in settings.upstreams:
        kind = kinds.get(type(one.origin))
        absent[f"upstreams.{one.name} ({kind})"] = kind
    yield from (f"{name}: this version can't do that yet; take it out" for name, asked in absent.items() if asked)


def ledger(settings: Settings, clock: Clock, *, readonly: bool = False) -> StoreLedger:
    """Raises PolicyError where the driver isn't installed."""
    made: Callable[..., StoreLedger]
    if settings.ledger.postgresql is not None:
        made = partial(_postgres(), settings.ledger.postgresql.reveal())
    else:
        assert settings.ledger.sqlite is not None
        made = partial(SqliteLedger, settings.ledger.sqlite)
    return made(empty=streams.empty, evolve=streams.evolve, clock=clock, fold_version=streams.FOLD_VERSION, readonly=readonly)


def _postgres() -> Callable[..., StoreLedger]:
    try:
        from gateway.ledger.postgres import PostgresLedger
    except ModuleNotFoundError as missing:
        raise PolicyError(f"ledger: PostgreSQL needs {missing.name}; pip install 'tool-call-gateway[postgres]'") from None
    return PostgresLedger


def catalog(settings: Settings, ledger: Ledger | None = None) -> Catalog:
    """Without a ledger nothing is held against what was accepted."""
    own = frozenset(one.name for one in settings.upstreams if not isinstance(one.origin, McpCommandSettings | McpUrlSettings))
    return Catalog([_upstream(one) for one in settings.upstreams], _shape, Pins(ledger, own) if ledger is not None else None)


def _upstream(one: UpstreamSettings) -> Upstream:
    origin = one.origin
    if isinstance(origin, HttpSettings):
        headers = {name: secret.reveal() for name, secret in one.headers.items()}
        return HttpUpstream(one.name, origin.base_url, [_http_tool(tool) for tool in origin.tools], headers)
    if isinstance(origin, McpUrlSettings):
        return McpHttp(one.name, origin.url, {name: secret.reveal() for name, secret in one.headers.items()})
    assert isinstance(origin, McpCommandSettings), "refuse_unusable comes first"
    return McpStdio(one.name, origin.argv, env={name: secret.reveal() for name, secret in origin.env.items()}, cwd=origin.folder)


def _http_tool(tool: HttpToolSettings) -> HttpTool:
    return HttpTool(**{name: getattr(tool, name) for name in HttpTool.__dataclass_fields__})


def _shape(schema: Mapping[str, Json]) -> Shape | str:
    try:
        return compile_shape(schema)
    except ShapeError as wrong:
        return str(wrong)


def principals(settings: Settings) -> list[tuple[str, Principal]]:
    """Each API key's SHA-256 and its principal, with the roles that the settings give."""
    return [(key.sha256, _principal(key, settings)) for key in settings.keys]


def _principal(key: KeySettings, settings: Settings) -> Principal:
    bare = Principal(key.id, key.groups, key.task_types, key.claims, key.trust, person=key.person)
    return replace(bare, roles=settings.roles.of(bare))


def caps(settings: Settings) -> Callable[[Principal], PrincipalCaps]:
    """What one principal may have open over all its runs; worked out once for each that has a key."""

    def of(principal: Principal) -> PrincipalCaps:
        limits = settings.limits_of(principal)
        return PrincipalCaps(limits.open_runs, limits.open_holds)

    known = {principal.id: of(principal) for _, principal in principals(settings)}
    return lambda principal: known.get(principal.id) or of(principal)
