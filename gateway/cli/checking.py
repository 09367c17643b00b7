"""`gateway check` and `gateway test`: everything that is wrong with settings and policies at once, and the policies' own tests.

Both work on a deployment, on a folder of policies and on one file, and open no ledger. Mistakes end with 1, warnings don't.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.app_adapters import catalog, credentials, principals, read_document, refuse_unusable, shape
from gateway.cli import output
from gateway.cli.arguments import CONFIG, command
from gateway.cli.output import Failure
from gateway.cli.place import existing, shown
from gateway.policy.cases import CaseResult, run_cases
from gateway.policy.compile import compile_document
from gateway.policy.lint import Deployment, Remark, lint
from gateway.policy.store import TESTS, LoadedPolicies, load_policies
from gateway.ports import PolicyError
from gateway.settings import SETTINGS_SCHEMA, AuthSettings, OpenApiSettings, Settings, load_settings
from gateway.settings_document import is_loopback
from gateway.source import Position, Source, SourceError, read

_PLACED = re.compile(r"(?P<file>[^:]+)(:(?P<line>\d+):(?P<column>\d+))?: (?P<message>.*)")
_UNUSABLE = re.compile(r"[^:]+: (?P<message>(?P<key>[\w.-]+).*)")
_NO_SECRET = "no `secret` is named, so one is made at each start and the run tokens of the last end with it"
_UNASKED = "the upstreams were not asked, since this deployment has mistakes; no rule was held against their tools"


def add(commands: Any) -> None:
    check = command(commands, "check", "say all that is wrong with gateway.yaml and the policies, and what to think about", run_check)
    check.add_argument("path", metavar="PATH", nargs="?", type=absolute, help="a folder or file in place of the deployment")
    check.add_argument("--upstreams", action="store_true", help="start or ask the upstreams too, and hold the rules against their tools")
    test = command(commands, "test", "run the policies' own tests, *_test.yaml", run_tests)
    test.add_argument("path", metavar="PATH", nargs="?", type=absolute, help="a folder, or one file of tests, in place of the deployment")


def absolute(text: str) -> Path:
    return Path(text).absolute()


# ---- check --------------------------------------------------------------------------------------------------------------


def run_check(args: argparse.Namespace) -> int:
    place = _deployment_in(args.path, args.config)
    if place is not None:
        files, remarks = _deployment(place, upstreams=args.upstreams)
    elif args.upstreams:
        raise Failure(f"--upstreams needs a deployment; {shown(args.path)} is none.")
    else:
        files, remarks = _policies(args.path, Deployment())
    mistakes, warnings = ([one for one in remarks if one.is_error is wrong] for wrong in (True, False))
    if args.json:
        output.say_json({"ok": not mistakes, "files": files, "mistakes": list(map(_json, mistakes)), "warnings": list(map(_json, warnings))})
    else:
        for mistake in mistakes:
            output.say(f"{mistake.position}: {mistake.message}")
        for warning in warnings:
            output.say(str(warning))
        found = f"{_count(mistakes, 'mistake')}, {_count(warnings, 'warning')}"
        output.say(f"{found} in {', '.join(files)}." if remarks else f"All is well in {', '.join(files)}.")
    return 1 if mistakes else 0


def _deployment_in(path: Path | None, config: str) -> Path | None:
    """The deployment file that is meant; None if `path` holds only policies."""
    if path is None:
        return existing(config)
    if not path.exists():
        raise Failure(f"There is no {shown(path)}.")
    if path.is_dir():
        return path / CONFIG if (path / CONFIG).exists() else None
    data = None if path.name.endswith(TESTS) else _source(path).data
    return path if isinstance(data, dict) and data.keys() & SETTINGS_SCHEMA["properties"].keys() else None


def _deployment(file: Path, *, upstreams: bool) -> tuple[list[str], list[Remark]]:
    """What was looked at, and all that was found; policies are judged also where settings have mistakes."""
    source = _source(file)
    folder = _policies_of(source, file)
    known, remarks = Deployment(), []
    unasked = [Remark(source.at("/upstreams"), _UNASKED)] if upstreams else []
    try:
        settings = load_settings(shown(file), os.environ)
        refuse_unusable(settings)
    except SourceError as error:
        remarks = [*(Remark(mistake.position, mistake.message, True) for mistake in error.mistakes), *unasked]
    except PolicyError as error:
        unusable = filter(None, map(_UNUSABLE.fullmatch, str(error).splitlines()))
        remarks = [*(Remark(source.at(f"/{one['key'].replace('.', '/')}"), one["message"], True) for one in unusable), *unasked]
    else:
        remarks = [] if settings.secret else [Remark(source.at(""), _NO_SECRET)]
        remarks += [*_documents(settings), *_in_clear(settings, source)]
        known = _known(settings, file)
        if upstreams and any(remark.is_error for remark in remarks):
            remarks += unasked
        elif upstreams:
            tools, away = asyncio.run(_asked(settings, source))
            known, remarks = replace(known, tools=tools), [*remarks, *away]
    files, found = _policies(folder, known)
    return [shown(file), *files], [*remarks, *found]


def _documents(settings: Settings) -> list[Remark]:
    """What is wrong with the upstreams' OpenAPI documents, what was left out of them, and which credentials they want."""
    remarks = []
    for one in settings.upstreams:
        if isinstance(one.origin, OpenApiSettings):
            try:
                api = read_document(one.origin, credentials(one.auth), shown(one.origin.document), shape)
                remarks += [Remark(each.position, f"{one.name}: {each.message}") for each in api.remarks]
            except SourceError as error:
                remarks += [Remark(each.position, each.message, True) for each in error.mistakes]
    return remarks


def _in_clear(settings: Settings, source: Source) -> list[Remark]:
    """Credentials that anyone on the way could read."""
    remarks = []
    for one in settings.upstreams:
        asked = [getattr(one.origin, name, None) for name in ("base_url", "url")] if one.auth != AuthSettings() else []
        asked += [one.auth.oauth.token_url] if one.auth.oauth is not None else []
        for parts in map(urlsplit, filter(None, asked)):
            if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
                told = f"{one.name}: its credentials go to {parts.hostname} in clear text; write https"
                remarks.append(Remark(source.at(f"/upstreams/{one.name}/auth"), told))
    return remarks


def _known(settings: Settings, file: Path) -> Deployment:
    """Quotas aren't counted yet, so nobody is warned that they bound nobody."""
    people = None if settings.jwt else [principal for _, principal in principals(settings)]
    files = [file, settings.policies, *settings.policies.glob("*.yaml"), *([settings.ledger.sqlite] if settings.ledger.sqlite else ())]
    return Deployment(principals=people, files=files)


async def _asked(settings: Settings, source: Source) -> tuple[dict[str, Any] | None, list[Remark]]:
    """The definitions of all tools; None, and why, if not all upstreams answer, since a rule may be about those that don't."""
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # what it would say is said below
    known = catalog(settings)
    try:
        await known.open()
        reasons = {one.name: why for one in settings.upstreams if (why := known.away(one.name))}
        tools = {tool.name: dict(tool.definition) for tool in known.all()}
    finally:
        await known.close()
    away = [Remark(source.at(f"/upstreams/{name}"), f"{name} doesn't answer: {why}; no rule was held against tools") for name, why in reasons.items()]
    return None if away else tools, away


def _policies(place: Path, known: Deployment) -> tuple[list[str], list[Remark]]:
    """A folder, or one file that is judged alone."""
    folder = place if place.is_dir() else place.parent
    if place.name.endswith(TESTS):
        raise Failure(f"{shown(place)} holds tests; run them with `gateway test {shown(place)}`.")
    try:
        loaded = load_policies(place) if place.is_dir() or not place.exists() else _alone(place)
    except PolicyError as error:
        return [shown(place)], _mistakes(str(error), folder)
    remarks = [_in(folder if one.position.file in loaded.files else Path(), one) for one in lint(loaded, known)]
    return [shown(folder / name) for name in loaded.files], remarks


def _alone(file: Path) -> LoadedPolicies:
    text = file.read_bytes()
    return LoadedPolicies([(compile_document(file.name, text), text.decode())])


def _mistakes(text: str, folder: Path) -> list[Remark]:
    """The lines of a PolicyError, whose places are names in a folder."""
    found = []
    for line in text.splitlines():
        placed = _PLACED.fullmatch(line)
        file, message = (placed["file"], placed["message"]) if placed else ("", line)
        at = Position(file, int(placed["line"] or 1), int(placed["column"] or 1)) if placed else Position("", 1, 1)
        found.append(_in(Path() if Path(file).is_absolute() else folder, Remark(at, message, True)))
    return found


def _in(folder: Path, remark: Remark) -> Remark:
    return replace(remark, position=replace(remark.position, file=shown(folder / remark.position.file)))


def _json(remark: Remark) -> dict[str, Any]:
    return {"file": remark.position.file, "line": remark.position.line, "column": remark.position.column, "message": remark.message}


# ---- test ---------------------------------------------------------------------------------------------------------------


def run_tests(args: argparse.Namespace) -> int:
    folder, files = _tests(args.path, args.config)
    try:
        policies = load_policies(folder)
    except PolicyError as error:
        wrong = "\n".join(f"{one.position}: {one.message}" for one in _mistakes(str(error), folder))
        raise Failure(f"{shown(folder)} can't be used, so nothing was tested:\n{wrong}") from None
    if not files:
        raise Failure(f"Nothing was tested: there is no *{TESTS} in {shown(folder)}.")
    results, mistakes = _played(files, policies)
    failed = [one for one in results if not one.passed]
    if args.json:
        output.say_json({"ok": not failed and not mistakes, "cases": list(map(_case, results)), "mistakes": list(map(_json, mistakes))})
        return 1 if failed or mistakes else 0
    for mistake in mistakes:
        output.say(f"{mistake.position}: {mistake.message}")
    for one in failed:
        output.say(str(one))
    passed = f"{len(results)} passed" if mistakes else "all passed"
    said = f"{len(failed)} failed" if failed else passed
    unusable = f"; {_count({one.position.file for one in mistakes}, 'file')} could not be used" if mistakes else ""
    output.say(f"{_count(results, 'case')} in {_count(files, 'file')}: {said}{unusable}.")
    return 1 if failed or mistakes else 0


def _tests(path: Path | None, config: str) -> tuple[Path, list[Path]]:
    """The folder of policies, and the files of tests in it that are meant."""
    place = _deployment_in(path, config)
    folder = _policies_of(_source(place), place) if place else path
    assert folder is not None
    if folder.is_dir():
        return folder, sorted(folder.glob(f"*{TESTS}"))
    if not folder.name.endswith(TESTS):
        raise Failure(f"{shown(folder)} holds no tests; their files are named *{TESTS}." if folder.exists() else f"There is no {shown(folder)}.")
    return folder.parent, [folder]


def _played(files: Iterable[Path], policies: LoadedPolicies) -> tuple[list[CaseResult], list[Remark]]:
    results: list[CaseResult] = []
    mistakes: list[Remark] = []
    for file in files:
        try:
            results += [replace(one, where=shown(file.parent / one.where)) for one in run_cases(file, policies)]
        except PolicyError as error:
            mistakes += _mistakes(str(error), file.parent)
    return results, mistakes


def _case(one: CaseResult) -> dict[str, Any]:
    findings = [{"guard": f.guard, "reason": f.reason, "message": f.message, "rule": f.rule} for f in one.findings]
    return {"where": one.where, "name": one.name, "passed": one.passed, "wrong": one.wrong, "findings": findings}


# ---- both ---------------------------------------------------------------------------------------------------------------


def _source(file: Path) -> Source:
    """As much of the deployment file as can be read; what is wrong in it is `load_settings`' to say."""
    try:
        return read(shown(file), file.read_bytes())
    except SourceError as error:
        return error.partial or Source(shown(file), {}, {})


def _policies_of(source: Source, file: Path) -> Path:
    """The folder that a deployment names, or would use."""
    named = source.data.get("policies") if isinstance(source.data, dict) else None
    return file.parent / (named if isinstance(named, str) else "policies")


def _count(things: Any, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
