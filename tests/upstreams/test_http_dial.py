"""Where requests go, and how a connection comes about: addresses in turn, TLS, each failure with its kind."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.http_connection import Connection
from gateway.upstreams.http_dial import Origin, _addresses, dial
from gateway.upstreams.http_request import HttpTool
from tests.upstreams.origin import dispatch, never_accepting
from tests.waiting import START_S

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://shop.test", Origin("shop.test", 80, False, "shop.test")),
        ("https://shop.test/v1", Origin("shop.test", 443, True, "shop.test")),
        ("http://shop.test:443/", Origin("shop.test", 443, False, "shop.test:443")),
        ("https://Shop.test:443", Origin("shop.test", 443, True, "shop.test")),
        ("http://[::1]", Origin("::1", 80, False, "[::1]")),
        ("https://[2001:DB8::1]:8443/x", Origin("2001:db8::1", 8443, True, "[2001:db8::1]:8443")),
        ("http://bücher.test", Origin("xn--bcher-kva.test", 80, False, "xn--bcher-kva.test")),
    ],
)
def test_an_origin_knows_its_port_and_its_host_header(url, origin):
    assert Origin.of(url) == origin


@pytest.mark.parametrize("url", ["shop.test", "ftp://shop.test", "http://", "http://me:s3cret@shop.test", "http://s3cret@shop.test", "http://s3cret:99999"])
def test_a_url_without_an_origin_or_with_a_user_is_refused_and_not_shown(url):
    with pytest.raises(ValueError, match=r".") as caught:
        Origin.of(url)
    assert "s3cret" not in str(caught.value)


# ---- connections --------------------------------------------------------------------------------------------------------


def nothing(_: Connection) -> None:
    pass


async def reached(origin: Origin) -> str:
    """The peer's address of a connection that was dialled."""
    async with asyncio.timeout(5):
        connection = await dial(origin, None, lambda: Connection(nothing, nothing))
    peer = connection._transport.get_extra_info("peername")[0]
    connection.close()
    await asyncio.sleep(0)
    return peer


@asynccontextmanager
async def listening(host: str):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        yield server.getsockname()[1]


def resolve_to(monkeypatch, *hosts: str) -> None:
    """The resolver is the outside world here: it gives these addresses, in this order, for shop.test."""
    resolver = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(host, port, **more):
        if host != "shop.test":
            return await resolver(host, port, **more)
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("dead", [["127.0.0.2"], ["127.0.0.2", "127.0.0.3"]])
async def test_an_address_that_refuses_is_followed_by_the_next(monkeypatch, dead):
    async with listening("127.0.0.1") as port:
        resolve_to(monkeypatch, *dead, "127.0.0.1")
        assert await reached(Origin("shop.test", port, False, "")) == "127.0.0.1"


async def test_an_address_that_does_not_answer_is_overtaken(monkeypatch):
    with never_accepting("127.0.0.2") as port, socket.socket() as live:
        live.bind(("127.0.0.1", port))
        live.listen()
        resolve_to(monkeypatch, "127.0.0.2", "127.0.0.1")
        assert await reached(Origin("shop.test", port, False, "")) == "127.0.0.1"


async def test_the_families_take_turns(monkeypatch):
    resolve_to(monkeypatch, "::1", "::2", "::3", "127.0.0.1", "127.0.0.2")
    found = await _addresses(Origin("shop.test", 80, False, ""))
    assert [address[0] for _, address in found] == ["::1", "127.0.0.1", "::2", "127.0.0.2", "::3"]


async def test_where_no_address_answers_the_first_ones_fault_counts(monkeypatch):
    async with listening("127.0.0.1") as port:
        resolve_to(monkeypatch, "127.0.0.2", "127.0.0.3")
        with pytest.raises(UpstreamFault) as caught:
            await reached(Origin("shop.test", port, False, ""))
    assert caught.value.kind == "refused"


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 64 + ".test", "a..b"])
async def test_a_name_that_is_none_or_does_not_resolve(name):
    with pytest.raises(UpstreamFault) as caught:
        await reached(Origin(name, 80, False, name))
    assert caught.value.kind == "dns"


# ---- whole calls --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def echoing(host: str, tls: ssl.SSLContext | None = None):
    """Answer each request with its own head; yields the port."""

    async def serve(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % len(head) + head)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def call(url: str) -> str:
    it = HttpUpstream("shop", url, [HttpTool("pay", "Pays.", "GET", "/pay", {"type": "object"})])
    await it.open()
    try:
        async with asyncio.timeout(5):
            await it.send(dispatch())
            return (await it.send(dispatch())).result["content"][0]["text"]
    finally:
        await it.close()
        await asyncio.sleep(0.01)  # else the server's end of a TLS connection outlives the loop


async def test_an_ipv6_address():
    async with echoing("::1") as port:
        assert f"\r\nhost: [::1]:{port}\r\n" in await call(f"http://[::1]:{port}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A key and a certificate of its own, for localhost and 127.0.0.1."""
    key, certificate = (tmp_path_factory.mktemp("tls") / name for name in ("key.pem", "certificate.pem"))
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", names]
    subprocess.run(["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=START_S)
    return key, certificate


@pytest.fixture
def server_tls(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority[1], authority[0])
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.asked = []
    context.sni_callback = lambda connection, name, _: context.asked.append(name)
    return context


async def test_tls_with_an_authority_that_is_trusted(monkeypatch, authority, server_tls):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[1]))
    async with echoing("127.0.0.1", server_tls) as port:
        assert f"\r\nhost: localhost:{port}\r\n" in await call(f"https://localhost:{port}")
        assert "GET /pay HTTP/1.1\r\n" in await call(f"https://127.0.0.1:{port}")
    assert server_tls.asked == ["localhost", None]


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_with_another_name_or_an_unknown_authority_sends_nothing(monkeypatch, authority, server_tls, trusted):
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority[1]))
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's end complains of the alert
    async with echoing("127.0.0.2" if trusted else "127.0.0.1", server_tls) as port:
        with pytest.raises(UpstreamFault) as caught:
            await call(f"https://{'127.0.0.2' if trusted else '127.0.0.1'}:{port}")
    assert caught.value.kind == "tls"
