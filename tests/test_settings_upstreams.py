"""Upstreams of every kind, their credentials, and where a tool's arguments may go."""

import pytest

from gateway.settings import load_settings
from gateway.settings_upstreams import CommandSettings, HttpSettings, McpCommandSettings, McpUrlSettings, OpenApiSettings
from gateway.source import SourceError

ENVIRON = {"TOKEN": "hunter2"}


@pytest.fixture
def load(tmp_path):
    def load(text: str):
        (tmp_path / "gateway.yaml").write_text(text)
        return load_settings(tmp_path / "gateway.yaml", ENVIRON).upstreams

    return load


@pytest.fixture
def refused(load):
    def refused(text: str) -> list[tuple[int, int]]:
        with pytest.raises(SourceError) as caught:
            load(text)
        assert "hunter2" not in str(caught.value)
        return [(mistake.position.line, mistake.position.column) for mistake in caught.value.mistakes]

    return refused


def http(tool: str) -> str:
    return f"upstreams:\n  b:\n    http:\n      base_url: https://b/\n      tools:\n      - {{name: t, description: d, {tool}}}\n"


def schema(*names: str, required: str = "") -> str:
    return f"input_schema: {{type: object, properties: {{{', '.join(f'{name}: {{}}' for name in names)}}}, required: [{required}]}}"


def test_each_kind_of_upstream_is_described(load, tmp_path):
    a, b, c, d, e = load(
        """
upstreams:
  a: {mcp: {url: "http://127.0.0.1:9001/mcp/?x=1"}}
  b: {mcp: {command: [npx, -y, server, ./data], env: {TOKEN: "${env:TOKEN}", LEVEL: debug}}}
  c: {http: {base_url: "https://c/api/", tools: [{name: t, description: d, method: GET, path: /, input_schema: {type: object}}]}}
  d: {openapi: {document: shop.yaml, base_url: "https://d", include: ["GET /orders/*", "* /x"]}}
  e: {command: {tools: [{name: lint, argv: [ruff, "{args.path}"], input_schema: {type: object, properties: {path: {}}}, timeout: 5s}]}}
"""
    )
    assert a.origin == McpUrlSettings("http://127.0.0.1:9001/mcp/?x=1")
    assert isinstance(b.origin, McpCommandSettings)
    assert (b.origin.argv, b.origin.folder) == (("npx", "-y", "server", "./data"), tmp_path)
    assert {name: secret.reveal() for name, secret in b.origin.env.items()} == {"TOKEN": "hunter2", "LEVEL": "debug"}
    assert isinstance(c.origin, HttpSettings)
    assert c.origin.base_url == "https://c/api"
    assert d.origin == OpenApiSettings(tmp_path / "shop.yaml", "https://d", ("GET /orders/*", "* /x"))
    assert isinstance(e.origin, CommandSettings)
    (tool,) = e.origin.tools
    assert (tool.argv, tool.timeout_ms, tool.description, tool.cwd, tool.env) == (("ruff", "{args.path}"), 5000, "", tmp_path, {})
    assert [upstream.name for upstream in (a, b, c, d, e)] == ["a", "b", "c", "d", "e"]


def command(tool: str, upstream: str = "") -> str:
    return f"upstreams:\n  b:\n    command:\n      tools:\n      - {{name: t, {tool}}}\n{upstream}"


def test_a_command_tool_says_how_its_program_runs(load, tmp_path):
    tool = "argv: [x, '--a={args.a}'], stdin: json, cwd: sub, ok_codes: [0, 1], env: {A: '${env:TOKEN}'}, " + schema("a", "b")
    (upstream,) = load(command(tool, "      env: {A: general, B: '${env:TOKEN}'}\n"))
    (tool,) = upstream.origin.tools
    assert (tool.sends_json, tool.cwd, tool.ok_codes) == (True, tmp_path / "sub", {0, 1})
    assert {name: secret.reveal() for name, secret in tool.env.items()} == {"A": "hunter2", "B": "hunter2"}
    assert "hunter2" not in repr(tool)


@pytest.mark.parametrize(
    "tool",
    [
        "argv: [x], input_schema: {type: object}, stdin: yaml",
        "argv: [x], input_schema: {type: object}, ok_codes: [256]",
        "argv: [x], input_schema: {type: object}, ok_codes: []",
        "argv: [x], input_schema: {type: object}, env: {A B: c}",
        "argv: [], input_schema: {type: object}",
        "argv: ['{args.a}'], " + schema("a"),
        "argv: [x, '{args.z}'], input_schema: {type: object}",
        "argv: [x], " + schema("a"),
        "argv: [sh, -c, 'echo {args.a}'], " + schema("a"),
        "argv: [env, /bin/bash, -euc, 'echo {args.a}'], " + schema("a"),
    ],
)
def test_a_command_tool_that_can_not_work_is_refused(refused, tool):
    ((line, column),) = refused(command(tool))
    assert (line, column > 9) == (5, True)


def test_a_script_may_have_arguments_as_words_of_their_own(load):
    load(command("argv: [sh, -c, 'echo \"$1\"', sh, '{args.a}'], " + schema("a")))
    load(command("argv: [grep, -c, '{args.a}', file], " + schema("a")))


def test_an_openapi_upstream_may_do_without_a_base_url_and_choose_its_operations(load, tmp_path):
    (upstream,) = load('upstreams: {d: {openapi: {document: a.json, include: ["tag:A b", getX*], exclude: ["* /x"]}}}')
    assert upstream.origin == OpenApiSettings(tmp_path / "a.json", None, ("tag:A b", "getX*"), ("* /x",))


def test_an_http_tool_says_where_each_argument_goes(load):
    (upstream,) = load(
        http(
            "method: PATCH, path: '/o/{order_id}/x/', query: [dry], body: arguments, headers: {X-A: b}, timeout: 2s, "
            "annotations: {idempotentHint: true}, "
            "output_schema: {type: object}, " + schema("order_id", "dry", "amount", required="order_id")
        )
    )
    (tool,) = upstream.origin.tools
    assert (tool.name, tool.description, tool.method, tool.path) == ("t", "d", "PATCH", "/o/{order_id}/x/")
    assert (tool.query, tool.sends_body, tool.headers, tool.timeout_ms) == (("dry",), True, {"X-A": "b"}, 2000)
    assert (tool.annotations, tool.output_schema) == ({"idempotentHint": True}, {"type": "object"})
    assert tool.input_schema["required"] == ["order_id"]


def test_an_http_tool_needs_no_more_than_the_least(load):
    (tool,) = load(http("method: GET, path: /, input_schema: {type: object}"))[0].origin.tools
    assert (tool.query, tool.sends_body, tool.headers, tool.output_schema, tool.annotations, tool.timeout_ms) == (
        (),
        False,
        {},
        None,
        {},
        30_000,
    )


@pytest.mark.parametrize(
    "tool",
    [
        "method: GET, path: orders, input_schema: {type: object}",
        "method: GET, path: '', input_schema: {type: object}",
        "method: GET, path: /a//b, input_schema: {type: object}",
        "method: GET, path: /a/../b, input_schema: {type: object}",
        "method: GET, path: /./b, input_schema: {type: object}",
        "method: GET, path: '/a?b', input_schema: {type: object}",
        "method: GET, path: /a%2e, input_schema: {type: object}",
        'method: GET, path: "/a\\r\\nX: y", input_schema: {type: object}',
        "method: GET, path: '/a{x}', " + schema("x", required="x"),
        "method: GET, path: '/{}', input_schema: {type: object}",
        "method: GET, path: '/{x}', input_schema: {type: object}",
        "method: GET, path: '/{x}', " + schema("x"),
        "method: GET, path: '/{x}/{x}', " + schema("x", required="x"),
        "method: GET, path: '/{x}', query: [x], " + schema("x", required="x"),
        "method: GET, path: /, query: [z], input_schema: {type: object}",
        "method: GET, path: /, query: [x, x], " + schema("x"),
        "method: POST, path: /, " + schema("x"),
        "method: GET, path: /, body: arguments, " + schema("x"),
        "method: DELETE, path: /, body: arguments, " + schema("x"),
        "method: POST, path: /, body: all, input_schema: {type: object}",
        "method: FETCH, path: /, input_schema: {type: object}",
        "method: GET, path: /, headers: {Host: x}, input_schema: {type: object}",
        "method: GET, path: /, headers: {authorization: x}, input_schema: {type: object}",
        'method: GET, path: /, headers: {X-A: "a\\nb"}, input_schema: {type: object}',
        "method: GET, path: /, headers: {'X A': b}, input_schema: {type: object}",
        "method: GET, path: /, input_schema: {}",
        "method: GET, path: /, input_schema: {type: array}",
        "method: GET, path: /, input_schema: {type: object, properties: 5}",
        "method: GET, path: /, input_schema: {type: object}, timeout: 5",
        "method: GET, path: /, input_schema: {type: object}, timeout: 99999d",
        "method: GET, path: /, input_schema: {type: object}, annotations: {readonlyHint: true}",
        "method: GET, path: /, input_schema: {type: object}, effect: read_only",
    ],
)
def test_an_http_tool_that_can_not_work_is_refused(refused, tool):
    places = refused(http(tool))
    assert len(places) == 1
    assert places[0][0] == 6
    assert places[0][1] > 9


def test_a_tool_without_a_needed_key_is_refused_at_the_tool(refused):
    assert refused(http("method: GET, path: /")) == [(6, 9)]


def test_two_tools_of_one_upstream_can_not_share_a_name(refused):
    text = http("method: GET, path: /, input_schema: {type: object}")
    assert refused(text + text.splitlines()[-1] + "\n") == [(7, 16)]


@pytest.mark.parametrize(
    ("upstream", "column"),
    [
        ("{}", 6),
        ("{auth: {bearer: '${env:TOKEN}'}}", 6),
        ("{mcp: {url: 'http://a'}, http: {base_url: 'http://a', tools: []}}", None),
        ("{mcp: {}}", 12),
        ("{mcp: {url: 'http://a', command: [x]}}", 12),
        ("{mcp: {url: 'http://a', env: {A: b}}}", 35),
        ("{mcp: {command: []}}", 22),
        ("{mcp: {command: [x], env: {'A B': b}}}", 33),
        ("{mcp: {url: 'ftp://a'}}", 18),
        ("{mcp: {url: 'http://u:hunter2@a'}}", 18),
        ("{mcp: {command: [x]}, auth: {bearer: '${env:TOKEN}'}}", 34),
        ("{openapi: {document: x, base_url: 'http://a?b=1'}}", 40),
        ("{openapi: {document: x, base_url: 'http://a', include: [/orders]}}", 62),
        ("{command: {tools: [{name: t, argv: ['{args.x}'], input_schema: {type: object, properties: {x: {}}}}]}}", 42),
        ("{command: {tools: [{name: t, argv: [a, '{args.x}'], input_schema: {type: object}}]}}", 45),
    ],
)
def test_an_upstream_that_can_not_work_is_refused_at_its_place(refused, upstream, column):
    places = refused(f"upstreams:\n  a: {upstream}\n")
    assert (2, column or 6) in places
    assert len(places) == 1 if column else 2


@pytest.mark.parametrize("name", ["gateway", "a__b", "a_", "-a", "a.b", "a/b", "ä", "'a b'", "a" * 41, "''"])
def test_a_name_that_could_be_taken_for_another_is_refused(refused, name):
    assert refused(f"upstreams:\n  {name}: {{mcp: {{url: 'http://a'}}}}\n") == [(2, 3)]
