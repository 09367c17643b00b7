"""What the providers' forms have in common: a model's tool call as a value, a result's content as text.

A result here is MCP's `CallToolResult`: `content` blocks, `structuredContent`, `isError`. Its `_meta` is for the
harness, not for the model, and is not written into a provider's message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.wire import json

FAILED: Final = "The tool reported an error (isError: true)."
IMAGES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
"""What both providers take as an image."""


class MalformedCall(ValueError):
    """A tool call that can't be read, most often because the model's output was cut off; becomes
    `arguments.malformed`. `call_id` and `tool` are what could still be read."""

    def __init__(self, message: str, call_id: str | None = None, tool: str | None = None) -> None:
        super().__init__(message)
        self.call_id = call_id
        self.tool = tool


@dataclass(frozen=True, slots=True)
class ModelCall:
    """`tool` is the name as the model was shown it."""

    call_id: str
    tool: str
    arguments: dict[str, Any]


def model_call(call_id: Any, tool: Any, arguments: Any) -> ModelCall:
    """Raises MalformedCall unless id and tool are non-empty strings and the arguments an object."""
    if not (isinstance(call_id, str) and call_id):
        raise MalformedCall("the call has no id", tool=tool if isinstance(tool, str) else None)
    if not (isinstance(tool, str) and tool):
        raise MalformedCall("the call names no tool", call_id)
    if not isinstance(arguments, dict):
        raise MalformedCall("the arguments are no JSON object", call_id, tool)
    return ModelCall(call_id, tool, arguments)


def blocks(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The content blocks, then a text block for `structuredContent` if no text block says the same already."""
    content = result.get("content")
    shown = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    yield from shown
    structured = result.get("structuredContent")
    if structured is not None and not any(_says(block, structured) for block in shown):
        yield {"type": "text", "text": json.dumps(structured).decode()}


def text_of(block: Mapping[str, Any]) -> str:
    """A text block's text; of any other block its JSON."""
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else json.dumps(block).decode()


def is_image(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "image" and block.get("mimeType") in IMAGES and isinstance(block.get("data"), str)


def failed(result: Mapping[str, Any]) -> bool:
    return result.get("isError") is True


def _says(block: Mapping[str, Any], structured: Any) -> bool:
    try:
        said = json.parse(text_of(block).encode()) if block.get("type") == "text" else None
    except json.JsonError:
        return False
    return json.dumps(said) == json.dumps(structured)  # `==` would take 1 for true
