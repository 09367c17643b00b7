"""Credentials of upstreams: what is made of them, what is wrong with them and where, and that none shows itself."""

import pytest

from gateway.settings import load_settings
from gateway.settings_auth import AuthSettings
from gateway.source import SourceError

ENVIRON = {"TOKEN": "hunter2", "BAD": "hunter2\nx: y"}
OAUTH = "token_url: 'https://id/token', client_id: me, client_secret: '${env:TOKEN}'"


@pytest.fixture
def load(tmp_path):
    def load(auth: str) -> AuthSettings:
        (tmp_path / "gateway.yaml").write_text(f"upstreams:\n  a: {{mcp: {{url: 'http://a'}}, auth: {auth}}}\n")
        return load_settings(tmp_path / "gateway.yaml", ENVIRON).upstreams[0].auth

    return load


def revealed(secrets) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in secrets.items()}


def test_each_way_becomes_headers_or_a_query_that_do_not_show_themselves(load):
    key = "api_key: {header: X-Key, value: '${env:TOKEN}'}"
    auth = load(f"{{basic: {{user: mia, password: '${{env:TOKEN}}'}}, headers: {{X-Tenant: 't-${{env:TOKEN}}'}}, {key}}}")
    assert revealed(auth.headers) == {"authorization": "Basic bWlhOmh1bnRlcjI=", "x-tenant": "t-hunter2", "x-key": "hunter2"}
    assert "hunter2" not in repr(auth)
    assert "bWlhOmh1" not in repr(auth)
    assert revealed(load("{bearer: '${env:TOKEN}'}").headers) == {"authorization": "Bearer hunter2"}
    assert revealed(load("{api_key: {query: key, value: '${env:BAD}'}}").query) == {"key": ENVIRON["BAD"]}


def test_oauth_has_its_endpoint_its_client_and_what_is_asked_for(load):
    oauth = load(f"{{oauth: {{{OAUTH}, scope: 'a b', audience: api, client_auth: body}}}}").oauth
    assert (oauth.token_url, oauth.client_id.reveal(), oauth.client_secret.reveal()) == ("https://id/token", "me", "hunter2")
    assert (oauth.scope, oauth.audience, oauth.in_body) == ("a b", "api", True)
    assert "hunter2" not in repr(oauth)
    plain = load(f"{{oauth: {{{OAUTH}}}}}").oauth
    assert (plain.scope, plain.audience, plain.in_body) == (None, None, False)


@pytest.mark.parametrize(
    ("auth", "column"),
    [
        ("{}", 37),
        ("{bearer: hunter2}", 46),
        ("{bearer: '${env:BAD}'}", 46),
        ("{bearer: '${env:NONE}'}", 46),
        ("{basic: {user: 'a:b', password: '${env:TOKEN}'}}", 52),
        ("{basic: {user: a, password: hunter2}}", 65),
        ("{bearer: '${env:TOKEN}', basic: {user: a, password: '${env:TOKEN}'}}", 69),
        ("{headers: {Content-Length: '${env:TOKEN}'}}", 64),
        ("{headers: {X-Key: '${env:TOKEN}', x-key: '${env:TOKEN}'}}", 78),
        ("{headers: {X-Key: '${env:TOKEN}'}, api_key: {header: x-key, value: '${env:TOKEN}'}}", 55),
        ("{headers: {X-Key: hunter2}}", 55),
        ("{api_key: {value: '${env:TOKEN}'}}", 47),
        ("{api_key: {header: X-Key, query: key, value: '${env:TOKEN}'}}", 47),
        ("{api_key: {header: 'X Key', value: '${env:TOKEN}'}}", 56),
        ("{api_key: {header: X-Key, value: hunter2}}", 70),
        ("{api_key: {header: Host, value: '${env:TOKEN}'}}", 69),
        ("{api_key: {query: key}}", 47),
        ("{oauth: {}}", 45),
        ("{oauth: {token_url: 'ftp://id', client_id: me, client_secret: '${env:TOKEN}'}}", 57),
        ("{oauth: {token_url: 'https://u:p@id', client_id: me, client_secret: '${env:TOKEN}'}}", 57),
        ("{oauth: {token_url: 'https://id', client_id: me, client_secret: hunter2}}", 101),
        (f"{{oauth: {{{OAUTH}, client_auth: jwt}}}}", 136),
        (f"{{oauth: {{{OAUTH}}}, bearer: '${{env:TOKEN}}'}}", 132),
    ],
)
def test_what_can_not_work_is_refused_at_its_place_and_not_shown(load, auth, column):
    with pytest.raises(SourceError) as caught:
        load(auth)
    assert {(mistake.position.line, mistake.position.column) for mistake in caught.value.mistakes} == {(2, column)}
    assert "hunter2" not in str(caught.value)
