"""The embedded demo: a real gateway, a shop behind it over MCP, an HTTP tool, and a scripted agent that meets everything once."""
