"""gateway.yaml and the environment to frozen Settings, with all mistakes in one error.

Relative paths start at the file's folder. Parts that this version can't run are described all the same. Beyond loopback the
gateway needs principals, and TLS of its own or a proxy that brings it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.core.model import Principal
from gateway.secret import Secret
from gateway.settings_auth import AuthSettings, OAuthSettings
from gateway.settings_document import Document, Section, host_and_port, http_url, is_loopback
from gateway.settings_schema import PERIODS, SETTINGS_SCHEMA
from gateway.settings_secrets import REFERENCE
from gateway.settings_upstreams import (
    CommandSettings,
    CommandToolSettings,
    HttpSettings,
    HttpToolSettings,
    McpCommandSettings,
    McpUrlSettings,
    OpenApiSettings,
    UpstreamSettings,
    upstreams,
)
from gateway.source import Mistake, Position, SourceError, duration_ms, read_and_check, usd_micros

__all__ = [
    "SETTINGS_SCHEMA",
    "AuthSettings",
    "CommandSettings",
    "CommandToolSettings",
    "HttpSettings",
    "HttpToolSettings",
    "JwtSettings",
    "KeySettings",
    "LedgerSettings",
    "LimitSettings",
    "ListenSettings",
    "McpCommandSettings",
    "McpUrlSettings",
    "NotifySettings",
    "OAuthSettings",
    "OpenApiSettings",
    "QuotaSettings",
    "RoleSettings",
    "Secret",
    "Settings",
    "TlsSettings",
    "UpstreamSettings",
    "WebhookSettings",
    "load_settings",
]

MIN_SECRET = 32
"""Characters of each entry of `secret`."""
_PASSWORD = re.compile(r"//[^/?#@]*:[^/?#]+@|[?&](ssl)?password=[^&]")


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where the doors open; port 0 lets the system choose."""

    host: str = "127.0.0.1"
    port: int = 8700


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """The store: exactly one of a SQLite file and a PostgreSQL address, which may hold a password."""

    sqlite: Path | None = None
    postgresql: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class KeySettings:
    """A principal that comes with an API key, of which only the lower-case hex SHA-256 is known. `trust`: call_id, idempotency_key."""

    id: str
    sha256: str
    person: bool = False
    groups: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    trust: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Whose tokens are believed. `jwks` is a URL or the absolute path of a file."""

    issuer: str
    audience: str
    jwks: str
    id_claim: str = "sub"
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """Who holds each role: ids (`user:mia`) and groups (`group:finance`)."""

    approver: frozenset[str] = frozenset()
    operator: frozenset[str] = frozenset()
    viewer: frozenset[str] = frozenset()
    reporter: frozenset[str] = frozenset()

    def of(self, principal: Principal) -> frozenset[str]:
        return frozenset(name for name in self.__dataclass_fields__ if principal.matches(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """What a principal may use up in a window; None = unlimited."""

    window_ms: int
    turns: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    usd_micros: int | None = None


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one principal may have. `applies_to` names a principal or a group; None: all that no other entry names."""

    applies_to: str | None = None
    open_runs: int | None = None
    open_holds: int = 20
    quotas: tuple[QuotaSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where notifications are posted, and what signs them."""

    url: Secret
    secret: Secret


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """How people learn of held calls; `apprise` holds Apprise URLs, which carry tokens."""

    webhook: WebhookSettings | None = None
    apprise: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole of gateway.yaml. An empty `secret` means: make one for this process, and say so. `hosts`: in lower case."""

    listen: ListenSettings
    ledger: LedgerSettings
    policies: Path
    secret: tuple[Secret, ...]
    upstreams: tuple[UpstreamSettings, ...]
    keys: tuple[KeySettings, ...]
    jwt: JwtSettings | None
    roles: RoleSettings
    limits: tuple[LimitSettings, ...]
    notify: NotifySettings
    retain_payloads_ms: int | None
    stop_grace_ms: int
    tls: TlsSettings | None
    behind_proxy: tuple[str, ...]
    hosts: tuple[str, ...]

    def limits_of(self, principal: Principal) -> LimitSettings:
        """The first entry `for` this principal or one of its groups, else the general one."""
        named = (limit for limit in self.limits if limit.applies_to and principal.matches(frozenset({limit.applies_to})))
        return next(named, None) or next((limit for limit in self.limits if limit.applies_to is None), LimitSettings())


def load_settings(path: str | Path, environ: Mapping[str, str]) -> Settings:
    """Read the deployment file; `environ` is where `${env:…}` looks. Raises SourceError with every mistake."""
    file = Path(path)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise SourceError([Mistake(Position(str(path), 1, 1), f"can't be read: {error.strerror}")]) from error
    source, mistakes = read_and_check(str(path), text, SETTINGS_SCHEMA)
    document = Document(source, mistakes, environ, file.parent.absolute())
    settings = _settings(document.root)
    if document.mistakes:
        raise SourceError(document.mistakes)
    return settings


def _settings(root: Section) -> Settings:
    principals = root.section("principals")
    return Settings(
        listen=_listen(root),
        ledger=_ledger(root),
        policies=root.document.folder / root.get("policies", "policies"),
        secret=_secret(root),
        upstreams=upstreams(root),
        keys=_keys(principals),
        jwt=_jwt(principals),
        roles=_roles(root),
        limits=_limits(root),
        notify=_notify(root.section("notify")),
        retain_payloads_ms=root.section("retention").convert("payloads", duration_ms, None),
        stop_grace_ms=root.convert("stop_grace", duration_ms, 10_000),
        tls=_tls(root),
        behind_proxy=_behind_proxy(root),
        hosts=tuple(map(str.lower, root.get("hosts", ()))) if root.sound("hosts") else (),
    )


def _listen(root: Section) -> ListenSettings:
    listen = ListenSettings(*root.convert("listen", host_and_port, ("127.0.0.1", 8700)))
    principals = root.section("principals").members
    missing = [] if principals.get("keys") or principals.get("jwt") or not root.sound("principals") else ["principals"]
    missing += [] if "tls" in root.members or "behind_proxy" in root.members else ["tls or behind_proxy"]
    if missing and not is_loopback(listen.host):
        root.report(f"{listen.host} can be reached from other machines; that needs {' and '.join(missing)}", "listen")
    return listen


def _ledger(root: Section) -> LedgerSettings:
    written: Secret = root.get("ledger", Secret("sqlite:gateway.db"))
    kind, _, place = written.reveal().partition(":")
    if kind == "sqlite" and place:
        return LedgerSettings(sqlite=root.document.folder / place)
    if kind != "postgresql" or not place.startswith("//"):
        root.report("a ledger is sqlite:FILE or postgresql://…", "ledger")
    elif _PASSWORD.search(REFERENCE.sub("", root.document.source.data["ledger"])):
        root.report("a password doesn't belong in this file; write ${env:NAME} or ${file:path} in its place", "ledger")
    return LedgerSettings(postgresql=written)


def _secret(root: Section) -> tuple[Secret, ...]:
    secrets: tuple[Secret, ...] = tuple(root.get("secret", ())) if root.sound("secret") else ()
    for index, secret in enumerate(secrets):
        if len(secret.reveal()) < MIN_SECRET:
            root.report(f"what the reference leads to is shorter than {MIN_SECRET} characters", "secret", index)
    return secrets


def _keys(principals: Section) -> tuple[KeySettings, ...]:
    seen: dict[str, int] = {}
    keys = []
    for key in principals.sections("keys"):
        sha256 = key.members["sha256"].lower()
        for name, value in (("id", key.members["id"]), ("sha256", sha256)):
            if value in seen:
                key.report(f"this {name} stands already at line {seen[value]}", name)
            seen.setdefault(value, key.line(name))
        sets = {name: frozenset(key.get(name, ())) for name in ("groups", "task_types", "trust")}
        keys.append(KeySettings(key.members["id"], sha256, key.get("person", False), claims=key.get("claims", {}), **sets))
    return tuple(keys)


def _jwt(principals: Section) -> JwtSettings | None:
    if "jwt" not in principals.members or not principals.sound("jwt"):
        return None
    jwt = principals.section("jwt")
    folder = jwt.document.folder
    jwks = jwt.convert("jwks", lambda text: http_url(text, query=True) if "://" in text else str(folder / text), "")
    known = {name: jwt.members[name] for name in JwtSettings.__dataclass_fields__ if name in jwt.members}
    return JwtSettings(**{**known, "jwks": jwks})


def _roles(root: Section) -> RoleSettings:
    roles = root.section("roles").members if root.sound("roles") else {}
    return RoleSettings(**{name: frozenset(roles[name]) for name in RoleSettings.__dataclass_fields__ if name in roles})


def _limits(root: Section) -> tuple[LimitSettings, ...]:
    if not root.sound("limits"):
        return ()
    written = root.get("limits", [])
    entries = list(root.sections("limits")) if isinstance(written, list) else [root.section("limits")]
    general = LimitSettings()
    for entry in entries:
        if "for" not in entry.members:
            general = _limit(entry, general)
    seen: dict[str | None, int] = {}
    for entry in entries:
        whom = entry.get("for")
        if whom in seen:
            entry.report(f"limits for {whom or 'everyone'} stand already at line {seen[whom]}")
        seen.setdefault(whom, entry.line())
    return tuple(_limit(entry, general) for entry in entries)


def _limit(entry: Section, general: LimitSettings) -> LimitSettings:
    """What an entry leaves out is as in the general one."""
    return LimitSettings(
        entry.get("for"),
        entry.get("open_runs", general.open_runs),
        entry.get("open_holds", general.open_holds),
        tuple(_quota(quota) for quota in entry.sections("quotas")) if "quotas" in entry.members else general.quotas,
    )


def _quota(quota: Section) -> QuotaSettings:
    counts = {name: quota.get(name) for name in ("turns", "tool_calls", "tokens")}
    return QuotaSettings(PERIODS[quota.members["per"]], **counts, usd_micros=quota.convert("cost_usd", usd_micros, None))


def _notify(notify: Section) -> NotifySettings:
    webhook = None
    if "webhook" in notify.members and notify.sound("webhook"):
        section = notify.section("webhook")
        url = section.convert("url", lambda secret: Secret(http_url(secret.reveal(), query=True)), Secret(""))
        webhook = WebhookSettings(url, section.members["secret"])
    return NotifySettings(webhook, tuple(notify.get("apprise", ())))


def _tls(root: Section) -> TlsSettings | None:
    if "tls" not in root.members or not root.sound("tls"):
        return None
    tls = root.section("tls").members
    return TlsSettings(root.document.folder / tls["cert"], root.document.folder / tls["key"])


def _behind_proxy(root: Section) -> tuple[str, ...]:
    addresses = root.get("behind_proxy", ()) if root.sound("behind_proxy") else ()
    for index, address in enumerate(addresses):
        try:
            ipaddress.ip_network(address)
        except ValueError:
            root.report(f'"{address}" is no address such as 10.0.0.7 and no network such as 10.0.0.0/24', "behind_proxy", index)
    return tuple(addresses)
