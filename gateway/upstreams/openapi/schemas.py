"""OpenAPI's Schema Objects as JSON Schema 2020-12, as far as they are about what is sent.

References become `$defs`, so that recursive schemas stay recursive; read-only properties are left out. Of 3.0's dialect `nullable` and
the boolean exclusive bounds are translated; a discriminator becomes what it means: in each branch, the values that choose it. Everything
that asserts nothing and says nothing to a reader is dropped. Whether the outcome is a sound schema, the catalog judges.
Source: OpenAPI 3.0.4 §4.7.24 (Schema Object), §4.7.25 (Discriminator Object); 3.1.1 §4.8.24.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.source import child
from gateway.upstreams.openapi.document import Document, Node, Unusable

_SINGLE: Final = frozenset(
    ["not", "items", "additionalProperties", "contains", "propertyNames", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems"]
)
_LIST: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_MAP: Final = frozenset(["properties", "patternProperties", "dependentSchemas"])
_KEPT: Final = frozenset(
    ["type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern",
     "maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required", "dependentRequired",
     "format", "contentEncoding", "contentMediaType", "title", "description", "default", "deprecated", "examples"]
)  # fmt: skip
_SAYS_MORE: Final = (_SINGLE | _LIST | _MAP | _KEPT) - {
    "type", "properties", "required", "additionalProperties", "title", "description", "default", "examples", "deprecated"
}  # fmt: skip
_IDENTITY: Final = frozenset(["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"])
_COMPONENT: Final = re.compile(r"/components/schemas/([A-Za-z0-9._-]+)")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Fields:
    """The properties of a plain object. `closed`: it says of no others that they may be given."""

    nodes: Mapping[str, Node]
    required: tuple[str, ...]
    closed: bool


def described(schema: Any, by: Node) -> Any:
    """A translated schema with the description that stands beside it, unless it has its own."""
    text = by.text("description")
    if text is None or schema is False:
        return schema
    return {"description": text, **(schema if isinstance(schema, dict) else {})}


class Schemas:
    """The schemas of one document, each translated once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._targets: dict[str, Node] = {}
        self._definitions: dict[str, Any] = {}

    def of(self, node: Node) -> Any:
        """The schema that stands at `node`; what it refers to is among `definitions`. Raises Unusable."""
        return self._schema(node, frozenset())

    def definitions(self, schema: Any) -> dict[str, Any]:
        """The `$defs` that a translated schema needs, those of the definitions themselves among them; by name. Raises Unusable."""
        found: dict[str, Any] = {}
        waiting = [schema]
        while waiting:
            for name in _named(waiting.pop()):
                if name in self._targets and name not in found:
                    found[name] = self._definition(name)
                    waiting.append(found[name])
        return dict(sorted(found.items()))

    def _definition(self, name: str) -> Any:
        if name not in self._definitions:
            self._definitions[name] = self._schema(self._targets[name], frozenset())
        return self._definitions[name]

    def meant(self, node: Node) -> Node:
        """The schema itself where there is only a reference to it; Unusable as in `Document.resolved`."""
        return node if isinstance(node.value, bool) else self._document.resolved(node)

    def fields(self, node: Node) -> Fields | None:
        """The properties of a schema that says nothing else than which it has and wants, without read-only ones; None for any other."""
        schema = self.meant(node)
        value = schema.value if isinstance(schema.value, dict) else {}
        if value.get("type", "object") != "object" or value.get("nullable") is True or value.keys() & _SAYS_MORE:
            return None
        hidden, required = self._read_only(schema), value.get("required")
        nodes = {name: part for name, part in _members(schema, "properties") if name not in hidden}
        wanted = tuple(name for name in required if name in nodes) if isinstance(required, list) else ()
        return Fields(nodes, wanted, value.get("additionalProperties", False) is False) if nodes else None

    # ---- translation ----------------------------------------------------------------------------------------------------

    def _schema(self, node: Node, hidden: frozenset[str]) -> Any:
        """`hidden`: read-only names that the schemas around this one know of, and that nothing here may require."""
        if isinstance(node.value, bool):
            return node.value
        if not isinstance(node.value, dict):
            raise Unusable(node.pointer, "a schema is wanted here")
        if foreign := _IDENTITY & node.value.keys():
            raise Unusable(node.pointer, f"{min(foreign)} is not followed; refer to schemas by #/…")
        found: dict[str, Any] = {}
        if "$ref" in node.value:
            found["$ref"] = self._reference(node)
            if self._document.is_30:
                return found  # its siblings mean nothing
        hidden |= self._read_only(node)
        for key, value in node.value.items():
            if (translated := self._keyword(key, Node(value, child(node.pointer, key)), hidden)) is not _DROPPED:
                found[key] = translated
        if self._document.is_30:
            _from_30(node.value, found)
        self._discriminate(node, found)
        return found

    def _keyword(self, key: str, node: Node, hidden: frozenset[str]) -> Any:
        value = node.value
        if key in _SINGLE and isinstance(value, dict | bool):
            return self._schema(node, frozenset())
        if key in _LIST and isinstance(value, list):
            return [self._schema(item, hidden if key == "allOf" else frozenset()) for item in node.items()]
        if key in _MAP and isinstance(value, dict):
            inside = ((name, Node(part, child(node.pointer, name))) for name, part in value.items())
            return {name: self._schema(part, frozenset()) for name, part in inside if key != "properties" or name not in hidden}
        if key == "required" and isinstance(value, list):
            return [name for name in value if name not in hidden] or _DROPPED
        return value if key in _KEPT | _SINGLE | _LIST | _MAP else _DROPPED

    def _reference(self, node: Node) -> str:
        target = self._document.target(node.value["$ref"], child(node.pointer, "$ref"))
        self._targets[name := _name(target.pointer)] = target
        return f"#/$defs/{name}"

    def _read_only(self, node: Node) -> frozenset[str]:
        """The names of properties that are only ever answered, those of the parts of an `allOf` among them."""
        names, seen, waiting = set[str](), set[str](), [node]
        while waiting:
            one = waiting.pop()
            if isinstance(one.value, dict) and one.pointer not in seen:
                seen.add(one.pointer)
                names |= {name for name, part in _members(one, "properties") if self._says_read_only(part)}
                waiting += [self.meant(part) for part in _parts(one, "allOf")]
        return frozenset(names)

    def _says_read_only(self, node: Node) -> bool:
        if not isinstance(node.value, dict):
            return False
        return node.value.get("readOnly") is True or ("$ref" in node.value and self.meant(node).value.get("readOnly") is True)

    def _discriminate(self, node: Node, found: dict[str, Any]) -> None:
        """Each branch that can be named also says which values of the property name it."""
        name = node.value.get("discriminator", {}).get("propertyName") if isinstance(node.value.get("discriminator"), dict) else None
        if not isinstance(name, str):
            return
        mapping = node.value["discriminator"].get("mapping")
        for key in {"oneOf", "anyOf"} & found.keys():
            for index, branch in enumerate(_parts(node, key)):
                if values := self._values(branch, mapping if isinstance(mapping, dict) else {}):
                    chosen = {"properties": {name: {"enum": values}}, "required": [name]}
                    found[key][index] = {"allOf": [found[key][index], chosen]}

    def _values(self, branch: Node, mapping: Mapping[str, Any]) -> list[str]:
        """Those that the mapping gives for a branch, else its own name; none for a branch that isn't a reference."""
        reference = branch.value.get("$ref") if isinstance(branch.value, dict) else None
        if not isinstance(reference, str):
            return []
        own = reference.rpartition("/")[2]
        return [value for value, target in mapping.items() if target in (reference, own)] or [own]


_DROPPED: Final = object()


def _from_30(schema: Mapping[str, Any], found: dict[str, Any]) -> None:
    """`nullable` says something only beside a type (3.0.3's clarification); an exclusive bound was a flag beside the bound."""
    if schema.get("nullable") is True and isinstance(schema.get("type"), str):
        found["type"] = [schema["type"], "null"]
    for bound, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(flag), bool):
            del found[flag]
            if schema[flag] and bound in found:
                found[flag] = found.pop(bound)
    if "example" in schema:
        found["examples"] = [schema["example"]]


def _members(node: Node, key: str) -> Iterator[tuple[str, Node]]:
    value = node.value.get(key) if isinstance(node.value, dict) else None
    for name, part in value.items() if isinstance(value, dict) else ():
        yield name, Node(part, child(node.pointer, key, name))


def _parts(node: Node, key: str) -> list[Node]:
    value = node.value.get(key)
    return [Node(part, child(node.pointer, key, index)) for index, part in enumerate(value)] if isinstance(value, list) else []


def _name(pointer: str) -> str:
    """A definition's name, which depends on nothing but where it stands: a component's own, or one with a hash."""
    if own := _COMPONENT.fullmatch(pointer):
        return own[1]
    return f"{_UNFIT.sub('_', pointer.rpartition('/')[2])[:40]}-{hashlib.sha256(pointer.encode()).hexdigest()[:8]}"


def _named(schema: Any) -> Iterator[str]:
    """The definitions that a translated schema refers to."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/$defs/"):
                yield reference.removeprefix("#/$defs/")
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
