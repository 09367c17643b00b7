"""The JSON Schema of gateway.yaml, for editors (`gateway schema settings`) and for the first check; and where secrets stand in it.

`description` is worded to follow "wanted" or "is not" in a mistake. What a schema can't say, `settings` and `settings_upstreams` check.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.source import DURATION_SCHEMA, USD_SCHEMA

SECRETS = re.compile(
    "|".join(
        (
            "/ledger",
            "/secret/[0-9]+",
            "/upstreams/[^/]+/auth/(bearer|basic/password|api_key/value|oauth/client_(id|secret)|headers/[^/]+)",
            "/upstreams/[^/]+/(mcp|command|command/tools/[0-9]+)/env/[^/]+",
            "/notify/(webhook/(url|secret)|apprise/[0-9]+)",
        )
    )
)
"""JSON pointers of what becomes a Secret; only there `${env:…}` and `${file:…}` are read."""

PERIODS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000, "month": 2_592_000_000}
"""Windows of quotas in ms; a month is 30 days."""

_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 10**12}
_FLAG = {"type": "boolean"}
_HIDDEN = {"type": "string", "minLength": 1, "writeOnly": True}
_REFERENCE = {
    "type": "string",
    "pattern": r"\$\{(env|file):[^{}]+\}",
    "writeOnly": True,
    "description": "a reference to a secret: ${env:NAME} or ${file:path}",
}
_HEADER = {"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "description": "the name of a header"}
_HOST = {
    "type": "string",
    "pattern": "^([A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*|[0-9A-Fa-f]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$",
    "description": "a name or an address without a port, such as gateway.example.com",
}
_SELECTOR = {
    "type": "string",
    "pattern": r"^[^:\s]+:\S+$",
    "description": "a principal or a group, such as agent:refund-bot, user:mia or group:finance",
}
_PRINCIPAL = {
    "type": "string",
    "pattern": r"^(?!group:)[^:\s]+:\S+$",
    "description": "a principal's id, such as agent:refund-bot or user:mia",
}
_GROUP = {"type": "string", "pattern": r"^(?!group:)\S+$", "description": "the bare name of a group, such as finance"}
_TOOL_NAME = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "a tool's name: letters, digits, _ and -, at most 64"}
_VARIABLES = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "description": "the name of an environment variable"},
    "additionalProperties": {"type": "string", "writeOnly": True},
}
_JSON_SCHEMA = {
    "type": "object",
    "$ref": "https://json-schema.org/draft/2020-12/schema",
    "properties": {"type": {"const": "object"}},
    "required": ["type"],
}


def _list(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _mapping(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": list(required), **more}


_TOOL = {
    "name": _TOOL_NAME,
    "description": _TEXT,
    "input_schema": _JSON_SCHEMA,
    "output_schema": _JSON_SCHEMA,
    "annotations": _mapping({"title": _TEXT, "readOnlyHint": _FLAG, "destructiveHint": _FLAG, "idempotentHint": _FLAG, "openWorldHint": _FLAG}),
    "timeout": DURATION_SCHEMA,
}

_HTTP_TOOL = _mapping(
    {
        **_TOOL,
        "method": {"enum": ["GET", "POST", "PUT", "PATCH", "DELETE"]},
        "path": _TEXT,
        "body": {"const": "arguments"},
        "query": _list(_TEXT, uniqueItems=True),
        "headers": {"type": "object", "propertyNames": _HEADER, "additionalProperties": {"type": "string", "pattern": "^[ -~]*$"}},
    },
    "name", "description", "method", "path", "input_schema",
)  # fmt: skip

_COMMAND_TOOL = _mapping(
    {
        **_TOOL,
        "argv": _list(_TEXT, minItems=1),
        "stdin": {"enum": ["none", "json"]},
        "cwd": _TEXT,
        "env": _VARIABLES,
        "ok_codes": _list({"type": "integer", "minimum": 0, "maximum": 255, "description": "an exit code, 0 to 255"}, minItems=1),
    },
    "name", "argv", "input_schema",
)  # fmt: skip

_AUTH = _mapping(
    {
        "bearer": _REFERENCE,
        "basic": _mapping({"user": {"type": "string", "pattern": "^[^:]+$"}, "password": _REFERENCE}, "user", "password"),
        "api_key": _mapping({"header": {"type": "string", **_HEADER}, "query": _TEXT, "value": _REFERENCE}, "value"),
        "oauth": _mapping(
            {
                "token_url": _TEXT,
                "client_id": _HIDDEN,
                "client_secret": _REFERENCE,
                "client_auth": {"enum": ["basic", "body"]},
                "scope": _TEXT,
                "audience": _TEXT,
            },
            "token_url", "client_id", "client_secret",
        ),
        "headers": {"type": "object", "minProperties": 1, "propertyNames": _HEADER, "additionalProperties": _REFERENCE},
    },
    minProperties=1,
)  # fmt: skip

_OPERATION = {
    "type": "string",
    "pattern": r"^((GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|\*) /\S*|tag:.+|[^\s/:][^\s:]*)$",
    "description": 'a method and a path, such as "GET /orders/*", or tag:NAME, or an operationId; * stands for anything',
}

_UPSTREAM = _mapping(
    {
        "mcp": _mapping({"url": _TEXT, "command": _list(_TEXT, minItems=1), "env": _VARIABLES}),
        "http": _mapping({"base_url": _TEXT, "tools": _list(_HTTP_TOOL, minItems=1)}, "base_url", "tools"),
        "openapi": _mapping(
            {"document": _TEXT, "base_url": _TEXT, "include": _list(_OPERATION, minItems=1), "exclude": _list(_OPERATION, minItems=1)}, "document"
        ),
        "command": _mapping({"tools": _list(_COMMAND_TOOL, minItems=1), "env": _VARIABLES}, "tools"),
        "auth": _AUTH,
    }
)

_KEY = _mapping(
    {
        "id": _PRINCIPAL,
        "person": _FLAG,
        "groups": _list(_GROUP),
        "task_types": _list(_TEXT),
        "claims": {"type": "object"},
        "trust": _list({"enum": ["call_id", "idempotency_key"]}),
        "sha256": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$", "description": "the SHA-256 of a key: 64 hexadecimal digits"},
    },
    "id", "sha256",
)  # fmt: skip

_JWT = _mapping(
    {"issuer": _TEXT, "audience": _TEXT, "jwks": _TEXT, "id_claim": _TEXT, "groups_claim": _TEXT},
    "issuer", "audience", "jwks",
)  # fmt: skip

_QUOTA = _mapping(
    {"per": {"enum": list(PERIODS)}, "turns": _COUNT, "tool_calls": _COUNT, "tokens": _COUNT, "cost_usd": USD_SCHEMA},
    "per",
    minProperties=2,
)

_LIMIT = _mapping({"for": _SELECTOR, "open_runs": _COUNT, "open_holds": _COUNT, "quotas": _list(_QUOTA)})

SETTINGS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "gateway.yaml",
    **_mapping(
        {
            "listen": {"type": "string", "description": "host:port, such as 127.0.0.1:8700 or [::1]:8700"},
            "ledger": {"type": "string", "writeOnly": True, "description": "sqlite:FILE or postgresql://…"},
            "policies": _TEXT,
            "secret": _list(_REFERENCE, minItems=1),
            "upstreams": {
                "type": "object",
                "additionalProperties": _UPSTREAM,
                "propertyNames": {
                    "pattern": "^(?!gateway$)[A-Za-z0-9]+([_-][A-Za-z0-9]+)*$",
                    "maxLength": 40,
                    "description": "an upstream's name: letters and digits, joined by single _ or -, and not gateway",
                },
            },
            "principals": _mapping({"keys": _list(_KEY), "jwt": _JWT}),
            "roles": _mapping(dict.fromkeys(("approver", "operator", "viewer", "reporter"), _list(_SELECTOR))),
            "limits": {"anyOf": [_LIMIT, _list(_LIMIT)]},
            "notify": _mapping({"webhook": _mapping({"url": _HIDDEN, "secret": _REFERENCE}, "url", "secret"), "apprise": _list(_HIDDEN)}),
            "retention": _mapping({"payloads": DURATION_SCHEMA}),
            "stop_grace": DURATION_SCHEMA,
            "tls": _mapping({"cert": _TEXT, "key": _TEXT}, "cert", "key"),
            "behind_proxy": _list(_TEXT, minItems=1),
            "hosts": _list(_HOST, minItems=1),
        }
    ),
}
