"""`${env:NAME}` and `${file:path}` in gateway.yaml, resolved where secrets belong and refused elsewhere.

Nothing here puts a resolved value into a message, an exception or a repr.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.secret import Secret
from gateway.source import Mistake, Source, child

MAX_FILE_BYTES = 65_536
REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")


def with_secrets(source: Source, places: re.Pattern[str], environ: Mapping[str, str], folder: Path) -> tuple[Any, list[Mistake]]:
    """The source's data with a Secret for every text whose pointer is one of `places`, and the references that lead nowhere.

    Relative paths of `${file:…}` start at `folder`; the line ends that close the file are no part of the secret.
    """
    mistakes: list[Mistake] = []

    def walk(value: Any, pointer: str) -> Any:
        if isinstance(value, dict):
            return {key: walk(member, child(pointer, key)) for key, member in value.items()}
        if isinstance(value, list):
            return [walk(item, child(pointer, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        result, complaints = _secret(value, environ, folder) if places.fullmatch(pointer) else (value, _misplaced(value))
        mistakes.extend(Mistake(source.at(pointer), complaint, pointer) for complaint in complaints)
        return result

    return walk(source.data, ""), mistakes


def _misplaced(text: str) -> list[str]:
    return ["a reference to a secret is not read here, only where secrets belong"] if REFERENCE.search(text) else []


def _secret(text: str, environ: Mapping[str, str], folder: Path) -> tuple[Secret, list[str]]:
    complaints = ["${ opens a reference: ${env:NAME} or ${file:path}"] if "${" in REFERENCE.sub("", text) else []

    def fill(found: re.Match[str]) -> str:
        try:
            return _resolved(found, environ, folder)
        except ValueError as error:
            complaints.append(str(error))
            return ""

    return Secret(REFERENCE.sub(fill, text)), complaints


def _resolved(found: re.Match[str], environ: Mapping[str, str], folder: Path) -> str:
    kind, name = found.groups()
    if kind == "env":
        thing, content = f"the environment variable {name}", _variable(environ, name)
    else:
        thing, content = f"the file {folder / name}", _content(folder / name)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{thing} is not UTF-8") from None
    if not text:
        raise ValueError(f"{thing} is empty")
    return text


def _variable(environ: Mapping[str, str], name: str) -> bytes:
    if name not in environ:
        raise ValueError(f"the environment variable {name} is not set")
    return environ[name].encode(errors="surrogateescape")


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the file {path} can't be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"the file {path} is longer than {MAX_FILE_BYTES} bytes")
    return content.rstrip(b"\r\n")
