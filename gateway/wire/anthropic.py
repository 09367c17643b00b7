"""Anthropic's forms: a `tool_use` block as the model gave it, the `tool_result` block for it, a tool's definition.

Content blocks become text, image and document blocks where the API knows them (JPEG, PNG, GIF, WebP; PDF), and JSON
text otherwise. The API refuses empty texts, so they are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.wire.calls import ModelCall, blocks, failed, is_image, model_call, text_of

_EMPTY: Final = {"type": "text", "text": ""}


def is_call(call: Mapping[str, Any]) -> bool:
    return call.get("type") == "tool_use"


def read_call(call: Mapping[str, Any]) -> ModelCall:
    """Raises MalformedCall, also for an `input` that is no object (a stream that was cut off leaves text there)."""
    return model_call(call.get("id"), call.get("name"), call.get("input"))


def tool_result(call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """One block for the `content` of the next user message, which holds those of all calls of the turn."""
    written = {"type": "tool_result", "tool_use_id": call_id}
    content = [part for part in map(_part, blocks(result)) if part != _EMPTY]
    return {**written, **({"content": content} if content else {}), **({"is_error": True} if failed(result) else {})}


def tool(name: str, description: str | None, input_schema: Mapping[str, Any]) -> dict[str, Any]:
    described = {} if description is None else {"description": description}
    return {"name": name, **described, "input_schema": input_schema}


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    if is_image(block):
        return {"type": "image", "source": _base64(block["mimeType"], block["data"])}
    resource = block.get("resource")
    if block.get("type") == "resource" and isinstance(resource, dict) and _is_pdf(resource):
        return {"type": "document", "source": _base64("application/pdf", resource["blob"])}
    return {"type": "text", "text": text_of(block)}


def _is_pdf(resource: Mapping[str, Any]) -> bool:
    return resource.get("mimeType") == "application/pdf" and isinstance(resource.get("blob"), str)


def _base64(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}
