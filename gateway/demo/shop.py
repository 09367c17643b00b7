"""A small shop as an MCP server over stdio (`python -m gateway.demo.shop`): orders, refunds, mail. It speaks both eras and keeps all in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gateway.wire import json

VERSION = "2025-11-25"
MODERN = "2026-07-28"
ORDERS: dict[str, dict[str, Any]] = {
    "A-1001": {"order_id": "A-1001", "customer": "Ada Byron", "total": 240.0, "currency": "EUR", "refunded": 0},
    "A-1002": {"order_id": "A-1002", "customer": "Max Planck", "total": 18.5, "currency": "EUR", "refunded": 0},
}
MAIL: list[dict[str, Any]] = []


class Wrong(Exception):
    """The tool can't do this; the text is for the model."""


def get_order(order_id: str) -> dict[str, Any]:
    if order_id not in ORDERS:
        raise Wrong(f"There is no order {order_id!r}; there are {', '.join(sorted(ORDERS))}.")
    return ORDERS[order_id]


def refund(order_id: str, amount: float, currency: str) -> dict[str, Any]:
    order = get_order(order_id)
    if currency != order["currency"] or amount > order["total"] - order["refunded"]:
        raise Wrong(f"Order {order_id} can't be refunded {amount} {currency}.")
    order["refunded"] += amount
    return {"order_id": order_id, "refunded": order["refunded"], "currency": currency}


def send_mail(to: str, subject: str, body: str = "") -> dict[str, Any]:
    MAIL.append({"to": to, "subject": subject, "body": body})
    return {"sent": len(MAIL)}


def delete_customer(name: str) -> dict[str, Any]:
    gone = [order for order, row in ORDERS.items() if row["customer"] == name]
    for order in gone:
        del ORDERS[order]
    return {"deleted": gone}


def _tool(name: str, description: str, required: list[str], hints: dict[str, bool], /, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": hints}


TEXT = {"type": "string", "minLength": 1, "maxLength": 2000}
TOOLS: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "get_order": (get_order, _tool("get_order", "Read one order.", ["order_id"], {"readOnlyHint": True}, order_id=TEXT)),
    "refund": (
        refund,
        _tool(
            "refund", "Pay back part of an order.", ["order_id", "amount", "currency"], {"destructiveHint": True}, order_id=TEXT,
            amount={"type": "number", "exclusiveMinimum": 0}, currency={"type": "string", "pattern": "^[A-Z]{3}$"},
        ),
    ),
    "send_mail": (send_mail, _tool("send_mail", "Write to a customer.", ["to", "subject"], {}, to=TEXT, subject=TEXT, body=TEXT)),
    "delete_customer": (
        delete_customer, _tool("delete_customer", "Forget a customer.", ["name"], {"destructiveHint": True}, name=TEXT),
    ),
}  # fmt: skip


def call(params: dict[str, Any]) -> dict[str, Any]:
    """The CallToolResult of one call."""
    name, arguments = params.get("name"), params.get("arguments") or {}
    if name not in TOOLS:
        return {"content": [{"type": "text", "text": f"There is no tool {name!r}."}], "isError": True}
    try:
        value = TOOLS[name][0](**arguments)
    except (Wrong, TypeError) as wrong:
        return {"content": [{"type": "text", "text": str(wrong)}], "isError": True}
    return {"content": [{"type": "text", "text": json.dumps(value).decode()}], "structuredContent": value, "isError": False}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that isn't offered."""
    about = {"serverInfo": {"name": "shop", "version": "1"}, "capabilities": {"tools": {}}}
    match method:
        case "initialize":
            return {"protocolVersion": VERSION, **about}
        case "server/discover":
            return {"resultType": "complete", "supportedVersions": [MODERN], **about}
        case "ping":
            return {}
        case "tools/list":
            return {"resultType": "complete", "tools": [definition for _, definition in TOOLS.values()], "ttlMs": 0, "cacheScope": "private"}
        case "tools/call":
            return {"resultType": "complete", **call(params)}
    return None


def main() -> None:
    """One JSON-RPC message a line, until stdin ends."""
    for line in sys.stdin.buffer:
        message = json.parse(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        missing = {"code": -32601, "message": f"{message['method']} is not offered"}
        said = {"result": result} if result is not None else {"error": missing}
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
