"""The schemas of what is taken are strict, those of what is answered leave room for later fields."""

from gateway.core.reasons import REASONS
from gateway.doors.rest import schemas


def test_what_is_taken_knows_its_fields_and_no_others() -> None:
    assert schemas.fields({"a": schemas.NAME}, "a") == {
        "type": "object", "properties": {"a": schemas.NAME}, "required": ["a"], "additionalProperties": False,
    }  # fmt: skip


def test_what_is_answered_has_all_its_fields_and_may_get_more() -> None:
    assert schemas.shown({"a": {}})["required"] == ["a"]
    assert all(component.get("additionalProperties") is not False for component in schemas.COMPONENTS.values())


def test_a_problem_may_have_every_reason_there_is() -> None:
    assert schemas.COMPONENTS["Problem"]["properties"]["reason"]["enum"] == sorted(REASONS)
