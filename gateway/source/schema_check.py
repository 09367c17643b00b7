"""A file's data against a JSON Schema (2020-12): every violation as a mistake with its place, in words for people.

The schemas are this project's own; no reference is ever fetched. What they may carry for the wording: `description`, shown as
what was wanted, and `writeOnly: true`, which keeps the value out of the message. Type errors never show the value.
Of `anyOf` and `oneOf` only the branch that was most likely meant is reported.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from gateway.source.reader import Mistake, Source, SourceError, child, read

_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {
    "minimum": "is below {0}, the least",
    "maximum": "is above {0}, the most",
    "exclusiveMinimum": "must be above {0}",
    "exclusiveMaximum": "must be below {0}",
    "multipleOf": "is no multiple of {0}",
    "minLength": "is shorter than {0} characters",
    "maxLength": "is longer than {0} characters",
    "minItems": "has fewer than {0} items",
    "maxItems": "has more than {0} items",
    "uniqueItems": "holds an item twice",
    "minProperties": "has fewer than {0} keys",
    "maxProperties": "has more than {0} keys",
}
_JSON = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_Violation = Any
"""jsonschema's ValidationError; its stubs know too little of the fields."""


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """In JSON Schema a last `$` is the end and nothing else; in Python it also stands before a last newline."""
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError("pattern")


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    validators={"pattern": _pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)


def check_schema(source: Source, schema: Mapping[str, Any]) -> list[Mistake]:
    """Every violation, in file order. A whole number must be written as one (`20`, not `20.0`)."""
    validator = _Validator(schema, registry=Registry())
    return sorted({mistake for error in validator.iter_errors(source.data) for mistake in _mistakes(source, error)})


def read_and_check(file: str, text: bytes, schema: Mapping[str, Any]) -> tuple[Source, list[Mistake]]:
    """Read and check, and leave raising to the caller, who may find more. Raises SourceError when too little could be read to go on."""
    try:
        source, mistakes = read(file, text), []
    except SourceError as error:
        if error.partial is None:
            raise
        source, mistakes = error.partial, list(error.mistakes)
    known = {mistake.position for mistake in mistakes}
    return source, mistakes + [mistake for mistake in check_schema(source, schema) if mistake.position not in known]


def _mistakes(source: Source, error: _Violation) -> Iterator[Mistake]:
    pointer = child("", *error.absolute_path)
    if _is_about_a_key(source, error):
        yield Mistake(source.key_at(child(pointer, error.instance)), f"the key {_wording(error)}", pointer)
    elif error.validator in ("additionalProperties", "unevaluatedProperties") and error.validator_value is False:
        known = error.schema.get("properties", {})
        for key in _unknown(error.instance, known, error.schema.get("patternProperties", {})):
            yield Mistake(source.key_at(child(pointer, key)), _unknown_key(key, known))
    elif error.validator in ("required", "dependentRequired"):
        for key in _missing(error):
            yield Mistake(source.at(pointer), f"the key {_shown(key)} is missing", pointer)
    elif error.context and (relevant := _most_relevant(error.context)):
        for inner in relevant:
            yield from _mistakes(source, inner)
    else:
        yield Mistake(source.at(pointer), _wording(error), pointer)


def _is_about_a_key(source: Source, error: _Violation) -> bool:
    """`propertyNames` judges a key, but its errors carry the path of the mapping."""
    if "propertyNames" not in error.absolute_schema_path:
        return False
    value = source.data
    for step in error.absolute_path:
        value = value[step]
    return isinstance(value, dict) and isinstance(error.instance, str)


def _missing(error: _Violation) -> list[str]:
    wanted = error.validator_value
    if error.validator == "dependentRequired":
        wanted = [key for given, keys in wanted.items() if given in error.instance for key in keys]
    return [key for key in wanted if key not in error.instance]


def _unknown(instance: Iterable[str], known: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return [key for key in instance if key not in known and not any(re.search(pattern, key) for pattern in patterns)]


def _unknown_key(key: str, known: Iterable[str]) -> str:
    if close := difflib.get_close_matches(key, known, n=1):
        return f"unknown key {_shown(key)}; did you mean {_shown(close[0])}?"
    return f"unknown key {_shown(key)}; known here: {', '.join(sorted(known)) or 'none'}"


def _most_relevant(context: Iterable[_Violation]) -> list[_Violation]:
    """The errors of the branch that was most likely meant; none if the value is of a kind that no branch wants."""
    branches: dict[Any, list[_Violation]] = defaultdict(list)
    for error in context:
        branches[error.schema_path[0]].append(error)
    fitting = [errors for errors in branches.values() if not any(map(_is_about_the_kind, errors))]
    return min(fitting, key=lambda errors: (sum(e.validator in ("const", "enum") for e in errors), len(errors)), default=[])


def _is_about_the_kind(error: _Violation) -> bool:
    return error.validator in ("type", "const", "enum") and not error.path


# ---- words --------------------------------------------------------------------------------------------------------------


def _wording(error: _Violation) -> str:
    limit, wanted = error.validator_value, _wanted(error)
    if error.validator == "type":
        return f"found {_kind(error.instance)}, wanted {wanted}"
    if error.validator in ("anyOf", "oneOf") and error.context:
        kinds = [inner for inner in error.context if _is_about_the_kind(inner)]
        found = _kind(error.instance) if all(inner.validator == "type" for inner in kinds) else _value(error)
        return f"found {found}, wanted {' or '.join(dict.fromkeys(map(_wanted, kinds)))}"
    if error.validator in ("const", "enum"):
        return f"{_value(error)} is not {wanted}{_guess(error)}"
    if error.validator == "pattern":
        return f"{_value(error)} is not {wanted or f'of the form {limit}'}"
    complaint = _BOUNDS.get(error.validator, "is not allowed here").format(limit)
    return f"{_value(error)} {complaint}{f'; wanted {wanted}' if wanted else ''}"


def _wanted(error: _Violation) -> str:
    if error.validator == "const":
        return _shown(error.validator_value)
    if error.validator == "enum":
        return f"one of {', '.join(map(_shown, error.validator_value))}"
    if isinstance(error.schema, dict) and "description" in error.schema:
        return str(error.schema["description"])
    return _names(error.validator_value) if error.validator == "type" else ""


def _names(types: str | Sequence[str]) -> str:
    return " or ".join(_TYPES[name] for name in ([types] if isinstance(types, str) else types))


def _kind(value: Any) -> str:
    return "a decimal number" if isinstance(value, float) else _TYPES[_JSON[type(value)]]


def _guess(error: _Violation) -> str:
    if not isinstance(error.instance, str) or error.validator != "enum":
        return ""
    close = difflib.get_close_matches(error.instance, [value for value in error.validator_value if isinstance(value, str)], n=1)
    return f"; did you mean {_shown(close[0])}?" if close else ""


def _value(error: _Violation) -> str:
    return "the value" if _is_secret(error) or isinstance(error.instance, dict | list) else _shown(error.instance)


def _is_secret(error: _Violation) -> bool:
    return isinstance(error.schema, dict) and bool(error.schema.get("writeOnly"))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
