"""Anthropic's tool_use blocks are read as they come; results keep images, documents and failures."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire import anthropic, json
from gateway.wire.calls import MalformedCall, ModelCall

USE = {"type": "tool_use", "id": "toolu_1", "name": "crm__get", "input": {"id": 7}}
SCHEMA = {"type": "object", "properties": {}}


def content(*blocks: dict[str, Any], **result: Any) -> Any:
    return anthropic.tool_result("toolu_1", {"content": list(blocks), **result}).get("content")


def test_a_tool_use_is_read() -> None:
    assert anthropic.read_call(USE) == ModelCall("toolu_1", "crm__get", {"id": 7})
    assert anthropic.is_call(USE)
    assert not anthropic.is_call({"type": "function"})


@pytest.mark.parametrize("change", [{"id": None}, {"name": ""}, {"input": None}, {"input": '{"id": 7'}, {"input": []}])
def test_a_tool_use_out_of_shape_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedCall):
        anthropic.read_call({**USE, **change})


def test_a_text_result_is_one_block() -> None:
    result = {"content": [{"type": "text", "text": "hi", "annotations": {"priority": 1}}], "isError": False, "_meta": {"a": 1}}
    written = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "hi"}]}
    assert anthropic.tool_result("toolu_1", result) == written
    assert anthropic.tool_result("toolu_1", {**result, "isError": True}) == {**written, "is_error": True}


def test_empty_texts_are_left_out() -> None:
    assert content({"type": "text", "text": ""}, {"type": "text", "text": "a"}) == [{"type": "text", "text": "a"}]
    assert content({"type": "text", "text": ""}) is None
    assert anthropic.tool_result("toolu_1", {}) == {"type": "tool_result", "tool_use_id": "toolu_1"}


@pytest.mark.parametrize("kind", ["image/png", "image/jpeg", "image/gif", "image/webp"])
def test_an_image_that_the_api_knows_stays_an_image(kind: str) -> None:
    image = {"type": "image", "data": "AA==", "mimeType": kind}
    assert content(image) == [{"type": "image", "source": {"type": "base64", "media_type": kind, "data": "AA=="}}]


def test_a_pdf_stays_a_document() -> None:
    pdf = {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "AA=="}}
    assert content(pdf) == [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "AA==", "mimeType": "image/tiff"},
        {"type": "image", "mimeType": "image/png"},
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}},
        {"type": "resource", "resource": None},
        {"type": "resource", "resource": {"mimeType": "application/pdf"}},
        {"type": "resource", "resource": {"mimeType": "text/plain", "blob": "AA=="}},
        {"type": "other", "resource": {"mimeType": "application/pdf", "blob": "AA=="}},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "new", "x": 2**70},
    ],
)
def test_what_the_api_does_not_know_is_json_text(block: dict[str, Any]) -> None:
    (part,) = content(block)
    assert part["type"] == "text"
    assert json.parse(part["text"].encode()) == block


def test_structure_alone_is_shown() -> None:
    assert content(structuredContent={"paid": True}) == [{"type": "text", "text": '{"paid":true}'}]


def test_a_definition_carries_its_schema() -> None:
    assert anthropic.tool("crm__get", "Read.", SCHEMA) == {"name": "crm__get", "description": "Read.", "input_schema": SCHEMA}
    assert "description" not in anthropic.tool("crm__get", None, SCHEMA)
