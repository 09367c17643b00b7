"""OpenAI's forms: a tool call as the model gave it, a tool's result for it, a tool's definition.

Two APIs: Chat Completions (`tool_calls`, role `tool`) and Responses (`function_call`, `function_call_output`).
A Chat tool message holds only text, so other blocks are written as JSON; Responses also takes images.
Neither has a mark for failure: a failed result says so in a text before its content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.wire import json
from gateway.wire.calls import FAILED, MalformedCall, ModelCall, blocks, failed, is_image, model_call, text_of


def is_call(call: Mapping[str, Any]) -> bool:
    return call.get("type") in ("function", "function_call")


def read_call(call: Mapping[str, Any]) -> ModelCall:
    """A Chat `tool_calls` entry or a Responses `function_call` item. Raises MalformedCall."""
    if call.get("type") == "function_call":
        return _read(call.get("call_id"), call)
    function = call.get("function")
    if not isinstance(function, dict):
        raise MalformedCall("the call holds no function")
    return _read(call.get("id"), function)


def tool_message(call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Chat's `{"role": "tool"}` message. One text is a plain string, more are text parts."""
    texts = _texts(result)
    parts = [{"type": "text", "text": text} for text in texts]
    return {"role": "tool", "tool_call_id": call_id, "content": texts[0] if len(texts) == 1 else parts or ""}


def function_call_output(call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Responses' item. One text is a plain string, more are input parts, images among them as data URLs."""
    parts = [{"type": "input_text", "text": FAILED}] if failed(result) else []
    parts += [_input_part(block) for block in blocks(result)]
    plain = parts[0].get("text") if len(parts) == 1 else None
    output = plain if plain is not None else parts or ""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def tool(name: str, description: str | None, input_schema: Mapping[str, Any]) -> dict[str, Any]:
    """A `tools` entry of Chat Completions."""
    described = {} if description is None else {"description": description}
    return {"type": "function", "function": {"name": name, **described, "parameters": input_schema}}


def _read(call_id: Any, function: Mapping[str, Any]) -> ModelCall:
    tool, text = function.get("name"), function.get("arguments")
    if not isinstance(text, str):
        raise MalformedCall("the arguments are no JSON text", _text(call_id), _text(tool))
    try:
        arguments = json.parse(text.encode()) if text.strip() else {}  # tools without arguments often get none at all
    except (json.JsonError, UnicodeEncodeError) as error:
        raise MalformedCall(f"the arguments are no JSON: {error}", _text(call_id), _text(tool)) from None
    return model_call(call_id, tool, arguments)


def _texts(result: Mapping[str, Any]) -> list[str]:
    return ([FAILED] if failed(result) else []) + [text_of(block) for block in blocks(result)]


def _input_part(block: Mapping[str, Any]) -> dict[str, Any]:
    if is_image(block):
        return {"type": "input_image", "image_url": f"data:{block['mimeType']};base64,{block['data']}"}
    return {"type": "input_text", "text": text_of(block)}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
