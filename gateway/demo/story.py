"""`gateway demo`: starts the gateway and its upstreams as real processes, lets a scripted agent meet everything once, and says what happened.

Each chapter states what must be; one that goes otherwise makes `--once` end with 1.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gateway.demo.agent import Agent, Approver
from gateway.keys import make_key

FILES = Path(__file__).with_name("files")
CALL = "tool-call-gateway/call"
BUDGET = "tool-call-gateway/budget"


def tell(port: int, folder: Path | None, *, once: bool) -> int:
    """Set up, tell, and either end or leave the gateway up until interrupted. The exit status."""
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as temporary:
        place = folder or Path(temporary)
        port = port if not once or _free(port) else _any_port()
        if not _free(port):
            print(f"gateway: port {port} is taken; give another with --port", file=sys.stderr)
            return 1
        agent_key, approver_key = _lay_out(place, port, rates := _any_port())
        url = f"http://127.0.0.1:{port}"
        with _process("-m", "gateway.demo.rates", str(rates)), _process("-m", "gateway", "-c", str(place / "gateway.yaml"), "serve") as server:
            _wait_ready(server, url)
            story = Story(Agent(url, agent_key, "demo-1"), Approver(url, approver_key))
            good = story.tell() and _sound(place)
            if once or not good:
                return 0 if good else 1
            _leave_up(server, url, place, agent_key, approver_key)
    return 0


def _lay_out(place: Path, port: int, rates_port: int) -> tuple[str, str]:
    """Write the demo's files with fresh keys; the keys of agent and approver."""
    (agent, agent_hash), (approver, approver_hash) = make_key(), make_key()
    marks = {
        "@PORT@": str(port), "@RATES_PORT@": str(rates_port), "@PYTHON@": json.dumps(sys.executable), "@AGENT_SHA256@": agent_hash,
        "@APPROVER_SHA256@": approver_hash,
    }  # fmt: skip
    for path in sorted(FILES.rglob("*.yaml")):
        text = path.read_text("utf-8")
        for mark, value in marks.items():
            text = text.replace(mark, value)
        target = place / path.relative_to(FILES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return agent, approver


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "GATEWAY_DEMO_SECRET": secrets.token_urlsafe(48)}
    process = subprocess.Popen([sys.executable, *arguments], env=env, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(server: subprocess.Popen[bytes], url: str) -> None:
    """Until /readyz says yes; the server says on its own stderr why it can't."""
    transport = httpx.HTTPTransport(retries=0)
    with httpx.Client(transport=transport, timeout=2) as client:
        for _ in range(300):
            if server.poll() is not None:
                raise SystemExit("gateway: the demo's server ended before it was ready")
            try:
                if client.get(url + "/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            try:
                server.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
    raise SystemExit("gateway: the demo's server was not ready after 30 s")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _sound(place: Path) -> bool:
    command = [sys.executable, "-m", "gateway", "-c", str(place / "gateway.yaml"), "verify"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "GATEWAY_DEMO_SECRET": "0" * 48})
    print(f"\nThe ledger, checked: {done.stdout.strip() or done.stderr.strip()}", flush=True)
    return done.returncode == 0


def _leave_up(server: subprocess.Popen[bytes], url: str, place: Path, agent_key: str, approver_key: str) -> None:
    print(f"""
The gateway stays up at {url} (Ctrl-C ends it). Its files are in {place}.
  agent:refund-bot  {agent_key}
  user:mia          {approver_key}
Try: curl -s {url}/v1/runs -H "Authorization: Bearer {agent_key}"
     gateway -c {place}/gateway.yaml runs list""", flush=True)  # fmt: skip
    try:
        server.wait()
    except KeyboardInterrupt:
        print("\nStopping.", flush=True)


class Story:
    """The chapters, in order; each prints what it saw and remembers whether it was right."""

    def __init__(self, agent: Agent, approver: Approver):
        self.agent = agent
        self.approver = approver
        self.good = True

    def tell(self) -> bool:
        for number, chapter in enumerate(
            (self.listing, self.reading, self.converting, self.wrong, self.forbidden, self.holding, self.replaying, self.looping, self.spending), 1
        ):
            print(f"\n{number}. {chapter.__doc__}", flush=True)
            chapter()
        return self.good

    def see(self, right: bool, said: str) -> None:
        self.good = self.good and right
        print(f"   {'ok ' if right else 'NO '} {said}", flush=True)

    def call(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The result, and the gateway's own word about it."""
        result = self.agent.call(tool, **arguments)
        about = result["_meta"][CALL]
        words = " ".join(block.get("text", "") for block in result["content"])
        print(f"   {tool}({', '.join(f'{k}={v!r}' for k, v in arguments.items())}) -> {about['status']}: {words[:150]}", flush=True)
        return result, about

    def listing(self) -> None:
        """The agent asks for its tools."""
        names = self.agent.tools()
        self.see("shop__get_order" in names and "shop__delete_customer" not in names, f"it is shown {', '.join(names)}; delete_customer is not listed")

    def reading(self) -> None:
        """An allowed read, over MCP to a stdio server."""
        result, about = self.call("shop__get_order", order_id="A-1001")
        self.see(about["status"] == "succeeded" and result["structuredContent"]["customer"] == "Ada Byron", "the shop's own answer, untouched")

    def converting(self) -> None:
        """An allowed read of a plain HTTP tool."""
        result, about = self.call("rates__convert", base="EUR", to="USD")
        self.see(about["status"] == "succeeded" and result["structuredContent"]["rate"] == 1.09, "the HTTP body became a tool result")

    def wrong(self) -> None:
        """A wrong argument: told what is wrong, nothing executed, nothing charged."""
        before = self.agent.call("shop__get_order", order_id="A-1002")["_meta"][BUDGET]["tool_calls_left"]
        result, about = self.call("shop__refund", order_id="A-1001", amount="lots", currency="EUR")
        left = result["_meta"][BUDGET]["tool_calls_left"]
        self.see(result["isError"] and about["reason"] == "arguments.invalid" and left == before, f"refused, {left} tool calls left as before")

    def forbidden(self) -> None:
        """A tool that no rule allows."""
        result, about = self.call("shop__delete_customer", name="Ada Byron")
        self.see(result["isError"] and about["reason"] == "tool.not_allowed", "refused; not a byte went to the shop")

    def holding(self) -> None:
        """A refund that a person must agree to."""
        refund = {"order_id": "A-1001", "amount": 120, "currency": "EUR"}
        result, about = self.call("shop__refund", **refund)
        self.see(about["status"] == "held" and not result.get("isError"), "held; the agent is told to call again later")
        hold = self.approver.hold(about["hold"])
        print(f"   user:mia reads “{hold['show']}” and approves", flush=True)
        self.see(self.approver.approve(hold, "checked the order")["status"] == "approved", "approved, once, for exactly these arguments")
        result, about = self.call("shop__refund", **refund)
        self.see(about["status"] == "succeeded" and not about["replayed"], "the agent's repeat executed it")

    def replaying(self) -> None:
        """The same refund once more: the record answers."""
        result, about = self.call("shop__refund", order_id="A-1001", amount=120, currency="EUR")
        order, _ = self.call("shop__get_order", order_id="A-1001")
        self.see(about["replayed"] and order["structuredContent"]["refunded"] == 120, "marked as replayed; the shop paid once")

    def looping(self) -> None:
        """The agent asks for the same thing again and again."""
        reasons = [self.call("rates__convert", base="GBP", to="EUR")[1]["reason"] for _ in range(5)]
        self.see(reasons[:4] == [None] * 4 and reasons[4] == "loop.repeat", "the fifth is intercepted and explained")

    def spending(self) -> None:
        """The agent goes on until its budget is spent."""
        reasons: list[str | None] = []
        while "budget.tool_calls" not in reasons and len(reasons) < 20:
            reasons.append(self.call("rates__convert", base="EUR", to=("GBP", "EUR")[len(reasons) % 2])[1]["reason"])
        self.see(reasons[-1] == "budget.tool_calls" and 12 >= len(reasons) > 1, "refused with a reason; the run stays open so that it can answer")
