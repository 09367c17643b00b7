"""gateway.yaml: everything in it, its rules, and all its mistakes at once."""

import dataclasses
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.model import Principal
from gateway.settings import LimitSettings, QuotaSettings, load_settings
from gateway.source import SourceError

SECRET = "0123456789abcdef0123456789abcdef"
ENVIRON = {"SECRET": SECRET, "SHORT": "hunter2", "HOOK": "whsec_hunter2"}
A, B = "a" * 64, "b" * 64
KEY = f'{{id: "agent:a", sha256: "{A}"}}'


@pytest.fixture
def load(tmp_path):
    def load(text: str):
        (tmp_path / "gateway.yaml").write_text(text)
        return load_settings(tmp_path / "gateway.yaml", ENVIRON)

    return load


@pytest.fixture
def refused(load):
    def refused(text: str) -> list[tuple[int, int]]:
        with pytest.raises(SourceError) as caught:
            load(text)
        assert not any(secret in str(caught.value) for secret in (SECRET, "hunter2"))
        return [(mistake.position.line, mistake.position.column) for mistake in caught.value.mistakes]

    return refused


WHOLE = f"""
listen: 0.0.0.0:8700
ledger: sqlite:data/gateway.db
policies: rules/
secret: ["${{env:SECRET}}", "${{file:old}}"]
upstreams:
  crm: {{mcp: {{url: "http://127.0.0.1:9001/mcp"}}}}
principals:
  keys:
  - {{id: "agent:refund-bot", groups: [support], task_types: [interactive], claims: {{tenant: acme, level: 3}}, trust: [call_id], sha256: "{A}"}}
  - {{id: "user:mia", person: true, groups: [finance], sha256: "{B.upper()}"}}
  jwt: {{issuer: "https://idp", audience: gateway, jwks: keys.json, groups_claim: roles}}
roles: {{approver: ["group:finance"], operator: ["user:mia"], viewer: []}}
limits: {{open_runs: 20, quotas: [{{per: day, tool_calls: 5000, cost_usd: 50}}]}}
notify: {{webhook: {{url: "https://hook?token=${{env:SHORT}}", secret: "${{env:HOOK}}"}}, apprise: ["slack://hunter2"]}}
retention: {{payloads: 30d}}
stop_grace: 1m
tls: {{cert: tls/cert.pem, key: /etc/key.pem}}
behind_proxy: [10.0.0.0/8, "::1"]
hosts: [Gateway.example, "::1"]
"""


def test_everything_in_the_file_is_described(load, tmp_path):
    (tmp_path / "old").write_text("old" * 20 + "\n")
    whole = load(WHOLE)
    bot, mia = whole.keys
    assert (whole.listen.host, whole.listen.port) == ("0.0.0.0", 8700)
    assert (whole.ledger.sqlite, whole.ledger.postgresql) == (tmp_path / "data/gateway.db", None)
    assert whole.policies == tmp_path / "rules"
    assert [secret.reveal() for secret in whole.secret] == [SECRET, "old" * 20]
    assert [upstream.name for upstream in whole.upstreams] == ["crm"]
    assert (bot.id, bot.sha256, bot.person, bot.trust) == ("agent:refund-bot", A, False, {"call_id"})
    assert (bot.groups, bot.task_types, bot.claims) == ({"support"}, {"interactive"}, {"tenant": "acme", "level": 3})
    assert (mia.id, mia.sha256, mia.person, mia.groups) == ("user:mia", B, True, {"finance"})
    assert dataclasses.astuple(whole.jwt) == ("https://idp", "gateway", str(tmp_path / "keys.json"), "sub", "roles")
    assert whole.limits == (LimitSettings(None, 20, 20, (QuotaSettings(86_400_000, tool_calls=5000, usd_micros=50_000_000),)),)
    assert whole.notify.webhook.url.reveal() == "https://hook?token=hunter2"
    assert whole.notify.webhook.secret.reveal() == "whsec_hunter2"
    assert [url.reveal() for url in whole.notify.apprise] == ["slack://hunter2"]
    assert (whole.retain_payloads_ms, whole.stop_grace_ms) == (30 * 86_400_000, 60_000)
    assert [str(path) for path in (whole.tls.cert, whole.tls.key)] == [str(tmp_path / "tls/cert.pem"), "/etc/key.pem"]
    assert whole.behind_proxy == ("10.0.0.0/8", "::1")
    assert whole.hosts == ("gateway.example", "::1")


def test_an_almost_empty_file_gives_the_defaults(load, tmp_path):
    least = load("{}")
    assert (least.listen.host, least.listen.port) == ("127.0.0.1", 8700)
    assert (least.ledger.sqlite, least.policies) == (tmp_path / "gateway.db", tmp_path / "policies")
    assert (least.secret, least.upstreams, least.keys, least.jwt, least.limits, least.tls, least.behind_proxy) == (
        (),
        (),
        (),
        None,
        (),
        None,
        (),
    )
    assert (least.retain_payloads_ms, least.stop_grace_ms) == (None, 10_000)
    assert least.limits_of(Principal("agent:a")) == LimitSettings(None, None, 20, ())


def test_relative_paths_start_at_the_files_folder_whatever_the_working_directory(load, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    load("{}")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_settings("../gateway.yaml", {}).policies.resolve() == tmp_path / "policies"
    assert load_settings("../gateway.yaml", {}).policies.is_absolute()


def test_settings_are_frozen_and_show_no_secret(load, tmp_path):
    (tmp_path / "old").write_text("old" * 20)
    whole = load(WHOLE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        whole.listen = None
    assert not any(secret in repr(whole) for secret in (SECRET, "hunter2", "oldold"))


def test_ten_different_mistakes_give_ten_placed_lines(load):
    with pytest.raises(SourceError) as caught:
        load(
            f"""listen: 10.0.0.1:8700
ledger: mysql:x
polices: rules
secret: ["${{env:SHORT}}"]
upstreams:
  crm: {{mcp: {{url: "http://u:hunter2@crm/mcp"}}}}
principals:
  keys:
  - {{id: "user:mia", person: yes, sha256: "{A}"}}
  - {{id: "user:leo", sha256: "{A}"}}
  - {{id: "agent:b", sha256: "{A}", id: "agent:c"}}
limits: {{quotas: [{{per: day, cost_usd: 0.0000001}}]}}
retention: {{payloads: 30}}
notify: {{webhook: {{url: "https://hook", secret: "${{env:NONE}}"}}}}
"""
        )
    lines = str(caught.value).splitlines()
    assert [tuple(map(int, re.search(r"gateway\.yaml:(\d+):(\d+): ", line).groups())) for line in lines] == [
        (1, 9), (2, 9), (3, 1), (4, 10), (6, 20), (9, 30), (11, 29), (11, 97), (12, 40), (13, 23), (14, 49),
    ]  # fmt: skip
    assert '"policies"' in lines[2]
    assert "hunter2" not in str(caught.value)


def test_a_file_that_can_not_be_read_is_a_mistake(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(SourceError) as caught:
            load_settings(path, {})
        assert str(caught.value).startswith(f"{path}:1:1: ")


@pytest.mark.parametrize("text", ["[]", "text", "5", "null"])
def test_a_file_that_is_no_mapping_is_refused(refused, text):
    assert refused(text) == [(1, 1)]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("listen: 8700", 9), ("listen: '8700'", 9), ("listen: {host: x}", 9), ("listen: '*:80'", 9),
        ("ledger: gateway.db", 9), ("ledger: 'sqlite:'", 9), ("ledger: postgresql:x", 9), ("ledger: 'mysql://hunter2'", 9),
        ("ledger: 'postgresql://u:hunter2@db/x'", 9), ("ledger: 'postgresql://db/x?password=hunter2'", 9),
        ("ledger: 'postgresql://u:${env:NONE}@db'", 9),
        ("policies: ''", 11), ("policies: '${env:SECRET}'", 11),
        ("secret: []", 9), ("secret: '${env:SECRET}'", 9), ("secret: [hunter2]", 10), ("secret: ['${env:SHORT}']", 10),
        ("secret: ['${env:NONE}']", 10),
        ("secret: ['${env:SECRET}', '${file:none}']", 27), ("secret: ['${vault:x}']", 10),
        ("upstreams: []", 12), ("upstreams: null", 12), ("upstreams: {a: null}", 16), ("upstreams: {a: {mpc: {url: 'http://a'}}}", None),
        ("principals: {key: []}", 14), ("principals: {keys: {}}", 20), ("principals: {keys: [{id: 'agent:a'}]}", 21),
        (f"principals: {{keys: [{{id: 'group:a', sha256: {A}}}]}}", 26), (f"principals: {{keys: [{{id: bot, sha256: {A}}}]}}", 26),
        ("principals: {keys: [{id: 'agent:a', sha256: abc}]}", 45), ("principals: {keys: [{id: 'agent:a', sha256: 5}]}", 45),
        (f"principals: {{keys: [{{id: 'agent:a', sha256: {A}0}}]}}", 45), (f"principals: {{keys: [{{id: 'agent:a', sha256: {'g' * 64}}}]}}", 45),
        (f"principals: {{keys: [{{id: 'agent:a', sha256: {A}, trust: [session]}}]}}", 119),
        (f"principals: {{keys: [{{id: 'agent:a', sha256: {A}, groups: ['group:x']}}]}}", 120),
        (f"principals: {{keys: [{{id: 'agent:a', sha256: {A}, person: 1}}]}}", 119),
        (f"principals: {{keys: [{{id: 'agent:a', sha256: {A}, rol: x}}]}}", 111),
        (f"principals: {{keys: [{KEY}, {{id: 'agent:a', sha256: {B}}}]}}", 119),
        (f"principals: {{keys: [{KEY}, {{id: 'agent:b', sha256: {A.upper()}}}]}}", 138),
        ("principals: {jwt: {issuer: x, audience: z}}", 19), ("principals: {jwt: {issuer: x, audience: z, jwks: 'ftp://a'}}", 50),
        ("roles: {aprover: []}", 9), ("roles: {approver: [mia]}", 20), ("roles: {approver: 'group:x'}", 19),
        ("limits: {open_run: 1}", 10), ("limits: {open_runs: 1.0}", 21), ("limits: {open_runs: -1}", 21), ("limits: [{open_runs: x}]", 22),
        ("limits: 5", 9),
        ("limits: {quotas: [{per: year, turns: 1}]}", 25), ("limits: {quotas: [{per: day}]}", 19), ("limits: {quotas: [{turns: 1, tokens: 2}]}", 19),
        ("limits: {quotas: [{per: day, cost_usd: -1}]}", 40), ("limits: {quotas: [{per: day, cost_usd: 0.00000015}]}", 40),
        ("limits: [{open_runs: 1}, {open_holds: 2}]", 26), ("limits: [{for: 'group:a'}, {for: 'group:a'}]", 28), ("limits: [{for: mia}]", 16),
        ("notify: {webhook: {url: 'https://a', secret: hunter2}}", 46), ("notify: {webhook: {secret: '${env:HOOK}'}}", 19),
        ("notify: {webhook: {url: 'hunter2', secret: '${env:HOOK}'}}", 25), ("notify: {apprise: slack://x}", 19),
        ("retention: {payloads: 30}", 23), ("retention: {payloads: 99999d}", 23), ("retention: {events: 1d}", 13),
        ("tls: {cert: a}", 6), ("tls: {cert: a, key: ''}", 21), ("behind_proxy: 10.0.0.1", 15), ("behind_proxy: []", 15),
        ("behind_proxy: [proxy.internal]", 16), ("behind_proxy: ['10.0.0.1/8']", 16), ("hosts: []", 8),
        ("hosts: ['a:80']", 9), ("hosts: ['http://a']", 9), ("hosts: ['a b']", 9), ("Listen: x", 1),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_once_at_its_place(refused, text, column):
    assert refused(text) == [(1, column)] if column else [(1, 17), (1, 16)]


# ---- beyond loopback ----------------------------------------------------------------------------------------------------

PRINCIPALS = f"principals: {{keys: [{KEY}]}}"
JWT = "principals: {jwt: {issuer: x, audience: z, jwks: z}}"
TLS = "tls: {cert: a, key: b}"
PROXY = "behind_proxy: [10.0.0.1]"


@pytest.mark.parametrize("address", ["0.0.0.0:1", "'[::]:1'", "10.0.0.7:1", "gateway.internal:1", "'[::ffff:10.0.0.1]:1'"])
@pytest.mark.parametrize("rest", [[], [PRINCIPALS], [TLS], [PROXY], ["principals: {}", TLS], ["principals: {keys: []}", PROXY]])
def test_beyond_loopback_principals_and_a_safe_way_are_demanded(refused, address, rest):
    assert refused("\n".join([f"listen:  {address}", *rest])) == [(1, 10)]


def test_principals_with_mistakes_are_not_called_missing(refused):
    assert refused(f"listen: 0.0.0.0:1\nprincipals: {{keys: [{{id: bot, sha256: {A}}}]}}\n{TLS}") == [(2, 26)]
    assert refused(f"listen: 0.0.0.0:1\nprincipals: []\n{TLS}") == [(2, 13)]


@pytest.mark.parametrize("rest", [[PRINCIPALS, TLS], [PRINCIPALS, PROXY], [JWT, TLS], [JWT, PROXY]])
def test_beyond_loopback_is_fine_with_both(load, rest):
    assert load("\n".join(["listen: 0.0.0.0:1", *rest])).listen.host == "0.0.0.0"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.2:1", "'[::1]:1'", "localhost:0"])
def test_loopback_demands_nothing(load, address):
    assert load(f"listen: {address}").keys == ()


# ---- ledger -------------------------------------------------------------------------------------------------------------


def test_a_postgresql_ledger_is_a_secret(load):
    ledger = load("ledger: 'postgresql://u:${env:SHORT}@db/x?sslmode=verify-full'").ledger
    assert (ledger.postgresql.reveal(), ledger.sqlite) == ("postgresql://u:hunter2@db/x?sslmode=verify-full", None)
    assert "hunter2" not in repr(ledger)


@pytest.mark.parametrize("address", ["postgresql://db/x", "postgresql://u@db:5432/x", "postgresql://db:5432/x?user=u"])
def test_an_address_without_a_password_may_stand_in_the_file(load, address):
    assert load(f"ledger: '{address}'").ledger.postgresql.reveal() == address


# ---- limits and roles ---------------------------------------------------------------------------------------------------

LIMITS = """limits:
- {for: "group:batch", open_runs: 200}
- {for: "agent:a", open_holds: 1, quotas: []}
- {open_runs: 20, quotas: [{per: month, turns: 5, tokens: 6}]}
"""


@pytest.mark.parametrize(
    ("principal", "open_runs", "open_holds", "quotas"),
    [
        (Principal("agent:b"), 20, 20, 1),
        (Principal("agent:a"), 20, 1, 0),
        (Principal("agent:b", frozenset({"batch"})), 200, 20, 1),
        (Principal("agent:a", frozenset({"batch"})), 200, 20, 1),
    ],
)
def test_the_first_entry_for_a_principal_holds_and_the_general_one_fills_it_up(load, principal, open_runs, open_holds, quotas):
    limits = load(LIMITS).limits_of(principal)
    assert (limits.open_runs, limits.open_holds, len(limits.quotas)) == (open_runs, open_holds, quotas)


def test_a_month_is_thirty_days(load):
    assert load(LIMITS).limits[2].quotas == (QuotaSettings(30 * 86_400_000, turns=5, tokens=6),)


def test_roles_are_held_by_id_and_by_group(load):
    roles = load('roles: {approver: ["group:finance"], operator: ["user:mia"], reporter: ["agent:m"]}').roles
    assert roles.of(Principal("user:mia", frozenset({"finance"}))) == {"approver", "operator"}
    assert roles.of(Principal("user:leo")) == frozenset()


# ---- anything at all ----------------------------------------------------------------------------------------------------

_TREE = {
    "listen": "127.0.0.1:1",
    "ledger": "sqlite:x",
    "secret": ["${env:SECRET}"],
    "upstreams": {
        "a": {"mcp": {"url": "http://a"}, "auth": {"bearer": "${env:SHORT}", "headers": {"x": "${env:SHORT}"}}},
        "b": {"mcp": {"command": ["x"], "env": {"A": "b"}}},
        "c": {"http": {"base_url": "http://c", "tools": [{"name": "t", "description": "d", "method": "GET", "path": "/{p}", "query": ["q"],
              "headers": {"x": "y"}, "input_schema": {"type": "object", "properties": {"p": {}, "q": {}}, "required": ["p"]}}]}},
        "d": {"openapi": {"document": "d", "base_url": "http://d", "include": ["GET /x"]},
              "auth": {"basic": {"user": "u", "password": "${env:SHORT}"}}},
        "e": {"command": {"tools": [{"name": "t", "argv": ["x", "{args.p}"], "input_schema": {"type": "object", "properties": {"p": {}}}}]}},
    },
    "principals": {"keys": [{"id": "agent:a", "sha256": A, "groups": ["g"], "trust": ["call_id"]}],
                   "jwt": {"issuer": "i", "audience": "a", "jwks": "j"}},
    "roles": {"approver": ["group:x"]},
    "limits": [{"for": "group:x", "open_runs": 1, "quotas": [{"per": "day", "cost_usd": 1}]}],
    "notify": {"webhook": {"url": "http://h", "secret": "${env:HOOK}"}, "apprise": ["x://y"]},
    "retention": {"payloads": "1d"},
    "tls": {"cert": "c", "key": "k"},
    "behind_proxy": ["10.0.0.1"],
    "hosts": ["gateway.example"],
}  # fmt: skip


def _places(tree, path=()):
    yield path
    for step in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from _places(tree[step], (*path, step))


def _replaced(tree, path, value):
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = _replaced(tree[path[0]], path[1:], value)
    return copy


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab:/{}.$ ", max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "mcp", "url", "name", "for", "keys"]), inner, max_size=2),
    max_leaves=4,
)


def test_the_tree_that_is_broken_below_is_whole_to_begin_with(load):
    assert len(load(json.dumps(_TREE)).upstreams) == 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(_places(_TREE))), _ANYTHING), min_size=1, max_size=2))
def test_whatever_stands_anywhere_gives_settings_or_placed_mistakes(load, changes):
    tree = _TREE
    for path, value in changes:
        try:
            tree = _replaced(tree, path, value)
        except (KeyError, IndexError, AttributeError, TypeError):
            continue
    try:
        load(json.dumps(tree))
    except SourceError as error:
        text = str(error)
    else:
        text = ""
    assert SECRET not in text
    assert "hunter2" not in text
