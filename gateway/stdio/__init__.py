"""`gateway stdio`: an MCP server on two pipes (`pipes`) that is a client of the gateway's own MCP door (`bridge`)."""
