"""Violations of a schema as mistakes: their place, what they name, what they keep to themselves."""

import pytest
from referencing.exceptions import Unresolvable

from gateway.source import DURATION_SCHEMA, SourceError, check_schema, read, read_and_check


def mistakes(text: str, schema: dict) -> list:
    return check_schema(read("f.yaml", text.encode()), schema)


def only(text: str, schema: dict):
    (mistake,) = mistakes(text, schema)
    return mistake


def place(mistake) -> tuple[int, int]:
    return mistake.position.line, mistake.position.column


CLOSED = {"type": "object", "additionalProperties": False, "properties": {"policies": {}, "listen": {}}}


def test_what_fits_has_no_mistakes():
    assert mistakes("policies: x", CLOSED) == []


def test_an_unknown_key_is_placed_at_the_key_with_the_one_that_was_meant():
    mistake = only("listen: 1\npolcies:   x", CLOSED)
    assert place(mistake) == (2, 1)
    assert '"policies"' in mistake.message


def test_an_unknown_key_like_no_other_is_answered_with_the_known_ones():
    assert "listen, policies" in only("zzz: x", CLOSED).message


def test_an_unknown_key_leaves_the_rest_usable():
    assert only("zzz: x", CLOSED).pointer is None


def test_each_unknown_key_is_a_mistake_and_patterns_are_known():
    schema = {**CLOSED, "patternProperties": {"^x-": {}}}
    assert [place(m) for m in mistakes("x-a: 1\nq: 1\nlisten: 1\nr: 1\n", schema)] == [(2, 1), (4, 1)]


def test_each_missing_key_is_placed_at_the_mapping():
    found = mistakes("a: {}\nb:  {x: 1}\n", {"properties": {"b": {"required": ["x", "y", "z"]}}})
    assert [place(m) for m in found] == [(2, 5), (2, 5)]
    assert ['"y"' in found[0].message, '"z"' in found[1].message] == [True, True]
    assert {m.pointer for m in found} == {"/b"}


def test_a_key_that_another_demands_is_missing_too():
    assert '"b"' in only("a: 1", {"dependentRequired": {"a": ["b"]}}).message


@pytest.mark.parametrize(
    ("value", "kind", "names"),
    [
        ("x", "integer", ["text", "whole number"]), ("1.5", "integer", ["decimal", "whole"]), ("20.0", "integer", ["decimal", "whole"]),
        ("true", "integer", ["true or false", "whole"]), ("1", "string", ["whole number", "text"]), ("[]", "object", ["list", "mapping"]),
        ("{}", "array", ["mapping", "list"]), ("null", "boolean", ["null", "true or false"]), ("x", ["object", "null"], ["mapping or null"]),
    ],
)  # fmt: skip
def test_a_wrong_type_says_what_was_found_and_what_wanted(value, kind, names):
    mistake = only(f"v: {value}", {"properties": {"v": {"type": kind}}})
    assert place(mistake) == (1, 4)
    assert mistake.pointer == "/v"
    assert all(name in mistake.message for name in names)


def test_a_description_says_what_was_wanted():
    schema = {"properties": {"d": DURATION_SCHEMA, "e": DURATION_SCHEMA}}
    assert all("90s" in mistake.message for mistake in mistakes("d: 90\ne: 90x", schema))


def test_a_pattern_that_ends_in_a_dollar_means_the_end():
    assert mistakes('d: "90s"', {"properties": {"d": DURATION_SCHEMA}}) == []
    assert place(only('d: "90s\\n"', {"properties": {"d": DURATION_SCHEMA}})) == (1, 4)


def test_a_value_near_one_of_a_list_gets_a_hint():
    assert 'did you mean "read_only"' in only("v: readonly", {"properties": {"v": {"enum": ["read_only", "write", 1]}}}).message
    assert "did you mean" not in only("v: 7", {"properties": {"v": {"enum": ["read_only"]}}}).message


@pytest.mark.parametrize(
    "rule",
    [
        {"minimum": 6}, {"maximum": 4}, {"exclusiveMinimum": 5}, {"exclusiveMaximum": 5}, {"multipleOf": 3}, {"const": 4}, {"enum": [1]},
        {"not": {"type": "integer"}}, {"allOf": [{"minimum": 9}]}, {"if": {"type": "integer"}, "then": {"minimum": 9}},
    ],
)  # fmt: skip
def test_every_other_rule_on_a_value_is_placed_and_shows_it(rule):
    mistake = only("v: 5", {"properties": {"v": rule}})
    assert (place(mistake), "5" in mistake.message) == ((1, 4), True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ab", {"minLength": 3}), ("ab", {"maxLength": 1}), ("[1, 1]", {"uniqueItems": True}), ("[]", {"minItems": 1}), ("[1, 2]", {"maxItems": 1}),
        ("{}", {"minProperties": 1}), ("{a: 1}", {"maxProperties": 0}), ("[1]", {"contains": {"type": "string"}}),
    ],
)  # fmt: skip
def test_every_rule_on_a_size_is_placed(text, rule):
    assert place(only(f"v: {text}", {"properties": {"v": rule}})) == (1, 4)


def test_a_key_of_the_wrong_form_is_placed_at_the_key():
    schema = {"properties": {"u": {"propertyNames": {"pattern": "^[a-z]+$", "description": "a lower-case name"}}}}
    mistake = only("u:\n  crm: 1\n  CRM: 1\n", schema)
    assert place(mistake) == (3, 3)
    assert "a lower-case name" in mistake.message


def test_a_value_named_property_names_is_no_key():
    mistake = only("propertyNames: x", {"properties": {"propertyNames": {"type": "integer"}}})
    assert place(mistake) == (1, 16)
    assert "key" not in mistake.message


APPROVAL = {
    "properties": {
        "a": {
            "anyOf": [
                {"const": "never"},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"quorum": {"type": "integer"}, "when": {"type": "string"}},
                },
            ]
        }
    }
}


@pytest.mark.parametrize("text", ["a: never", "a: {quorum: 1}"])
def test_one_fitting_branch_is_enough(text):
    assert mistakes(text, APPROVAL) == []


def test_of_several_branches_the_one_that_was_meant_is_reported():
    found = mistakes("a:\n  quorm: 1\n  when: 2\n", APPROVAL)
    assert [place(m) for m in found] == [(2, 3), (3, 9)]
    assert '"quorum"' in found[0].message


def test_a_value_that_no_branch_wants_names_them_all():
    mistake = only("a: nevr", APPROVAL)
    assert all(word in mistake.message for word in ('"nevr"', '"never"', "a mapping"))


def test_of_two_mappings_the_one_whose_constants_fit_is_meant():
    branch = [{"type": "object", "properties": {"kind": {"const": kind}, kind: {"type": "integer"}}, "required": [kind]} for kind in ("one", "two")]
    found = mistakes("kind: two\none: 1\ntwo: x\n", {"oneOf": branch})
    assert [place(m) for m in found] == [(3, 6)]


def test_a_value_that_fits_two_forms_of_one_is_refused():
    assert place(only("v: 1", {"properties": {"v": {"oneOf": [{"type": "integer"}, {"minimum": 0}]}}})) == (1, 4)


def test_branches_inside_branches_are_followed():
    schema = {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"b": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}}},
        ]
    }
    assert place(only("b: [1, x]", schema)) == (1, 8)


SECRET = {"type": "string", "pattern": "^x$", "writeOnly": True}


@pytest.mark.parametrize(
    "rule",
    [SECRET, {**SECRET, "description": "a reference"}, {"writeOnly": True, "enum": ["hunter1"]}, {"writeOnly": True, "minLength": 99}],
)
def test_what_is_write_only_is_never_shown(rule):
    mistake = only("v: hunter2", {"properties": {"v": rule}})
    assert "hunter" not in mistake.message.replace('"hunter1"', "")


@pytest.mark.parametrize("rule", [{"type": "object"}, {"type": ["array", "null"]}, {"anyOf": [{"type": "object"}, {"type": "array"}]}])
def test_a_wrong_type_never_shows_the_value(rule):
    assert "hunter" not in only("v: hunter2", {"properties": {"v": rule}}).message


def test_a_long_value_is_shortened():
    assert len(only(f"v: {'x' * 5000}", {"properties": {"v": {"enum": ["a"]}}}).message) < 200


def test_schemas_inside_a_file_are_checked_against_the_standard_without_fetching():
    schema = {"properties": {"s": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}}
    assert mistakes("s: {type: object, properties: {a: {minimum: 1}}}", schema) == []
    assert [place(m) for m in mistakes("s: {type: objct, properties: {a: {minimum: x}}}", schema)] == [(1, 11), (1, 44)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # else the library's warning, made an error, would stop the fetching for us
def test_a_reference_to_elsewhere_is_never_fetched(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(Unresolvable):
        mistakes("s: 1", {"$ref": (tmp_path / "x.json").as_uri()})


def test_reading_and_checking_find_all_mistakes_of_both_kinds():
    source, found = read_and_check("f.yaml", b"listen: NO\npolcies: x\n", {**CLOSED, "properties": {"listen": {"type": "integer"}}})
    assert sorted(map(place, found)) == [(1, 9), (2, 1)]
    assert source.data == {"listen": "NO", "polcies": "x"}


def test_after_a_syntax_error_nothing_is_checked():
    with pytest.raises(SourceError) as caught:
        read_and_check("f.yaml", b"polcies: x\n]", CLOSED)
    assert len(caught.value.mistakes) == 1
