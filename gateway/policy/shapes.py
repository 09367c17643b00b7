"""JSON Schema -> callables that say what is wrong with a value, in words a model can act upon.

Verdicts are jsonschema-rs's; the words are ours (`mismatch`), so that no value is repeated. Draft 2020-12 unless `$schema` names another.
Schemas and values are hostile: nothing is fetched, patterns take linear time, formats and contents aren't asserted, and a schema whose work
could explode is refused, or judges only values small enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from gateway.core.model import Json
from gateway.policy.mismatch import explain
from gateway.policy.schema_index import SchemaIndex, ShapeError, pointer

MAX_STEPS = 50_000_000
CHEAP = 64

_DRAFTS: dict[str, Any] = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
}
_PATTERN_BYTES = 33_554_432
_LARGEST_PATTERN = 4_194_304


class _Unasserted:
    """A keyword that asserts nothing: the library would read draft-07's `contentEncoding` as a demand."""

    def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None: ...

    def validate(self, instance: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class CompiledShape:
    """A compiled schema; calling it gives at most 10 messages of what is wrong, () if nothing. Never raises. `where` names the value in them."""

    where: str
    index: SchemaIndex = field(repr=False, compare=False)
    is_valid: Callable[[Json], bool] = field(repr=False, compare=False)

    def __call__(self, value: Json, /) -> tuple[str, ...]:
        if self.index.cost > CHEAP and _exceeds(value, MAX_STEPS // self.index.cost):
            return (f"{self.where}: too many values for this schema",)
        try:
            if self.is_valid(value):
                return ()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  whatever it is, it refuses; a panic in the library's Rust is no Exception
            return (f"{self.where}: this value can't be judged",)
        return explain(self.index, value, self.where) or (f"{self.where}: doesn't fit the schema",)


def compile_shape(schema: Mapping[str, Any], *, where: str = "arguments") -> CompiledShape:
    """Raises ShapeError, with the JSON pointer of the place, for a schema that is wrong, leaves the document, or can't be judged in bounds."""
    index = SchemaIndex(schema)
    dialect = index.root.get("$schema", next(iter(_DRAFTS)))
    validator = _DRAFTS.get(dialect.rstrip("#")) if isinstance(dialect, str) else None
    if validator is None:
        raise ShapeError(f"$schema {str(dialect)[:80]!r} isn't supported; known are {', '.join(_DRAFTS)}", "/$schema")
    size_limit = min(_LARGEST_PATTERN, _PATTERN_BYTES // max(index.patterns, 1))
    try:
        compiled = validator(
            index.root,
            validate_formats=False,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=size_limit),
            keywords=dict.fromkeys(("contentEncoding", "contentMediaType"), _Unasserted),
        )
    except jsonschema_rs.ValidationError as error:
        raise ShapeError(_reason(error), pointer(error.instance_path)) from None
    except ValueError as error:
        raise ShapeError(str(error)[:200]) from None
    return CompiledShape(where, index, compiled.is_valid)


def _reason(error: jsonschema_rs.ValidationError) -> str:
    if error.instance_path and "regex" in error.message:
        return f"the pattern {str(error.instance)[:80]!r} isn't supported (linear time: no look-around, no back references, no huge repeats)"
    return error.message[:200]


def _exceeds(value: Json, limit: int) -> bool:
    """Has the value more than `limit` parts?"""
    waiting = [value]
    while waiting and limit >= 0:
        limit -= 1
        inner = waiting.pop()
        if isinstance(inner, dict):
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return limit < 0
