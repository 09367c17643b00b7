"""Where references to secrets lead, and what a mistake says of them."""

import re
import traceback

import pytest

from gateway.settings_secrets import MAX_FILE_BYTES, with_secrets
from gateway.source import read

PLACES = re.compile("/secret|/list/[0-9]+")


def resolve(text: str, environ: dict, folder):
    return with_secrets(read("f.yaml", text.encode()), PLACES, environ, folder)


def test_references_are_filled_in_from_environment_and_files(tmp_path):
    (tmp_path / "token").write_text("from file\r\n\n")
    data, mistakes = resolve('secret: "a ${env:ONE} b ${file:token}"\nlist: [plain, "${env:ONE}"]\n', {"ONE": "1"}, tmp_path)
    assert mistakes == []
    assert data["secret"].reveal() == "a 1 b from file"
    assert [item.reveal() for item in data["list"]] == ["plain", "1"]


def test_what_a_reference_leads_to_is_no_reference_itself(tmp_path):
    data, mistakes = resolve('secret: "${env:ONE}"', {"ONE": "${env:TWO}", "TWO": "x"}, tmp_path)
    assert (data["secret"].reveal(), mistakes) == ("${env:TWO}", [])


def test_a_file_path_may_be_absolute(tmp_path):
    (tmp_path / "token").write_text("t")
    data, _ = resolve(f'secret: "${{file:{tmp_path}/token}}"', {}, tmp_path / "elsewhere")
    assert data["secret"].reveal() == "t"


@pytest.mark.parametrize(
    "reference", ["${env:NONE}", "${env:EMPTY}", "${env:BYTES}", "${file:none}", "${file:folder}", "${file:empty}", "${file:big}", "${file:raw}"]
)
def test_a_reference_that_leads_nowhere_is_a_mistake_at_its_place(tmp_path, reference):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "big").write_text("hunter2" * MAX_FILE_BYTES)
    (tmp_path / "raw").write_bytes(b"hunter2\xff")
    _, (mistake,) = resolve(f'a: 1\nlist:\n  - "hunter2 {reference}"\n', {"EMPTY": "", "BYTES": "hunter2\udcff"}, tmp_path)
    assert (mistake.position.line, mistake.position.column, mistake.pointer) == (3, 5, "/list/0")
    assert reference[6:-1].lstrip(":") in mistake.message
    assert "hunter2" not in mistake.message


def test_every_reference_that_leads_nowhere_is_said(tmp_path):
    _, mistakes = resolve('secret: "${env:A} ${env:B} ${file:c}"', {}, tmp_path)
    assert len(mistakes) == 3


@pytest.mark.parametrize("text", ["${ENV:A}", "${A}", "${env:}", "${env:A", "$${", "${env:{A}}"])
def test_what_only_looks_like_a_reference_is_a_mistake_where_secrets_stand(tmp_path, text):
    _, mistakes = resolve(f"secret: '{text}'\nother: '{text}'", {"A": "x"}, tmp_path)
    assert [mistake.position.line for mistake in mistakes] == [1]


def test_a_reference_elsewhere_is_a_mistake_and_is_not_followed(tmp_path):
    data, (mistake,) = resolve('secret: x\nother: {deep: ["${env:A}"]}', {"A": "hunter2"}, tmp_path)
    assert (mistake.position.line, mistake.pointer) == (2, "/other/deep/0")
    assert data["other"] == {"deep": ["${env:A}"]}


def test_only_the_very_places_are_secret(tmp_path):
    data, mistakes = resolve('secrets: "${env:A}"\nlist: [{list: "${env:A}"}]', {"A": "hunter2"}, tmp_path)
    assert [mistake.pointer for mistake in mistakes] == ["/secrets", "/list/0/list"]
    assert data == {"secrets": "${env:A}", "list": [{"list": "${env:A}"}]}


def test_values_that_are_no_text_stay_as_they_are(tmp_path):
    assert resolve("secret: 5\nlist: [null, 1.5, true]", {}, tmp_path) == ({"secret": 5, "list": [None, 1.5, True]}, [])


def test_no_traceback_carries_the_content_of_a_file(tmp_path):
    (tmp_path / "raw").write_bytes(b"hunter2\xff")
    _, mistakes = resolve('secret: "${file:raw}"', {}, tmp_path)
    assert "hunter2" not in "".join(map(repr, mistakes)) + traceback.format_exc()
