"""The shop: an MCP server of both eras whose refunds add up, and which says no in words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gateway.demo import shop
from tests.waiting import START_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def stock() -> Iterator[None]:
    """What a test sells is there again for the next."""
    before = deepcopy(shop.ORDERS)
    yield
    shop.ORDERS.clear()
    shop.ORDERS.update(before)
    shop.MAIL.clear()


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return shop.call({"name": tool, "arguments": arguments})


def test_an_order_is_read_as_data_and_as_text() -> None:
    result = call("get_order", order_id="A-1001")
    assert result["structuredContent"] == json.loads(result["content"][0]["text"]) == shop.ORDERS["A-1001"]


def test_refunds_add_up_to_the_total_and_no_further() -> None:
    assert call("refund", order_id="A-1001", amount=200, currency="EUR")["structuredContent"]["refunded"] == 200
    assert call("refund", order_id="A-1001", amount=41, currency="EUR")["isError"]
    assert call("refund", order_id="A-1001", amount=1, currency="USD")["isError"]
    assert call("refund", order_id="A-1001", amount=40, currency="EUR")["structuredContent"]["refunded"] == 240


def test_mail_is_counted_and_a_customer_can_be_forgotten() -> None:
    assert [call("send_mail", to="a", subject="b")["structuredContent"] for _ in range(2)] == [{"sent": 1}, {"sent": 2}]
    assert call("delete_customer", name="Ada Byron")["structuredContent"] == {"deleted": ["A-1001"]}
    assert call("get_order", order_id="A-1001")["isError"]


@pytest.mark.parametrize("params", [{}, {"name": "fly"}, {"name": "get_order"}, {"name": "get_order", "arguments": {"id": 1}}])
def test_what_cannot_be_done_is_an_error_of_the_tool(params: dict[str, Any]) -> None:
    assert shop.call(params)["isError"]


def test_it_speaks_both_eras_over_stdio_until_stdin_ends() -> None:
    asked = [
        {"id": 1, "method": "initialize"}, {"method": "notifications/initialized"}, {"id": 2, "method": "server/discover"},
        {"id": 3, "method": "tools/list"}, {"id": "x", "method": "tools/call", "params": {"name": "get_order", "arguments": {"order_id": "A-1002"}}},
        {"id": 4, "method": "ping"}, {"id": 5, "method": "prompts/list"},
    ]  # fmt: skip
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)
    command = [sys.executable, "-m", "gateway.demo.shop"]
    done = subprocess.run(command, input=lines, cwd=ROOT, capture_output=True, text=True, check=True, timeout=START_S)
    said = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert list(said) == [1, 2, 3, "x", 4, 5]
    assert said[1]["result"]["protocolVersion"] == shop.VERSION
    assert said[2]["result"]["supportedVersions"] == [shop.MODERN]
    assert {tool["name"] for tool in said[3]["result"]["tools"]} == set(shop.TOOLS)
    assert said["x"]["result"]["structuredContent"]["customer"] == "Max Planck"
    assert (said[4]["result"], said[5]["error"]["code"]) == ({}, -32601)
