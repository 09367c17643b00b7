"""The schema of gateway.yaml is a schema, names every part of Settings, and marks what is secret."""

import re

from jsonschema import Draft202012Validator

from gateway.settings_schema import SECRETS, SETTINGS_SCHEMA


def test_the_schema_is_a_valid_schema():
    Draft202012Validator.check_schema(SETTINGS_SCHEMA)


def test_every_mapping_of_the_schema_refuses_unknown_keys_or_names_what_it_takes():
    open_on_purpose = {"claims", "input_schema", "output_schema"}

    def walk(schema, name):
        if not isinstance(schema, dict):
            return
        if schema.get("type") == "object" and name not in open_on_purpose:
            assert "additionalProperties" in schema, name
        for key, inner in schema.get("properties", {}).items():
            walk(inner, key)
        for inner in [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]:
            walk(inner, name)

    walk(SETTINGS_SCHEMA, "")


def test_what_is_secret_is_write_only_in_the_schema():
    def walk(schema, pointer):
        if not isinstance(schema, dict):
            return
        if schema.get("type") == "string":
            assert bool(schema.get("writeOnly")) == bool(SECRETS.fullmatch(pointer)), pointer
        for key, inner in schema.get("properties", {}).items():
            walk(inner, f"{pointer}/{key}")
        walk(schema.get("items"), f"{pointer}/0")
        walk(schema.get("additionalProperties"), f"{pointer}/x")

    walk(SETTINGS_SCHEMA, "")


def test_patterns_are_plain_enough_for_editors():
    """ECMAScript knows neither `\\Z` nor inline flags."""

    def patterns(schema):
        if isinstance(schema, dict):
            yield from ([schema["pattern"]] if isinstance(schema.get("pattern"), str) else [])
            schema = list(schema.values())
        for inner in schema if isinstance(schema, list) else ():
            yield from patterns(inner)

    found = list(patterns(SETTINGS_SCHEMA))
    assert len(found) > 10
    assert not any(re.search(r"\\[AZz]|\(\?[a-zP]", pattern) for pattern in found)
