"""What all providers' forms share: a call's three parts, a result's content as text, nothing shown twice."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire.calls import MalformedCall, ModelCall, blocks, failed, is_image, model_call, text_of


def test_a_call_is_its_id_tool_and_arguments() -> None:
    assert model_call("c1", "crm__get", {"a": 1}) == ModelCall("c1", "crm__get", {"a": 1})


@pytest.mark.parametrize(
    ("parts", "known"),
    [
        ((None, "t", {}), (None, "t")),
        (("", "t", {}), (None, "t")),
        ((5, None, {}), (None, None)),
        ((None, 5, {}), (None, None)),
        (("c", 5, {}), ("c", None)),
        (("c", None, {}), ("c", None)),
        (("c", "", {}), ("c", None)),
        (("c", "t", []), ("c", "t")),
        (("c", "t", None), ("c", "t")),
        (("c", "t", "{}"), ("c", "t")),
    ],
)
def test_a_call_out_of_shape_tells_what_could_still_be_read(parts: tuple[Any, Any, Any], known: tuple[Any, Any]) -> None:
    with pytest.raises(MalformedCall) as caught:
        model_call(*parts)
    assert (caught.value.call_id, caught.value.tool) == known


def test_structure_is_shown_where_no_text_says_it() -> None:
    assert list(blocks({"structuredContent": {"id": 2**70}})) == [{"type": "text", "text": '{"id":1180591620717411303424}'}]
    assert len(list(blocks({"content": [{"type": "text", "text": "Paid."}], "structuredContent": {"paid": True}}))) == 2
    assert len(list(blocks({"content": [{"type": "text", "text": '{"paid": 1}'}], "structuredContent": {"paid": True}}))) == 2


def test_structure_that_a_text_already_says_is_not_shown_again() -> None:
    content = [{"type": "text", "text": '{ "a": [1, 2.5],\n "b": null }'}]
    assert list(blocks({"content": content, "structuredContent": {"a": [1, 2.5], "b": None}})) == content


@pytest.mark.parametrize("content", [None, "text", {}, [1, "x", None]])
def test_content_out_of_shape_shows_nothing(content: Any) -> None:
    assert list(blocks({"content": content, "structuredContent": None})) == []


def test_a_block_is_its_text_or_its_json() -> None:
    assert text_of({"type": "text", "text": "é", "annotations": {}}) == "é"
    assert text_of({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}) == '{"type":"audio","data":"AA==","mimeType":"audio/wav"}'
    assert text_of({"type": "new", "text": "é"}) == '{"type":"new","text":"é"}'
    assert text_of({"type": "text", "text": 5}) == '{"type":"text","text":5}'


def test_only_a_true_mark_means_failure() -> None:
    assert failed({"isError": True})
    assert not failed({"isError": False})
    assert not failed({})


@pytest.mark.parametrize("change", [{"mimeType": ["image/png"]}, {"mimeType": None}, {"mimeType": "image/svg+xml"}, {"data": 5}, {"type": "audio"}])
def test_an_image_that_no_provider_takes_is_none(change: dict[str, Any]) -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    assert is_image(image)
    assert not is_image({**image, **change})
