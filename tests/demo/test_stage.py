"""The demo's stage: files that load, keys that are theirs alone, and no process that outlives it."""

from __future__ import annotations

import socket
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from gateway.demo.stage import LOG, StageFault, any_port, lay_out, staged
from gateway.policy.store import load_policies
from gateway.settings import load_settings


def test_the_files_are_a_deployment_with_fresh_keys_and_a_secret_of_its_owner(tmp_path: Path) -> None:
    first, second = (lay_out(tmp_path / name, 8701, 8702) for name in ("a", "b"))
    assert not {*first} & {*second}
    found = load_settings(tmp_path / "a" / "gateway.yaml", {})
    assert [key.sha256 for key in found.keys] == [sha256(key.encode()).hexdigest() for key in first]
    assert found.listen.port == 8701
    assert "8702" in (tmp_path / "a" / "gateway.yaml").read_text()
    assert not [path for path in tmp_path.rglob("*.yaml") if "@" in path.read_text()]
    assert (tmp_path / "a" / "gateway.secret").stat().st_mode & 0o777 == 0o600
    assert [policy.name for policy in load_policies(found.policies).policies] == ["demo"]


def test_a_gateway_answers_while_the_stage_is_set_and_not_after(tmp_path: Path) -> None:
    with staged(tmp_path, None) as stage:
        assert httpx.get(f"{stage.url}/readyz", trust_env=False).status_code == 200
        assert stage.server.poll() is None
    assert stage.server.poll() is not None
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{stage.url}/readyz", trust_env=False)


def test_what_the_server_logs_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with staged(tmp_path, None) as stage:
        assert stage.url in (tmp_path / LOG).read_text()
    assert capfd.readouterr() == ("", "")


def test_a_stage_that_cannot_be_set_says_what_its_server_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StageFault, match=str(port)), staged(tmp_path, port):
            pass


class Stranger(BaseHTTPRequestHandler):
    """Another server: ready, but it knows none of the demo's keys."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_another_server_at_the_port_is_not_taken_for_the_gateway(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        Thread(target=stranger.serve_forever, daemon=True).start()
        with pytest.raises(StageFault, match=str(stranger.server_port)), staged(tmp_path, stranger.server_port):
            pass
        stranger.shutdown()


def test_any_port_is_free() -> None:
    with socket.create_server(("127.0.0.1", any_port())):
        pass
