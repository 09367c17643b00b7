"""OpenAI's tool calls are read as they come; results lose nothing that its messages can hold."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire import json, openai
from gateway.wire.calls import FAILED, MalformedCall, ModelCall

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


def chat(arguments: Any, name: Any = "crm__get") -> dict[str, Any]:
    return {"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_a_chat_call_and_a_responses_call_are_read_alike() -> None:
    responses = {"type": "function_call", "id": "fc_1", "call_id": "call_0", "name": "crm__get", "arguments": '{"id": 7}', "status": "completed"}
    assert openai.read_call(chat('{"id": 7}')) == openai.read_call(responses) == ModelCall("call_0", "crm__get", {"id": 7})


@pytest.mark.parametrize("arguments", ["", " \n", "{}"])
def test_a_tool_without_arguments_may_get_no_text(arguments: str) -> None:
    assert openai.read_call(chat(arguments)).arguments == {}


@pytest.mark.parametrize(
    "arguments", ['{"id": 7', '{"id"', "{", '{"a":1,"a":2}', "NaN", "null", "[]", '"{}"', "{} {}", '{"a":"\\ud800"}', '{"a":"\ud800"}', None, {}, 5]
)
def test_arguments_that_are_cut_off_or_no_object_are_malformed(arguments: Any) -> None:
    with pytest.raises(MalformedCall) as caught:
        openai.read_call(chat(arguments))
    assert (caught.value.call_id, caught.value.tool) == ("call_0", "crm__get")


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"type": "function"},
        {"type": "function", "function": "x"},
        chat("{}", name=None),
        {**chat("{}"), "id": None},
        {"type": "function_call", "id": "fc", "name": "a", "arguments": "{}"},
    ],
)
def test_a_call_without_its_parts_is_malformed(call: dict[str, Any]) -> None:
    with pytest.raises(MalformedCall):
        openai.read_call(call)


def test_an_id_that_is_no_text_is_not_told() -> None:
    with pytest.raises(MalformedCall) as caught:
        openai.read_call({**chat("{"), "id": 5})
    assert (caught.value.call_id, caught.value.tool) == (None, "crm__get")


def test_its_calls_are_known_by_their_type() -> None:
    assert openai.is_call(chat("{}"))
    assert openai.is_call({"type": "function_call"})
    assert not openai.is_call({"type": "tool_use"})
    assert not openai.is_call({"tool": "crm.get"})


def test_one_text_is_a_plain_string_in_both_forms() -> None:
    result = {"content": [text("hi")], "isError": False, "_meta": {"a": 1}}
    assert openai.tool_message("call_0", result) == {"role": "tool", "tool_call_id": "call_0", "content": "hi"}
    assert openai.function_call_output("call_0", result) == {"type": "function_call_output", "call_id": "call_0", "output": "hi"}


def test_more_texts_stay_apart() -> None:
    result = {"content": [text("a"), text("b")]}
    assert openai.tool_message("c", result)["content"] == [text("a"), text("b")]
    assert openai.function_call_output("c", result)["output"] == [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]


def test_an_empty_result_is_an_empty_string() -> None:
    assert openai.tool_message("c", {"content": []})["content"] == ""
    assert openai.function_call_output("c", {})["output"] == ""


def test_a_failure_is_said_first() -> None:
    result = {"content": [text("no such order")], "isError": True}
    assert openai.tool_message("c", result)["content"] == [text(FAILED), text("no such order")]
    assert openai.function_call_output("c", result)["output"][0]["text"] == FAILED


def test_an_image_is_an_image_where_the_api_takes_one_and_json_elsewhere() -> None:
    result = {"content": [IMAGE, LINK]}
    chat_parts = openai.tool_message("c", result)["content"]
    assert [json.parse(part["text"].encode()) for part in chat_parts] == [IMAGE, LINK]
    image, link = openai.function_call_output("c", result)["output"]
    assert image == {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    assert json.parse(link["text"].encode()) == LINK
    assert openai.function_call_output("c", {"content": [IMAGE]})["output"] == [image]


def test_an_image_without_a_type_is_json() -> None:
    bare = {"type": "image", "data": "AA=="}
    assert json.parse(openai.function_call_output("c", {"content": [bare]})["output"].encode()) == bare


def test_a_definition_is_a_function_with_its_schema() -> None:
    schema = {"type": "object", "properties": {}}
    assert openai.tool("crm__get", "Read.", schema) == {
        "type": "function",
        "function": {"name": "crm__get", "description": "Read.", "parameters": schema},
    }
    assert "description" not in openai.tool("crm__get", None, schema)["function"]
