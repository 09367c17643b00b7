"""`auth` of an upstream: how the gateway shows who it is, and what is wrong with that; never the agent's own credentials.

What goes into a header or the query is made here, once; only a token by OAuth is fetched later.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gateway.secret import Secret
from gateway.settings_document import Section, http_url

FRAMING = frozenset(
    ["connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
)
"""Headers that belong to the connection or the message's framing."""

_Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Client credentials (RFC 6749 §4.4). `in_body`: the client shows its secret in the form, not by HTTP Basic (§2.3.1)."""

    token_url: str
    client_id: Secret
    client_secret: Secret
    scope: str | None = None
    audience: str | None = None
    in_body: bool = False


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """What goes with every request: `headers` by their lower-case names, parameters of the query, and a bearer token by `oauth`."""

    headers: Mapping[str, Secret] = field(default_factory=dict)
    query: Mapping[str, Secret] = field(default_factory=dict)
    oauth: OAuthSettings | None = None


def auth(upstream: Section) -> AuthSettings:
    """The credentials of an upstream; their mistakes are reported to the document."""
    section = upstream.section("auth")
    if not upstream.sound("auth"):
        return AuthSettings()
    oauth = _oauth(section.section("oauth")) if "oauth" in section.members else None
    return AuthSettings(_headers(section), dict(_query(section)), oauth)


def _headers(auth: Section) -> dict[str, Secret]:
    headers: dict[str, Secret] = {}
    for steps, name, secret in _written(auth):
        if name in headers or (name == "authorization" and "oauth" in auth.members):
            auth.report(f"the header {name} is set twice", *steps)
        elif name in FRAMING:
            auth.report(f"the header {name} can't be set", *steps)
        elif not re.fullmatch("[!-~]([ -~]*[!-~])?", secret.reveal()):
            auth.report("what the reference leads to can't stand in a header: only printable ASCII can", *steps)
        headers[name] = secret
    return headers


def _written(auth: Section) -> Iterator[tuple[_Steps, str, Secret]]:
    """Where each credential stands, the lower-case name of its header, and the header's value."""
    if bearer := auth.get("bearer"):
        yield ("bearer",), "authorization", Secret(f"Bearer {bearer.reveal()}")
    if basic := auth.get("basic"):
        pair = f"{basic['user']}:{basic['password'].reveal()}"
        yield ("basic",), "authorization", Secret(f"Basic {base64.b64encode(pair.encode()).decode()}")
    if (key := auth.get("api_key")) and "header" in key:
        yield ("api_key", "value"), key["header"].lower(), key["value"]
    for name, secret in auth.get("headers", {}).items():
        yield ("headers", name), name.lower(), secret


def _query(auth: Section) -> Iterator[tuple[str, Secret]]:
    key = auth.get("api_key", {})
    if key and ("header" in key) == ("query" in key):
        auth.report("an api_key goes into either header or query, under the name that stands there", "api_key")
    elif "query" in key:
        yield key["query"], key["value"]


def _oauth(oauth: Section) -> OAuthSettings:
    url = oauth.convert("token_url", lambda text: http_url(text, query=True), "")
    known = {name: oauth.get(name) for name in ("scope", "audience")}
    return OAuthSettings(url, oauth.members["client_id"], oauth.members["client_secret"], **known, in_body=oauth.get("client_auth") == "body")
