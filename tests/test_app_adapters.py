"""Settings to adapters, and what this version refuses to pass over."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gateway import app_adapters
from gateway.core.model import Principal, PrincipalCaps
from gateway.ports import LedgerFault, PolicyError
from gateway.secret import Secret
from gateway.settings import (
    AuthSettings,
    CommandSettings,
    CommandToolSettings,
    JwtSettings,
    LedgerSettings,
    LimitSettings,
    ListenSettings,
    McpCommandSettings,
    McpUrlSettings,
    NotifySettings,
    OAuthSettings,
    OpenApiSettings,
    QuotaSettings,
    TlsSettings,
    UpstreamSettings,
)
from gateway.system import SystemClock
from gateway.upstreams.command import CommandUpstream
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.mcp_http import McpHttp
from gateway.upstreams.mcp_stdio import McpStdio
from tests.serving import settings_in
from tests.upstreams.openapi.stage import FLEET, SHOP


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"jwt": JwtSettings("https://issuer.test", "gateway", "jwks.json")}, "principals.jwt"),
        ({"ledger": LedgerSettings(postgresql=Secret("postgresql://db/x")), "secret": ()}, "secret"),
        ({"limits": (LimitSettings(quotas=(QuotaSettings(60_000, tool_calls=5),)),)}, "quotas"),
        ({"notify": NotifySettings(apprise=(Secret("slack://s3cret"),))}, "notify"),
        ({"listen": ListenSettings("0.0.0.0")}, "listen"),
        ({"listen": ListenSettings("0.0.0.0"), "keys": (), "behind_proxy": ("10.0.0.7",)}, "listen"),
    ],
)
def test_what_would_be_unsafe_or_is_not_built_is_refused_by_name(tmp_path: Path, changed: dict[str, object], named: str) -> None:
    settings = replace(settings_in(tmp_path), **changed)  # type: ignore[arg-type]
    with pytest.raises(PolicyError) as caught:
        app_adapters.refuse_unusable(settings)
    assert named in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path), notify=NotifySettings(apprise=(Secret("slack://s3cret"),)), listen=ListenSettings("0.0.0.0"))
    with pytest.raises(PolicyError) as caught:
        app_adapters.refuse_unusable(settings)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("safe", [{"behind_proxy": ("10.0.0.7",)}, {"tls": TlsSettings(Path("c"), Path("k"))}])
def test_beyond_loopback_principals_with_tls_or_a_proxy_will_do(tmp_path: Path, safe: dict[str, object]) -> None:
    app_adapters.refuse_unusable(replace(settings_in(tmp_path), listen=ListenSettings("0.0.0.0"), **safe))  # type: ignore[arg-type]


def test_a_key_is_its_principal_with_the_roles_that_its_groups_have(tmp_path: Path) -> None:
    found = {principal.id: principal for _, principal in app_adapters.principals(settings_in(tmp_path))}
    assert found["agent:bot"] == Principal("agent:bot", trust=frozenset({"call_id", "idempotency_key"}))
    assert found["user:mia"].roles == {"approver", "operator"}
    assert found["user:mia"].person


def test_caps_are_those_of_the_entry_that_names_the_principal(tmp_path: Path) -> None:
    limits = (LimitSettings(open_runs=3), LimitSettings("group:bulk", open_runs=None, open_holds=7))
    caps = app_adapters.caps(replace(settings_in(tmp_path), limits=limits))
    assert caps(Principal("agent:bot")) == PrincipalCaps(3, 20)
    assert caps(Principal("agent:bulk", frozenset({"bulk"}))) == PrincipalCaps(None, 7)


def test_each_upstream_is_built_as_its_origin_says(tmp_path: Path) -> None:
    stdio = UpstreamSettings("files", McpCommandSettings(("true",), tmp_path, {"TOKEN": Secret("t")}))
    web = UpstreamSettings("web", McpUrlSettings("http://127.0.0.1:9/mcp"), AuthSettings({"authorization": Secret("Bearer t")}))
    document = UpstreamSettings("fleet", OpenApiSettings(FLEET))
    tool = CommandToolSettings("t", "", {"type": "object"}, argv=("true",), cwd=tmp_path, ok_codes=frozenset({3}), env={"A": Secret("s")})
    settings = settings_in(tmp_path)
    own = UpstreamSettings("own", CommandSettings((tool,)))
    built = [app_adapters._upstream(one) for one in (*settings.upstreams, stdio, web, document, own)]
    kinds = [(HttpUpstream, "shop"), (McpStdio, "files"), (McpHttp, "web"), (HttpUpstream, "fleet"), (CommandUpstream, "own")]
    assert [(type(one), one.name) for one in built] == kinds
    command = app_adapters._command_tool(tool)
    assert (command.argv, command.cwd, command.ok_codes, command.env, command.timeout_ms) == (("true",), tmp_path, {3}, {"A": "s"}, 30_000)


@pytest.mark.anyio
async def test_an_openapi_upstream_offers_the_operations_that_are_wanted_and_logs_what_is_remarkable(caplog: pytest.LogCaptureFixture) -> None:
    origin = OpenApiSettings(SHOP, "http://127.0.0.1:9", ("tag:goods", "none"), ("setPrice",))
    upstream = app_adapters._upstream(UpstreamSettings("shop", origin))
    assert [one["name"] for one in await upstream.tools()] == ["createCategory", "addPhoto"]
    assert "'none'" in caplog.text
    assert "X-Shop-Key" in caplog.text


def test_many_remarks_are_logged_only_in_part(caplog: pytest.LogCaptureFixture) -> None:
    app_adapters._upstream(UpstreamSettings("shop", OpenApiSettings(SHOP, None, tuple(f"none{n}" for n in range(50)))))
    assert len(caplog.records) == app_adapters._REMARKS + 1


def test_a_document_that_cannot_be_used_is_a_policy_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text("openapi: 2.0\n")
    with pytest.raises(PolicyError) as caught:
        app_adapters._upstream(UpstreamSettings("doc", OpenApiSettings(tmp_path / "api.yaml")))
    assert str(caught.value).startswith(f"{tmp_path}/api.yaml:1:1")


def test_credentials_are_what_the_settings_hold() -> None:
    oauth = OAuthSettings("http://id/token", Secret("me"), Secret("s3cret"), "read", "api", in_body=True)
    made = app_adapters.credentials(AuthSettings({"x-key": Secret("k")}, {"key": Secret("q")}, oauth))
    assert (made.headers, made.query) == ({"x-key": "k"}, {"key": "q"})
    assert made.tokens is not None
    assert app_adapters.credentials(AuthSettings()).tokens is None


def test_a_schema_that_cannot_be_enforced_is_told_and_not_raised() -> None:
    assert app_adapters.shape({"type": "object"})({}) == ()  # type: ignore[operator]
    assert isinstance(app_adapters.shape({"$ref": "https://evil.example/schema"}), str)


@pytest.mark.anyio
async def test_an_http_upstream_offers_its_tools_with_their_schemas(tmp_path: Path) -> None:
    catalog = app_adapters.catalog(settings_in(tmp_path))
    await catalog.open()
    try:
        tool = catalog.tool("shop.get_order")
        assert tool is not None
        assert tool.definition["inputSchema"]["required"] == ["id"]
        assert tool.shape({"id": 1})
    finally:
        await catalog.close()


@pytest.mark.anyio
async def test_the_ledger_is_the_file_that_the_settings_name(tmp_path: Path) -> None:
    ledger = app_adapters.ledger(settings_in(tmp_path), SystemClock())
    await ledger.open()
    await ledger.close()
    assert (tmp_path / "gateway.db").exists()


POSTGRES = LedgerSettings(postgresql=Secret("postgresql://gateway:s3cret@127.0.0.1:9/db"))


@pytest.mark.anyio
async def test_the_ledger_is_the_database_that_the_settings_name_and_its_password_is_never_said(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path), ledger=POSTGRES)
    app_adapters.refuse_unusable(settings)
    ledger = app_adapters.ledger(settings, SystemClock())
    assert ledger.alone is False
    with pytest.raises(LedgerFault) as fault:
        await ledger.open()
    assert "s3cret" not in repr((settings, fault.value))


def test_without_the_driver_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.ledger.postgres", None)
    with pytest.raises(PolicyError, match=r"tool-call-gateway\[postgres\]"):
        app_adapters.ledger(replace(settings_in(tmp_path), ledger=POSTGRES), SystemClock())
