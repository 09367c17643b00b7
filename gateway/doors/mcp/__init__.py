"""The MCP door (DESIGN §8): `door` takes a POST, `calls` reads a tools/call, `results` writes what came of it, `listing` shows tools."""

from gateway.doors.mcp.door import Limits, McpDoor

__all__ = ["Limits", "McpDoor"]
