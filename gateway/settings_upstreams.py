"""The `upstreams` of gateway.yaml: frozen descriptions of where tools come from, and the rules a schema can't state.

A kind that this version can't run is described all the same; whoever builds the upstream decides. Effects stand in policies only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.secret import Secret
from gateway.settings_auth import FRAMING, AuthSettings, auth
from gateway.settings_document import Section, http_url
from gateway.source import duration_ms

DEFAULT_TIMEOUT_MS = 30_000

_SEGMENT = re.compile(r"\{[^{}]+\}|(?!\.\.?$)[A-Za-z0-9._~!$&'()*+,;=:@-]+")
_ARGUMENT = re.compile(r"\{args\.([^{}]+)\}")
_SHELL = re.compile(r"(.*/)?(ba|da|z|k|a|c|tc|fi)?sh")
_SCRIPT = re.compile(r"-[a-z]*c[a-z]*")


@dataclass(frozen=True, slots=True)
class McpUrlSettings:
    """An MCP server over Streamable HTTP."""

    url: str


@dataclass(frozen=True, slots=True)
class McpCommandSettings:
    """An MCP server over stdio: `argv` runs in `folder`, the settings file's, with `env` added to a minimal environment."""

    argv: tuple[str, ...]
    folder: Path
    env: Mapping[str, Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What HTTP and command tools have in common; the schemas are MCP's `inputSchema` and `outputSchema`."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    timeout_ms: int = DEFAULT_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpToolSettings(ToolSettings):
    """One HTTP operation. `path` holds `{argument}` segments; `query` names arguments; `sends_body`: the others go as a JSON object."""

    method: str
    path: str
    query: tuple[str, ...] = ()
    sends_body: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Plain HTTP tools below one `base_url`, which ends without a slash."""

    base_url: str
    tools: tuple[HttpToolSettings, ...]


@dataclass(frozen=True, slots=True)
class OpenApiSettings:
    """Operations of an OpenAPI document as tools; an empty `include` takes all. Without `base_url` the document's own server is asked."""

    document: Path
    base_url: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandToolSettings(ToolSettings):
    """One program; `{args.NAME}` in `argv` after the first word stands for an argument. It runs in `cwd`.

    `sends_json`: all arguments go to its stdin as a JSON object. `ok_codes`: exit codes that are no error. `env`: the upstream's and its own."""

    argv: tuple[str, ...]
    cwd: Path
    sends_json: bool = False
    ok_codes: frozenset[int] = frozenset({0})
    env: Mapping[str, Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """Programs, each called with a minimal environment."""

    tools: tuple[CommandToolSettings, ...]


Origin = McpUrlSettings | McpCommandSettings | HttpSettings | OpenApiSettings | CommandSettings


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One upstream. `auth`: the gateway's own credentials, sent with every request and by no one else."""

    name: str
    origin: Origin
    auth: AuthSettings = field(default_factory=AuthSettings)


def upstreams(root: Section) -> tuple[UpstreamSettings, ...]:
    """All upstreams in file order; their mistakes are reported to the document."""
    section = root.section("upstreams")
    built = (_upstream(name, section.section(name)) for name in section.members if isinstance(section.get(name), dict))
    return tuple(upstream for upstream in built if upstream is not None)


def _upstream(name: str, upstream: Section) -> UpstreamSettings | None:
    kinds = [kind for kind in _ORIGINS if kind in upstream.members]
    if len(kinds) != 1:
        upstream.report(f"an upstream is exactly one of {', '.join(_ORIGINS)}; here stands {' and '.join(kinds) or 'none'}")
        return None
    credentials = auth(upstream)
    if upstream.get(kinds[0]) is None:
        return None
    origin = _ORIGINS[kinds[0]](upstream.section(kinds[0]))
    if "auth" in upstream.members and isinstance(origin, McpCommandSettings | CommandSettings):
        upstream.report("auth is for upstreams that are called over HTTP; a program gets its secrets by env", "auth")
    return UpstreamSettings(name, origin, credentials)


# ---- origins ------------------------------------------------------------------------------------------------------------


def _mcp(mcp: Section) -> Origin:
    if ("url" in mcp.members) == ("command" in mcp.members):
        mcp.report("an MCP server has either url or command")
    if "url" in mcp.members and "env" in mcp.members:
        mcp.report("env is for a server that is started by command", "env")
    if "command" in mcp.members:
        return McpCommandSettings(tuple(mcp.get("command", ())), mcp.document.folder, mcp.get("env", {}))
    return McpUrlSettings(mcp.convert("url", lambda url: http_url(url, query=True), ""))


def _http(http: Section) -> Origin:
    return HttpSettings(_base_url(http), tuple(_http_tool(tool) for tool in _tools(http)))


def _openapi(openapi: Section) -> Origin:
    document = openapi.document.folder / openapi.get("document", "")
    base_url = _base_url(openapi) if "base_url" in openapi.members else None
    return OpenApiSettings(document, base_url, tuple(openapi.get("include", ())), tuple(openapi.get("exclude", ())))


def _command(command: Section) -> Origin:
    return CommandSettings(tuple(_command_tool(tool, command.get("env", {})) for tool in _tools(command)))


_ORIGINS: dict[str, Callable[[Section], Origin]] = {"mcp": _mcp, "http": _http, "openapi": _openapi, "command": _command}


def _base_url(section: Section) -> str:
    return section.convert("base_url", http_url, "").rstrip("/")


# ---- tools --------------------------------------------------------------------------------------------------------------


def _tools(section: Section) -> Iterator[Section]:
    first: dict[str, int] = {}
    for tool in section.sections("tools"):
        name = tool.members["name"]
        if name in first:
            tool.report(f"the tool {name} stands already at line {first[name]}", "name")
        first.setdefault(name, tool.line("name"))
        yield tool


def _common(tool: Section) -> dict[str, Any]:
    return {
        "name": tool.members["name"],
        "description": tool.get("description", ""),
        "input_schema": tool.members["input_schema"],
        "output_schema": tool.get("output_schema"),
        "annotations": tool.get("annotations", {}),
        "timeout_ms": tool.convert("timeout", duration_ms, DEFAULT_TIMEOUT_MS),
    }


def _http_tool(tool: Section) -> HttpToolSettings:
    method, query, sends_body = tool.members["method"], tuple(tool.get("query", ())), "body" in tool.members
    in_path = _path_arguments(tool)
    if in_path is not None:
        _check_arguments(tool, in_path, query)
    if sends_body and method in ("GET", "DELETE"):
        tool.report(f"{method} sends no body; name the arguments under query", "body")
    headers = tool.get("headers", {})
    for name in headers:
        if name.lower() in FRAMING | {"authorization", "content-type"}:
            tool.report(f"the header {name} can't be set here; credentials belong under auth", "headers", name)
    return HttpToolSettings(**_common(tool), method=method, path=tool.members["path"], query=query, sends_body=sends_body, headers=headers)


def _path_arguments(tool: Section) -> list[str] | None:
    """The arguments in the path, in order; None for a path that is refused."""
    start, *segments = tool.members["path"].split("/")
    if segments and not segments[-1]:
        segments.pop()
    bad = [segment for segment in segments if not _SEGMENT.fullmatch(segment)]
    if start or not tool.members["path"]:
        tool.report("a path begins with /", "path")
    elif bad:
        tool.report(f'"{bad[0]}" is no segment of a path: wanted plain characters, or one {{argument}} and nothing else', "path")
    else:
        return [segment[1:-1] for segment in segments if segment.startswith("{")]
    return None


def _check_arguments(tool: Section, in_path: list[str], query: Sequence[str]) -> None:
    """Each argument goes to one place, and each place names an argument that the input schema knows."""
    schema = tool.members["input_schema"]
    known, used = schema.get("properties", {}), [*in_path, *query]
    for name in dict.fromkeys(used):
        place = "path" if name in in_path else "query"
        if name not in known:
            tool.report(f"the argument {name} is no property of input_schema", place)
        elif place == "path" and name not in schema.get("required", ()):
            tool.report(f"the argument {name} is part of the path, so input_schema must require it", place)
        if used.count(name) > 1:
            tool.report(f"the argument {name} is used twice", place)
    for name in () if "body" in tool.members else known:
        if name not in used:
            message = f"the argument {name} goes nowhere: name it in path or query, or write body: arguments"
            tool.report(message, "input_schema", "properties", name)


def _command_tool(tool: Section, env: Mapping[str, Secret]) -> CommandToolSettings:
    argv, known = tool.members["argv"], tool.members["input_schema"].get("properties", {})
    sends_json, used = tool.get("stdin") == "json", set[str]()
    for index, word in enumerate(argv):
        used |= (names := set(_ARGUMENT.findall(word)))
        if names and index == 0:
            tool.report("the program itself can't come from an argument", "argv", index)
        elif names and _SCRIPT.fullmatch(argv[index - 1]) and any(_SHELL.fullmatch(word) for word in argv[: index - 1]):
            tool.report('an argument is no part of a shell\'s script; write "$1" there, and the argument as a word behind it', "argv", index)
        elif names - known.keys():
            tool.report(f"the argument {min(names - known.keys())} is no property of input_schema", "argv", index)
    for name in known.keys() - used if not sends_json else ():
        tool.report(f"the argument {name} goes nowhere: name it in argv, or write stdin: json", "input_schema", "properties", name)
    return CommandToolSettings(
        **_common(tool), argv=tuple(argv), sends_json=sends_json, cwd=tool.document.folder / tool.get("cwd", ""),
        ok_codes=frozenset(tool.get("ok_codes", [0])), env={**env, **tool.get("env", {})},
    )  # fmt: skip
