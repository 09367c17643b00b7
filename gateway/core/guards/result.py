"""result: what may be recorded and seen of an answer: fields redacted, a schema it must keep, a cap on its size.

Redaction and schema see `structuredContent`, else the only text block if it is a JSON document; redaction rewrites both. A result that can't be
used is replaced by a readable note; the call itself has happened, and the note says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec

from gateway.core.guards.guard import Guard, Section, Shape, Stage
from gateway.core.model import Finding, Json
from gateway.core.units import SIZE, size_bytes

DEFAULT_MAX_BYTES = 256 * 1024
NO_CAP = 1 << 50
RESULTS = "gateway://results/"
"""What the URI of a result begins with that is kept aside; its key follows."""
_BEGINNING = 1_000
_WORTH_READING = 1024 * 1024
REDACTED = "[redacted]"
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ResultGuard(Guard):
    """`redact`: JSON pointers as tuples; `*` stands for every element or member."""

    kind: ClassVar[str] = "result"
    stage: ClassVar[Stage] = Stage.RESULT
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "defaults": {
            "result": {
                "type": "object",
                "description": "a mapping: what results may be where a rule doesn't say",
                "additionalProperties": False,
                "properties": {"max_bytes": SIZE},
            }
        },
        "rule": {
            "result": {
                "type": "object",
                "description": "a mapping: what may be recorded and seen of an answer",
                "additionalProperties": False,
                "properties": {
                    "max_bytes": SIZE,
                    "redact": {
                        "type": "array",
                        "description": "a list of JSON pointers to what is taken out",
                        "items": {"type": "string", "pattern": "^/", "description": "a JSON pointer, such as /card/number; * is every member"},
                    },
                    "schema": {"type": "object", "description": "a JSON Schema that the result must satisfy, after redaction"},
                },
            }
        },
    }

    max_bytes: int
    redact: tuple[tuple[str, ...], ...]
    shape: Shape | None

    @classmethod
    def build(cls, section: Section) -> Self | None:
        part: Mapping[str, Any] = section.data["rule"].get("result", {})
        defaults: Mapping[str, Any] = section.data["defaults"].get("result", {})
        is_ceiling = section.kind == "ceiling"
        if is_ceiling and not part and not defaults:
            return None
        cap = size_bytes(part.get("max_bytes", defaults.get("max_bytes", NO_CAP if is_ceiling else DEFAULT_MAX_BYTES)))
        redact = tuple(tuple(_unescaped(step) for step in pointer.split("/")[1:]) for pointer in part.get("redact", ()))
        shape = section.shape(part["schema"], f"{section.pointer['rule']}/result/schema") if "schema" in part else None
        return cls(cap, redact, shape)

    @property
    def inspects(self) -> bool:
        return bool(self.redact) or self.shape is not None

    @property
    def read_bytes(self) -> int:
        """What is over the cap is kept aside, within reason."""
        return max(4 * self.max_bytes, _WORTH_READING)

    def review(self, result: Mapping[str, Json]) -> tuple[Mapping[str, Json], Finding | None]:
        if _size(result) > self.max_bytes:  # before anything that costs more than reading it once
            return _note("result.too_large", f"The tool ran, but its result is over the cap of {self.max_bytes} bytes; it was dropped.")
        if self.redact:
            result = self._redacted(result)
        if self.shape is not None and not result.get("isError"):
            wrong = self.shape(structured(result))
            if wrong:
                return _note("result.invalid", f"The tool ran, but its result is not what the policy expects: {'; '.join(wrong[:3])}")
        return result, None

    def _redacted(self, result: Mapping[str, Json]) -> Mapping[str, Json]:
        """`structuredContent` and every text block that is a JSON document; what was taken out is taken out of other texts too.

        What can't be looked into (images, resources, the upstream's `_meta`) doesn't pass where something has to be taken out.
        """
        taken: set[str] = set()
        after = {name: value for name, value in result.items() if name != "_meta"}
        if "structuredContent" in result:
            after["structuredContent"] = self._clean(result["structuredContent"], taken)
        if "content" in result:
            blocks = [self._rewritten(block, taken) for block in _blocks(result)]
            after["content"] = [_erased(block, taken) if _is_text(block) else dict(_UNSEEN) for block in blocks]
        return after

    def _clean(self, value: Json, taken: set[str]) -> Json:
        for path in self.redact:
            value = _without(value, path, taken)
        return value

    def _rewritten(self, block: Json, taken: set[str]) -> Json:
        value = _parsed(block["text"]) if _is_text(block) else None
        clean = self._clean(value, taken)
        return block if clean is value or clean == value else {**block, "text": _text(clean)}


def kept_aside(result: Mapping[str, Json]) -> dict[str, Json]:
    """The note in place of a result that is over the cap and that nothing had to be taken out of: how long it is, and how it begins."""
    words = " ".join(block["text"][:_BEGINNING] for block in _blocks(result) if _is_text(block))[:_BEGINNING]
    message = f"The tool ran. Its result has {_size(result)} bytes, more than is shown here."
    note: dict[str, Json] = {"content": [{"type": "text", "text": f"{message} It begins:\n{words}" if words else message}]}
    return {**note, "isError": bool(result.get("isError"))}


def linked(note: Mapping[str, Json], run: str, call: str, key: str, size: int) -> dict[str, Json]:
    """The note with the way to the whole result, which is kept under `key`."""
    how = f"The whole result as JSON: read this resource, or GET /v1/runs/{run}/results/{key}"
    link = {"type": "resource_link", "uri": RESULTS + key, "name": f"result of {call}", "description": how, "mimeType": "application/json"}
    return {**note, "content": [*note["content"], {**link, "size": size}]}


def _note(reason: str, message: str) -> tuple[Mapping[str, Json], Finding]:
    note = {"content": [{"type": "text", "text": message}], "isError": True}
    return note, Finding(ResultGuard.kind, reason, message)


def structured(result: Mapping[str, Json]) -> Json:
    """What conditions, redaction and schemas see of a result: `structuredContent`, else the sole text block as JSON, else None."""
    if "structuredContent" in result:
        return result["structuredContent"]
    texts = [block for block in _blocks(result) if _is_text(block)]
    return _parsed(texts[0]["text"]) if len(texts) == 1 else None


def _blocks(result: Mapping[str, Json]) -> list[Json]:
    """An upstream may send anything there."""
    content = result.get("content")
    return content if isinstance(content, list) else []


def _is_text(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _parsed(text: str) -> Json:
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None


_TELLING = 4
_MOST_TAKEN = 200
_UNSEEN = {"type": "text", "text": REDACTED}


def _erased(block: Json, taken: set[str]) -> Json:
    """A text that repeats in words what was taken out of the data; shorter values say too little and stand everywhere."""
    text = block["text"]
    telling = sorted((secret for secret in taken if len(secret) >= _TELLING), key=len, reverse=True)
    if len(telling) > _MOST_TAKEN and _parsed(text) is None:
        return {**block, "text": REDACTED}
    for secret in telling[:_MOST_TAKEN]:
        text = text.replace(secret, REDACTED)
    return {**block, "text": text} if text != block["text"] else block


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _said(value: Json) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _said(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and value != REDACTED:
        yield str(value)


def _without(value: Json, path: tuple[str, ...], taken: set[str]) -> Json:
    """A copy in which whatever stands at the path is replaced; the texts and numbers that stood there go into `taken`."""
    if not path:
        taken.update(_said(value))
        return REDACTED
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {name: _without(item, rest, taken) if head in ("*", name) else item for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, rest, taken) if head in ("*", str(i)) else item for i, item in enumerate(value)]
    return value


def _size(value: Json) -> int:
    """How many bytes a value takes as JSON."""
    try:
        return len(_encode(value))
    except UnicodeEncodeError:  # half a character, as an escape in a text's JSON may say
        return len(_text(value).encode("utf-8", "surrogatepass"))


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
