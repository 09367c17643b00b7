"""Arguments made from a tool's input schema: all it has, or only what it must have. What comes out is for the schema's own judge to accept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.policy.shapes import compile_shape

DEEPEST = 6
TEXTS = ("abc", "1.2.3", "YWJj", "sha256:" + "a" * 64, "2", "#aabbcc", "a" * 40)
FORMATS = {"date-time": "2026-01-02T03:04:05Z", "date": "2026-01-02", "uri": "https://a.test/x", "email": "a@b.test"}


class Maker:
    """`every`: also what isn't required. `root` holds the definitions."""

    def __init__(self, root: Mapping[str, Any], every: bool) -> None:
        self._root, self._every = root, every

    def value(self, schema: Any, depth: int = 0) -> Any:
        if not isinstance(schema, dict):
            return "abc"
        if "$ref" in schema:
            return self.value(self._root["$defs"][schema["$ref"].rpartition("/")[2]], depth)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else schema["enum"][0]
        branches = next((schema[key] for key in ("oneOf", "anyOf") if key in schema), [])
        found = self._typed({**schema, **(branches[0] if branches and "type" not in schema else {})}, depth)
        for part in [*schema.get("allOf", ()), *branches[:1]]:
            more = self.value(part, depth)
            found = {**found, **more} if isinstance(found, dict) and isinstance(more, dict) else more
        return found

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:
        if "$ref" in schema:
            return self.value({"$ref": schema["$ref"]}, depth)
        kind = schema.get("type", "object" if "properties" in schema or "allOf" in schema else "array" if "items" in schema else "string")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object":
            wanted = set(schema.get("required", ())) if not self._every or depth > DEEPEST else schema.get("properties", {})
            return {name: self.value(part, depth + 1) for name, part in schema.get("properties", {}).items() if name in wanted}
        if kind == "array":
            fixed = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
            count = max(schema.get("minItems", 0), 0 if fixed or depth > DEEPEST else 1)
            return fixed + [self.value(schema.get("items", {}), depth + 1) for _ in range(count - len(fixed))]
        return _scalar(kind, schema)


def _scalar(kind: str, schema: Mapping[str, Any]) -> Any:
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return max(1, least) if kind == "integer" else least + 0.5
    if kind in ("boolean", "null"):
        return True if kind == "boolean" else None
    if schema.get("contentEncoding") == "base64":
        return "YWJj"
    if schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    fitting = (text for text in TEXTS if re.search(schema.get("pattern", ""), text) and len(text) >= schema.get("minLength", 0))
    return next(fitting, "abc")[: schema.get("maxLength", 1000)]


def made(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Those of the two that the schema accepts."""
    judge = compile_shape(schema)
    for every in (False, True):
        arguments = Maker(schema, every).value(schema)
        if not judge(arguments):
            yield arguments
