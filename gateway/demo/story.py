"""`gateway demo`: on a stage of real processes a scripted agent meets everything once, and each chapter says what it saw.

A chapter states what must be; one that goes otherwise makes the demo end with 1.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

import httpx

from gateway.demo.agent import Agent, Approver
from gateway.demo.stage import LOG, Stage, StageFault, staged
from gateway.doors.render import visible

CALL = "tool-call-gateway/call"
BUDGET = "tool-call-gateway/budget"
WIDTH = 110
CHAPTERS = ("listing", "reading", "converting", "wrong", "forbidden", "holding", "replaying", "looping", "spending")


def tell(port: int | None, folder: Path | None, *, once: bool) -> int:
    """Set the stage, tell, and either end or leave the gateway up until interrupted. The exit status; only a failure leaves files in /tmp."""
    place = folder.absolute() if folder else Path(tempfile.mkdtemp(prefix="gateway-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    status = 1
    try:
        with _stoppable(), staged(place, port) as stage:
            status = _told(stage, once=once)
    except StageFault as fault:
        print(f"gateway: {fault}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        status = 130
    if status == 1:
        print(f"gateway: the demo went otherwise than it should; the server's log: {place / LOG}", file=sys.stderr, flush=True)
    elif folder is None:
        shutil.rmtree(place, ignore_errors=True)
    return status


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _told(stage: Stage, *, once: bool) -> int:
    print(f"""\
A gateway at {stage.url}, and behind it a shop (an MCP server over stdio) and a rates service (plain HTTP).
One policy governs; agent:refund-bot has a key, and so has user:mia, who may approve.
The server's log: {stage.folder / LOG}""", flush=True)  # fmt: skip
    with Agent(stage.url, stage.agent_key, "demo-1") as agent, Approver(stage.url, stage.approver_key) as approver:
        wrong = Story(agent, approver).tell()
    sound = _verify(stage)
    if wrong or not sound:
        print(f"\nThis went otherwise than it should: {', '.join(wrong) or 'the ledger'}.", flush=True)
        return 1
    print("\nAll of it went as it should.", flush=True)
    return 0 if once else _leave_up(stage)


def _verify(stage: Stage) -> bool:
    """`gateway verify`, beside the running gateway."""
    done = subprocess.run([sys.executable, "-m", "gateway", "-c", str(stage.settings), "verify"], capture_output=True, text=True, check=False)
    print(f"\n`gateway verify` recomputes the record: {done.stdout.strip() or done.stderr.strip()}", flush=True)
    return done.returncode == 0


def _leave_up(stage: Stage) -> int:
    """Until Ctrl-C."""
    client = {"type": "http", "url": f"{stage.url}/r/mine/mcp", "headers": {"Authorization": f"Bearer {stage.agent_key}"}}
    try:
        print(f"""
The gateway stays up at {stage.url} until Ctrl-C; its files are in {stage.folder}. Its keys, made for this demo:
  agent:refund-bot  {stage.agent_key}
  user:mia          {stage.approver_key}
For an MCP client:
  {json.dumps({"mcpServers": {"demo": client}})}
In another terminal, as user:mia:
  export GATEWAY_KEY={stage.approver_key}
  gateway -c {stage.settings} holds list
  gateway -c {stage.settings} runs list
  gateway -c {stage.settings} calls list
And as the agent:
  curl -s {stage.url}/v1/runs -H "Authorization: Bearer {stage.agent_key}\"""", flush=True)  # fmt: skip
        stage.server.wait()
    except KeyboardInterrupt:
        print("\nStopping.", flush=True)
        return 0
    return 1


class Story:
    """The chapters, in order. `left`: the run's tool calls after the last answer."""

    def __init__(self, agent: Agent, approver: Approver):
        self.agent = agent
        self.approver = approver
        self.left: int | None = None
        self.right = True

    def tell(self) -> list[str]:
        """The titles of the chapters that went otherwise."""
        wrong = []
        chapters = [getattr(self, name) for name in CHAPTERS]
        for number, chapter in enumerate(chapters, 1):
            title = f"{number}. {chapter.__doc__}"
            print(f"\n{title}", flush=True)
            self.right = True
            try:
                chapter()
            except (httpx.HTTPError, RuntimeError, LookupError, TypeError, ValueError) as error:  # an answer of another form
                self.see(False, f"the answer could not be used: {error!r}")
            if not self.right:
                wrong.append(title)
        return wrong

    def see(self, right: bool, said: str) -> None:
        self.right = self.right and right
        print(f"   {'ok' if right else 'NO'}  {said}", flush=True)

    def call(self, tool: str, *, quiet: bool = False, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The result, and the gateway's own word about it."""
        result = self.agent.call(tool, **arguments)
        about: dict[str, Any] = result["_meta"][CALL]
        self.left = result["_meta"][BUDGET]["tool_calls_left"]
        if not quiet:
            print(f"   {tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})", flush=True)
            print(indent(_words(result, about), " " * 6), flush=True)
        return result, about

    def listing(self) -> None:
        """The agent asks which tools it has."""
        names = self.agent.tools()
        print(f"   {', '.join(names)}", flush=True)
        right = "shop__get_order" in names and "shop__delete_customer" not in names
        self.see(right, "the shop also has delete_customer; no rule allows it, so it isn't listed")

    def reading(self) -> None:
        """An allowed read."""
        result, about = self.call("shop__get_order", order_id="A-1001")
        self.see(about["status"] == "succeeded" and result["structuredContent"]["customer"] == "Ada Byron", "the shop's own answer, untouched")

    def converting(self) -> None:
        """An allowed read of a tool that is plain HTTP."""
        result, about = self.call("rates__convert", base="EUR", to="USD")
        self.see(about["status"] == "succeeded" and result["structuredContent"]["rate"] == 1.09, "the HTTP body became a tool result")

    def wrong(self) -> None:
        """A wrong argument."""
        before = self.left
        result, about = self.call("shop__refund", order_id="A-1001", amount="lots", currency="EUR")
        right = result["isError"] and about["reason"] == "arguments.invalid" and self.left == before
        self.see(right, f"told what is wrong; nothing was executed or charged, {self.left} tool calls are left as before")

    def forbidden(self) -> None:
        """A tool that no rule allows."""
        result, about = self.call("shop__delete_customer", name="Ada Byron")
        self.see(result["isError"] and about["reason"] == "tool.not_allowed", "refused; not a byte went to the shop")

    def holding(self) -> None:
        """A refund that a person must agree to."""
        refund: dict[str, Any] = {"order_id": "A-1001", "amount": 120, "currency": "EUR"}
        result, about = self.call("shop__refund", **refund)
        self.see(about["status"] == "held" and not result.get("isError"), "held; the agent is told that nothing was executed, and to call again")
        hold = self.approver.hold(about["hold"])
        print(f'   user:mia reads "{visible(hold["show"])}" and approves', flush=True)
        self.see(self.approver.approve(hold, "checked the order")["status"] == "approved", "approved, once, for exactly these arguments")
        result, about = self.call("shop__refund", **refund)
        self.see(about["status"] == "succeeded" and not about["replayed"], "the agent's repeat executed it")

    def replaying(self) -> None:
        """The same refund once more."""
        _, about = self.call("shop__refund", order_id="A-1001", amount=120, currency="EUR")
        self.see(about["replayed"], "answered from the record, and marked so")
        order, _ = self.call("shop__get_order", order_id="A-1001")
        self.see(order["structuredContent"]["refunded"] == 120, "the shop paid once")

    def looping(self) -> None:
        """The agent asks for the same thing again and again."""
        for count in range(1, 5):
            _, about = self.call("rates__convert", base="GBP", to="EUR", quiet=count > 1)
            self.see(about["reason"] is None, f"answered, time {count}")
        _, about = self.call("rates__convert", base="GBP", to="EUR")
        self.see(about["reason"] == "loop.repeat", "the fifth is intercepted, and the agent told to change its plan")

    def spending(self) -> None:
        """The agent goes on until its budget is spent."""
        for count in range(self.left or 0):
            _, about = self.call("rates__convert", base="EUR", to=("GBP", "EUR")[count % 2], quiet=True)
            self.see(about["reason"] is None, f"answered; tool calls left: {self.left}")
        result, about = self.call("rates__convert", base="USD", to="GBP")
        right = result["isError"] and about["reason"] == "budget.tool_calls"
        self.see(right, "refused with a reason; the run stays open, so that the agent can answer")


def _words(result: dict[str, Any], about: dict[str, Any]) -> str:
    """What the model is told, safe to print."""
    reason = f" ({about['reason']})" if about["reason"] else ""
    said = [line for block in result["content"] for line in block.get("text", "").splitlines()]
    lines = [f"-> {about['status']}{reason}{', replayed' if about['replayed'] else ''}", *(f"   {visible(line)}" for line in said)]
    return "\n".join(part for line in lines for part in wrap(line, WIDTH, subsequent_indent="   ", break_long_words=False))
