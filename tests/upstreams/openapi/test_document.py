"""Reading a document: both versions, both languages, every mistake with its place, and references that stay inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.source import SourceError
from gateway.upstreams.openapi import document as module
from gateway.upstreams.openapi.document import Document, Node, Unusable, load
from tests.upstreams.openapi.stage import FLEET, SHOP, document, file

PLAIN = {"openapi": "3.0.3", "info": {"title": "x", "version": "1"}, "paths": {}}


def mistakes(folder: Path, data: Any, name: str = "api.json") -> list[str]:
    with pytest.raises(SourceError) as caught:
        load(file(folder, data, name), name)
    return [f"{one.position.line}:{one.position.column}" for one in caught.value.mistakes]


@pytest.mark.parametrize(("path", "is_30"), [(SHOP, True), (FLEET, False)])
def test_both_versions_and_both_languages_are_read(path: Path, is_30: bool) -> None:
    it = load(path, path.name)
    assert (it.is_30, it.root.value["info"]["title"]) == (is_30, path.stem.title())


def test_a_key_may_be_any_plain_text_and_what_stands_in_an_example_does_not_matter(tmp_path: Path) -> None:
    text = "openapi: 3.0.3\npaths:\n  /x:\n    get: {responses: {200: {example: 2026-01-02, x-y: NO}}}\n"
    it = load(file(tmp_path, text, "api.yaml"), "api.yaml")
    assert list(it.root.value["paths"]["/x"]["get"]["responses"]) == ["200"]


def test_every_mistake_of_a_yaml_document_comes_with_its_place(tmp_path: Path) -> None:
    text = "openapi: 3.0.3\ninfo: &a {title: x}\npaths: {}\nservers: NO\npaths: {}\n"
    assert mistakes(tmp_path, text, "api.yaml") == ["2:7", "4:10", "5:1"]


@pytest.mark.parametrize(
    ("text", "place"),
    [("{", "1:2"), ('{"a": 1,\n "a": 2}', "2:2"), ('\ufeff{"a":\n nul}', "2:2"), ("[]", "1:1"), ("", "1:1"), ("- a", "1:1"), ('{"a": NaN}', "1:1")],
)
def test_what_is_no_document_is_told_at_its_place(tmp_path: Path, text: str, place: str) -> None:
    assert mistakes(tmp_path, text) == [place]


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({"openapi": "2.0"}, 1),
        ({"openapi": 3.1}, 1),
        ({"openapi": "3.2.0"}, 1),
        ({"openapi": None, "swagger": "2.0", "paths": None}, 2),
        ({"paths": []}, 1),
        ({"servers": {}, "components": [], "security": {}, "paths": None}, 4),
    ],
)
def test_what_the_whole_document_lacks_is_told_at_once(tmp_path: Path, changed: dict[str, Any], count: int) -> None:
    assert len(mistakes(tmp_path, {**PLAIN, **changed})) == count


def test_a_file_that_is_not_there_or_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError):
        load(tmp_path / "none.json", "none.json")
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    assert mistakes(tmp_path, json.dumps(PLAIN) + " " * 100) == ["1:1"]
    assert mistakes(tmp_path, "openapi: 3.0.3\n" + "#" * 100, "api.yaml") == ["1:1"]


def test_places_of_json_are_found_in_its_text(tmp_path: Path) -> None:
    it = load(file(tmp_path, {**PLAIN, "paths": {"/x": {"get": {}}}}), "api.json")
    assert str(it.at("/paths/~1x/get")) == "api.json:9:11"


# ---- references ---------------------------------------------------------------------------------------------------------


def linked(**components: Any) -> Document:
    return document({"components": components, "a b": {"c/d": [{"e": 1}]}})


@pytest.mark.parametrize("reference", ["#/a b/c~1d/0", "#/a%20b/c~1d/0", "#/a%20b/c%7E1d/0"])
def test_a_reference_is_a_pointer_into_the_document(reference: str) -> None:
    node = linked().resolved(Node({"$ref": reference}, "/here"))
    assert (node.value, node.pointer) == ({"e": 1}, "/a b/c~1d/0")


def test_references_are_followed_to_the_end() -> None:
    it = linked(a={"$ref": "#/components/b"}, b={"$ref": "#/a b/c~1d/0"})
    assert it.resolved(Node({"$ref": "#/components/a"}, "")).value == {"e": 1}


@pytest.mark.parametrize(
    "reference",
    ["other.yaml#/a", "https://evil.test/a", "", "#", "#a", "#/none", "#/a b/c~1d/1", "#/a b/c~1d/x", "#/components/loop", "#/openapi", 5, None],
)
def test_a_reference_that_leaves_leads_nowhere_or_in_a_circle_is_unusable(reference: Any) -> None:
    it = linked(loop={"$ref": "#/components/loop"})
    with pytest.raises(Unusable):
        it.resolved(Node({"$ref": reference}, "/here"))


def test_what_is_of_another_kind_than_wanted_is_unusable_at_its_place() -> None:
    for wrong in (lambda: list(Node([], "/a").members()), lambda: list(Node({}, "/a").items()), lambda: linked().resolved(Node(5, "/a"))):
        with pytest.raises(Unusable) as caught:
            wrong()
        assert caught.value.pointer == "/a"


def test_extensions_are_no_members_and_no_texts_count_as_absent() -> None:
    node = Node({"a": 1, "x-b": 2}, "")
    assert [key for key, _ in node.members()] == ["a"]
    assert node.text("a") is None
    assert node.get("a", "b") is None
