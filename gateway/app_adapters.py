"""Settings -> adapters: ledger, upstreams, principals. What this version can't run is refused by name, never passed over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec.structs import replace

from gateway.core import streams
from gateway.core.guards.guard import Shape
from gateway.core.model import Json, Principal, PrincipalCaps
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.sqlite import SqliteLedger
from gateway.policy.schema_index import ShapeError
from gateway.policy.shapes import compile_shape
from gateway.ports import Clock, Ledger, PolicyError, Upstream
from gateway.secret import Secret
from gateway.settings import (
    AuthSettings,
    CommandSettings,
    CommandToolSettings,
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
from gateway.source import SourceError
from gateway.upstreams.catalog import Catalog, CompileShape
from gateway.upstreams.command import CommandTool, CommandUpstream
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.http_request import HttpTool
from gateway.upstreams.mcp_http import McpHttp
from gateway.upstreams.mcp_stdio import McpStdio
from gateway.upstreams.oauth import Tokens
from gateway.upstreams.openapi import Api, read_api
from gateway.upstreams.pins import Pins

_REMARKS = 20
"""Of one document, that are logged."""

log = logging.getLogger("gateway")


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
    """Without a ledger nothing is held against what was accepted. Raises PolicyError for an OpenAPI document that can't be used."""
    own = frozenset(one.name for one in settings.upstreams if not isinstance(one.origin, McpCommandSettings | McpUrlSettings))
    return Catalog([_upstream(one) for one in settings.upstreams], shape, Pins(ledger, own) if ledger is not None else None)


def _upstream(one: UpstreamSettings) -> Upstream:
    origin = one.origin
    if isinstance(origin, HttpSettings):
        return HttpUpstream(one.name, origin.base_url, [_http_tool(tool) for tool in origin.tools], credentials(one.auth))
    if isinstance(origin, McpUrlSettings):
        return McpHttp(one.name, origin.url, credentials(one.auth))
    if isinstance(origin, OpenApiSettings):
        return _openapi(one, origin)
    if isinstance(origin, CommandSettings):
        return CommandUpstream(one.name, [_command_tool(tool) for tool in origin.tools])
    assert isinstance(origin, McpCommandSettings), "refuse_unusable comes first"
    return McpStdio(one.name, origin.argv, env=_revealed(origin.env), cwd=origin.folder)


def _openapi(one: UpstreamSettings, origin: OpenApiSettings) -> HttpUpstream:
    shown = credentials(one.auth)
    try:
        api = read_document(origin, shown, str(origin.document))
    except SourceError as error:
        raise PolicyError(str(error)) from None
    for remark in api.remarks[:_REMARKS]:
        log.warning("upstream %s: %s", one.name, remark)
    if len(api.remarks) > _REMARKS:
        log.warning("upstream %s: %d remarks more; `gateway check` shows them all", one.name, len(api.remarks) - _REMARKS)
    return HttpUpstream(one.name, api.base_url, api.operations, shown)


def read_document(origin: OpenApiSettings, shown: Credentials, name: str, judge: CompileShape | None = None) -> Api:
    """An upstream's document; `name` is what remarks call the file. Raises SourceError."""
    chosen = {"include": origin.include, "exclude": origin.exclude}
    return read_api(origin.document, name, base_url=origin.base_url, **chosen, credentials=shown, judge=judge)


def credentials(auth: AuthSettings) -> Credentials:
    oauth = auth.oauth
    tokens = None
    if oauth is not None:
        client = oauth.client_id.reveal(), oauth.client_secret.reveal()
        tokens = Tokens(oauth.token_url, *client, scope=oauth.scope, audience=oauth.audience, in_body=oauth.in_body)
    return Credentials(_revealed(auth.headers), _revealed(auth.query), tokens)


def _revealed(secrets: Mapping[str, Secret]) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in secrets.items()}


def _http_tool(tool: HttpToolSettings) -> HttpTool:
    return HttpTool(**{name: getattr(tool, name) for name in HttpTool.__dataclass_fields__})


def _command_tool(tool: CommandToolSettings) -> CommandTool:
    known = {name: getattr(tool, name) for name in CommandTool.__dataclass_fields__}
    return CommandTool(**{**known, "env": _revealed(tool.env)})


def shape(schema: Mapping[str, Json]) -> Shape | str:
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
