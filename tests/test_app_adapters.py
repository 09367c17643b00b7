"""Settings to adapters, and what this version refuses to pass over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway import app_adapters
from gateway.core.model import Principal, PrincipalCaps
from gateway.ports import PolicyError
from gateway.secret import Secret
from gateway.settings import (
    CommandSettings,
    JwtSettings,
    LedgerSettings,
    LimitSettings,
    ListenSettings,
    McpCommandSettings,
    McpUrlSettings,
    NotifySettings,
    OpenApiSettings,
    QuotaSettings,
    TlsSettings,
    UpstreamSettings,
)
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.mcp_http import McpHttp
from gateway.upstreams.mcp_stdio import McpStdio
from tests.serving import settings_in


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"jwt": JwtSettings("https://issuer.test", "gateway", "jwks.json")}, "principals.jwt"),
        ({"ledger": LedgerSettings(postgresql=Secret("postgresql://db/x"))}, "postgresql"),
        ({"limits": (LimitSettings(quotas=(QuotaSettings(60_000, tool_calls=5),)),)}, "quotas"),
        ({"notify": NotifySettings(apprise=(Secret("slack://s3cret"),))}, "notify"),
        ({"upstreams": (UpstreamSettings("doc", OpenApiSettings(Path("x"), "http://x")),)}, "upstreams.doc"),
        ({"upstreams": (UpstreamSettings("cmd", CommandSettings((), Path("."))),)}, "upstreams.cmd"),
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
    web = UpstreamSettings("web", McpUrlSettings("http://127.0.0.1:9/mcp"), {"authorization": Secret("Bearer t")})
    settings = settings_in(tmp_path)
    built = [app_adapters._upstream(one) for one in (*settings.upstreams, stdio, web)]
    assert [(type(one), one.name) for one in built] == [(HttpUpstream, "shop"), (McpStdio, "files"), (McpHttp, "web")]


def test_a_schema_that_cannot_be_enforced_is_told_and_not_raised() -> None:
    assert app_adapters._shape({"type": "object"})({}) == ()  # type: ignore[operator]
    assert isinstance(app_adapters._shape({"$ref": "https://evil.example/schema"}), str)


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
    from gateway.system import SystemClock

    ledger = app_adapters.ledger(settings_in(tmp_path), SystemClock())
    await ledger.open()
    await ledger.close()
    assert (tmp_path / "gateway.db").exists()
