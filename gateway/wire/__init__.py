"""Protocol text only: JSON, JSON-RPC, MCP, SSE and the providers' tool-call shapes; no IO, no role."""
