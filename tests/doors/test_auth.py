"""Bearers to callers, and requests that a browser was tricked into."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from gateway.core.model import Principal
from gateway.doors.auth import Authenticator, OwnHostOnly
from gateway.ports import RequestFault
from tests.fakes import FakeClock

BOT = Principal("agent:bot", groups=frozenset({"support"}), roles=frozenset({"reporter"}), claims={"tenant": "acme"})
MIA = Principal("user:mia", person=True, roles=frozenset({"approver"}))
KEYS = {"key-of-bot": BOT, "key-of-mia": MIA}


def authenticator(keys: dict[str, Principal] = KEYS, secrets: tuple[bytes, ...] = (b"a" * 32,), clock: FakeClock | None = None) -> Authenticator:
    entries = [(hashlib.sha256(key.encode()).hexdigest(), principal) for key, principal in keys.items()]
    return Authenticator(entries, secrets, clock or FakeClock())


def bearer(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"localhost"), (b"authorization", b"Bearer " + text.encode("latin-1"))]


def refused(auth: Authenticator, headers: list[tuple[bytes, bytes]]) -> RequestFault:
    with pytest.raises(RequestFault) as caught:
        auth(headers)
    assert caught.value.reason == "auth.required"
    return caught.value


def test_each_key_is_its_principal_with_all_its_facts() -> None:
    assert authenticator()(bearer("key-of-bot")).principal == BOT
    assert authenticator()(bearer("key-of-mia")).principal == MIA
    assert authenticator()(bearer("key-of-bot")).run is None


def test_the_scheme_is_read_in_any_case() -> None:
    assert authenticator()([(b"authorization", b"bearer   key-of-bot ")]).principal == BOT


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic key-of-bot")],
        [(b"authorization", b"key-of-bot")],
        [(b"authorization", b"Bearer key-of-bot"), (b"authorization", b"Bearer key-of-bot")],
        bearer("key-of-nobody"),
        bearer("KEY-OF-BOT"),
        bearer("key-of-b\xf6t"),
        bearer("x" * 5000),
        bearer(hashlib.sha256(b"key-of-bot").hexdigest()),
    ],
)
def test_whatever_is_not_one_known_bearer_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    refused(authenticator(), headers)


def test_a_refusal_never_repeats_the_bearer() -> None:
    assert "s3cret" not in str(refused(authenticator(), bearer("s3cret-key")))


def test_every_key_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
    for key in ("key-of-bot", "key-of-mia", "key-of-nobody"):
        compared.clear()
        try:
            authenticator()(bearer(key))
        except RequestFault:
            pass
        assert len(compared) == len(KEYS)


def test_a_run_token_is_its_principal_in_that_run() -> None:
    auth = authenticator()
    caller = auth(bearer(auth.run_token("run_1.2", "agent:bot", 1000)))
    assert caller.principal == BOT
    assert caller.run == "run_1.2"


def test_a_run_token_ends_with_its_lifetime() -> None:
    clock = FakeClock()
    auth = authenticator(clock=clock)
    token = auth.run_token("run_1", "agent:bot", 1000)
    clock.now += 999
    assert auth(bearer(token)).run == "run_1"
    clock.now += 1
    refused(auth, bearer(token))


def test_a_run_token_has_the_facts_of_today() -> None:
    token = authenticator().run_token("run_1", "agent:bot", 1000)
    today = Principal("agent:bot", groups=frozenset({"other"}))
    assert authenticator({"new-key": today})(bearer(token)).principal == today


def test_removing_the_principals_entry_revokes_its_run_tokens() -> None:
    token = authenticator().run_token("run_1", "agent:bot", 1000)
    refused(authenticator({"key-of-mia": MIA}), bearer(token))


def test_all_secrets_verify_and_the_first_signs() -> None:
    old, new = b"o" * 32, b"n" * 32
    token = authenticator(secrets=(old,)).run_token("run_1", "agent:bot", 1000)
    assert authenticator(secrets=(new, old))(bearer(token)).run == "run_1"
    refused(authenticator(secrets=(new,)), bearer(token))
    refused(authenticator(secrets=(old,)), bearer(authenticator(secrets=(new, old)).run_token("run_1", "agent:bot", 1000)))


def test_a_run_token_with_any_character_changed_is_refused() -> None:
    auth = authenticator()
    token = auth.run_token("run_1", "agent:bot", 1000)
    for index in range(len("gwr."), len(token)):
        for other in "A0-.=":
            if token[index] != other:
                refused(auth, bearer(token[:index] + other + token[index + 1 :]))


def test_a_run_token_has_only_one_spelling() -> None:
    auth = authenticator()
    token = auth.run_token("run_1", "agent:bot", 1000)
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        if other != token[-1]:
            refused(auth, bearer(token[:-1] + other))


def test_what_the_secret_signed_for_another_use_is_no_run_token() -> None:
    auth = authenticator()
    claims = auth.run_token("run_1", "agent:bot", 1000).split(".")[1]
    signature = hmac.digest(b"a" * 32, base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)), "sha256")
    refused(auth, bearer(f"gwr.{claims}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"))


@pytest.mark.parametrize("token", ["gwr.", "gwr..", "gwr.a", "gwr.a.b.c", "gwr.AAAA.AAAA", "gwr.AAAA", "gwr.%.%"])
def test_what_only_looks_like_a_run_token_is_refused(token: str) -> None:
    refused(authenticator(), bearer(token))


# ---- Host and Origin ----------------------------------------------------------------------------------------------------


MALFORMED = [
    b"127.0.0.1:80@evil.example", b"localhost:80@evil.example", b"localhost@evil.example", b"evil.example@localhost", b"localhost:8700/x",
    b"localhost:x", b"localhost:123456", b"localhost ", b"localhost\t", b"local host", b"localhost,evil.example", b"[::1", b"::1", b"[::1]x",
    b"[::1]:80@x", b"localhost:80:80", b"http://localhost", b"localhost#", b"localhost?", b"gate.internal\\evil",
]  # fmt: skip


async def passed(headers: list[tuple[bytes, bytes]], hosts: frozenset[str] | None = frozenset({"gate.internal"})) -> int:
    """The status that a request gets: 200 if it came through."""
    statuses = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        statuses.append(200)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    await OwnHostOnly(app, hosts)({"type": "http", "method": "GET", "path": "/", "headers": headers}, receive, send)
    return statuses[0]


@pytest.mark.anyio
@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:8700", b"127.0.0.1:8700", b"[::1]:8700", b"127.8.8.8", b"gate.internal:1"])
async def test_the_gateways_own_names_pass(host: bytes) -> None:
    assert await passed([(b"host", host)]) == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:8700", b"localhost.evil.example", b"127.0.0.1.evil.example", b"", b"[::2]", *MALFORMED]
)
async def test_another_host_is_refused(host: bytes) -> None:
    assert await passed([(b"host", host)]) == 403


@pytest.mark.anyio
async def test_no_host_and_two_hosts_are_refused() -> None:
    assert await passed([]) == 403
    assert await passed([(b"host", b"localhost"), (b"host", b"localhost")]) == 403


@pytest.mark.anyio
async def test_where_the_names_are_not_known_any_host_passes() -> None:
    assert await passed([(b"host", b"gateway.example")], None) == 200
    for host in MALFORMED:
        assert await passed([(b"host", host)], None) == 403


@pytest.mark.anyio
@pytest.mark.parametrize("hosts", [frozenset(), None])
async def test_an_origin_must_be_the_host_that_was_asked(hosts: frozenset[str] | None) -> None:
    asked = (b"host", b"localhost:8700")
    assert await passed([asked, (b"origin", b"http://localhost:8700")], hosts) == 200
    for origin in (b"http://localhost:3000", b"https://evil.example", b"null", b"", b"http://localhost:8700.evil.example"):
        assert await passed([asked, (b"origin", origin)], hosts) == 403


@pytest.mark.anyio
async def test_the_start_of_the_process_is_no_request() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await OwnHostOnly(app, frozenset())({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == ["lifespan"]
