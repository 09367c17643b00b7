"""Strict YAML shared by settings and policies: read a file, check it against a schema, and say of every mistake where it stands."""

from gateway.source.quantities import DURATION_SCHEMA, SIZE_SCHEMA, USD_SCHEMA, duration_ms, size_bytes, usd_micros
from gateway.source.reader import Mistake, Position, Source, SourceError, child, read
from gateway.source.schema_check import check_schema, read_and_check

__all__ = [
    "DURATION_SCHEMA",
    "SIZE_SCHEMA",
    "USD_SCHEMA",
    "Mistake",
    "Position",
    "Source",
    "SourceError",
    "check_schema",
    "child",
    "duration_ms",
    "read",
    "read_and_check",
    "size_bytes",
    "usd_micros",
]
