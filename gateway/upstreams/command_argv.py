"""A command tool's argv: a template whose words are filled one by one, without a shell, so that a word stays one word.

A word that is nothing but an argument takes a list as several words. One whose argument is absent or null is left out. A value can't pass
for an option: it may begin with - only after a `--` of the template's own, or behind a text of the template's, as in `--path={args.path}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.core.model import Json
from gateway.upstreams.sending import unsendable
from gateway.wire.json import dumps

ARGUMENT: Final = re.compile(r"\{args\.([^{}]+)\}")
MAX_WORD: Final = 131_071
"""Bytes; Linux takes no longer word (MAX_ARG_STRLEN)."""


def argv(template: Sequence[str], arguments: Mapping[str, Json], *, all_placed: bool = True) -> list[str]:
    """The words of one call. `all_placed`: every argument has its place here. Raises UpstreamFault `unsendable`."""
    if all_placed and (lost := arguments.keys() - {name for word in template for name in ARGUMENT.findall(word)}):
        raise unsendable(f"the command has no place for {', '.join(sorted(lost))[:200]}")
    words, is_guarded = [], False
    for word in template:
        for filled in _filled(word, arguments):
            if filled.startswith("-") and ARGUMENT.match(word) and not is_guarded:
                raise unsendable(f"the argument of {word!r} can't begin with '-': it would pass for an option")
            if "\0" in filled or len(filled.encode()) > MAX_WORD:
                raise unsendable(f"the argument of {word!r} can't be a word of a command: it holds a NUL or is longer than {MAX_WORD} bytes")
            words.append(filled)
        is_guarded = is_guarded or word == "--"
    return words


def _filled(word: str, arguments: Mapping[str, Json]) -> Iterator[str]:
    named = ARGUMENT.findall(word)
    if any(arguments.get(name) is None for name in named):
        return
    only = arguments[named[0]] if ARGUMENT.fullmatch(word) else None
    if isinstance(only, list):
        yield from (_text(named[0], item) for item in only)
    else:
        yield ARGUMENT.sub(lambda found: _text(found[1], arguments[found[1]]), word)


def _text(name: str, value: Json) -> str:
    if value is None or isinstance(value, list | dict):
        raise unsendable(f"argument {name!r} is wanted as a string, number or boolean, or as a list of them where it is a word by itself")
    return value if isinstance(value, str) else dumps(value).decode()
