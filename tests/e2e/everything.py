"""An MCP server on the Python SDK that offers what the official conformance suite asks for, in both eras; `everything_server` runs it.

A tool that asks its client says what it needs (`Ask`) until it has all answers: they are asked for by results in 2026-07-28, by requests before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

SECRET = b"only for tests"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0").decode()
REQUESTS = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}

bus = InMemorySubscriptionBus()
more_tools: set[str] = set()
more_prompts: set[str] = set()


@dataclass
class Ask:
    """What a tool still has to be told: id -> request."""

    requests: dict[str, Any]


Plan = Callable[[Mapping[str, Any], Mapping[str, Any], Any], Ask | dict[str, Any]]
"""`plan(arguments, answers so far, context)` -> what to ask next, or the result."""

Handler = Callable[[Any, Any], Awaitable[Any]]

PLANS: dict[str, Plan] = {}
DEEDS: dict[str, Callable[[Any], Awaitable[Any]]] = {}
PARAMETERS = {"test_sampling": "prompt", "test_elicitation": "message"}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def form(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int = 100) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


ROOTS = {"method": "roots/list", "params": {}}
STRING, BOOLEAN = {"type": "string"}, {"type": "boolean"}


# ---- tools that ask -----------------------------------------------------------------------------------------------------


def asks(name: str, **requests: Any) -> None:
    """A tool that needs answers to all of these at once and then repeats them."""
    PLANS[name] = lambda arguments, answers, ctx: _asked(requests, answers)


def _asked(requests: dict[str, Any], answers: Mapping[str, Any]) -> Ask | dict[str, Any]:
    if missing := {id: one for id, one in requests.items() if id not in answers}:
        return Ask(missing)
    return text("state-ok " + json.dumps(dict(answers)))


asks("test_input_required_result_elicitation", user_name=form("Who are you?", name=STRING))
asks("test_input_required_result_sampling", capital_question=sample("Which city is the capital of France?"))
asks("test_input_required_result_list_roots", client_roots=ROOTS)
asks("test_input_required_result_request_state", confirm=form("Shall it be done?", ok=BOOLEAN))
asks("test_input_required_result_tampered_state", confirm=form("Shall it be done?", ok=BOOLEAN))
asks("test_streaming_elicitation", confirm=form("Shall it be done?", ok=BOOLEAN))
WHO, GREETING = form("Who are you?", name=STRING), sample("Say hello", 50)
asks("test_input_required_result_multiple_inputs", user_name=WHO, greeting=GREETING, client_roots=ROOTS)
asks(
    "test_elicitation_sep1034_defaults",
    user=form(
        "About you",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
)
OPTIONS = [f"option{n}" for n in (1, 2, 3)]
TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
asks(
    "test_elicitation_sep1330_enums",
    choices=form(
        "Choose",
        untitledSingle={"type": "string", "enum": OPTIONS},
        titledSingle={"type": "string", "oneOf": TITLED},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        titledMulti={"type": "array", "items": {"anyOf": TITLED}},
    ),
)


def plan(function: Plan) -> Plan:
    PLANS[function.__name__] = function
    return function


@plan
def test_input_required_result_multi_round(arguments: Any, answers: Any, ctx: Any) -> Ask | dict[str, Any]:
    if "step1" not in answers:
        return Ask({"step1": form("First: who are you?", name=STRING)})
    return _asked({"step2": form("Second: which colour?", color=STRING)}, {id: one for id, one in answers.items() if id == "step2"})


@plan
def test_input_required_result_capabilities(arguments: Any, answers: Any, ctx: Any) -> Ask | dict[str, Any]:
    can = capabilities(ctx)
    wanted = {"elicitation": WHO, "sampling": GREETING, "roots": ROOTS}
    return _asked({name: one for name, one in wanted.items() if name in can}, answers)


@plan
def test_sampling(arguments: Any, answers: Any, ctx: Any) -> Ask | dict[str, Any]:
    return _asked({"answer": sample(str(arguments.get("prompt")))}, answers)


@plan
def test_elicitation(arguments: Any, answers: Any, ctx: Any) -> Ask | dict[str, Any]:
    return _asked({"answer": form(str(arguments.get("message")), username=STRING, email=STRING)}, answers)


@plan
def test_missing_capability(arguments: Any, answers: Any, ctx: Any) -> Ask | dict[str, Any]:
    if "sampling" not in capabilities(ctx):
        raise MCPError(-32021, "sampling is needed", {"requiredCapabilities": {"sampling": {}}})
    return _asked({"answer": sample("Say hello")}, answers)


def capabilities(ctx: Any) -> Mapping[str, Any]:
    found = ctx.session.client_capabilities
    return {} if found is None else dict(found.model_dump(by_alias=True, exclude_none=True))


# ---- tools that don't ---------------------------------------------------------------------------------------------------


def deed(function: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    DEEDS[function.__name__] = function
    return function


@deed
async def test_simple_text(ctx: Any) -> Any:
    return text("This is a simple text response for testing.")


@deed
async def test_image_content(ctx: Any) -> Any:
    return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}


@deed
async def test_audio_content(ctx: Any) -> Any:
    return {"content": [{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}]}


@deed
async def test_embedded_resource(ctx: Any) -> Any:
    return {"content": [{"type": "resource", "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "Embedded."}}]}


@deed
async def test_multiple_content_types(ctx: Any) -> Any:
    mixed = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": "Several kinds:"}, image, {"type": "resource", "resource": mixed}]}


@deed
async def test_error_handling(ctx: Any) -> Any:
    return text("This tool intentionally returns an error for testing", isError=True)


@deed
async def test_tool_with_progress(ctx: Any) -> Any:
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100)
        await anyio.sleep(0.02)
    return text("Done in three steps.")


@deed
async def test_tool_with_logging(ctx: Any) -> Any:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(ctx, said)
        await anyio.sleep(0.02)
    return text("Said three times what it does.")


@deed
async def test_logging_tool(ctx: Any) -> Any:
    await log(ctx, "Only for those who asked")
    return text("Said something.")


async def log(ctx: Any, said: str) -> None:
    await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)


@deed
async def test_trigger_tool_change(ctx: Any) -> Any:
    more_tools.symmetric_difference_update({"test_came_later"})
    await bus.publish(ToolsListChanged())
    await ctx.session.send_tool_list_changed()
    return text("The tools are others now.")


@deed
async def test_trigger_prompt_change(ctx: Any) -> Any:
    more_prompts.symmetric_difference_update({"test_came_later"})
    await bus.publish(PromptsListChanged())
    await ctx.session.send_prompt_list_changed()
    return text("The prompts are others now.")


# ---- requests -----------------------------------------------------------------------------------------------------------


async def list_tools(ctx: Any, params: Any) -> Any:
    names = sorted({*PLANS, *DEEDS, *more_tools})
    return {"tools": [{"name": name, "description": f"{name}, for tests.", "inputSchema": schema(name)} for name in names]}


def schema(tool: str) -> dict[str, Any]:
    wanted = PARAMETERS.get(tool)
    return {"type": "object", "properties": {wanted: STRING}, "required": [wanted]} if wanted else {"type": "object", "properties": {}}


async def call_tool(ctx: Any, params: Any) -> Any:
    if params.name in DEEDS:
        return await DEEDS[params.name](ctx)
    if params.name not in PLANS:
        raise MCPError(-32602, f"There is no tool {params.name}")
    return await asked_out(ctx, lambda answers: PLANS[params.name](params.arguments or {}, answers, ctx))


async def asked_out(ctx: Any, step: Callable[[Mapping[str, Any]], Ask | dict[str, Any]]) -> Any:
    """Ask until there is a result: this era's way."""
    answers = told(ctx)
    while isinstance(found := step(answers), Ask):
        if ctx.protocol_version >= "2026":
            return {"resultType": "input_required", "inputRequests": found.requests, "requestState": signed(answers)}
        for id, one in found.requests.items():
            kind, result = REQUESTS[one["method"]]
            here = ServerMessageMetadata(related_request_id=ctx.request_id)
            answer = await ctx.session.send_request(kind.model_validate(one), result, metadata=here)
            answers[id] = answer.model_dump(by_alias=True, exclude_none=True, mode="json")
    return found


def told(ctx: Any) -> dict[str, Any]:
    """The answers that a 2026 request carries: those of earlier rounds in its state, and the new ones."""
    params = dict(ctx.params or {})
    state = params.get("requestState")
    earlier = opened(state) if state is not None else {}
    return {**earlier, **(params.get("inputResponses") or {})}


def signed(answers: Mapping[str, Any]) -> str:
    body = base64.urlsafe_b64encode(json.dumps(dict(answers)).encode()).decode()
    return f"{body}.{hmac.new(SECRET, body.encode(), hashlib.sha256).hexdigest()}"


def opened(state: str) -> dict[str, Any]:
    body, _, signature = state.partition(".")
    if not hmac.compare_digest(signature, hmac.new(SECRET, body.encode(), hashlib.sha256).hexdigest()):
        raise MCPError(-32602, "the state was touched")
    return dict(json.loads(base64.urlsafe_b64decode(body)))


RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "Nothing but text."},
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watch me."},
}
TEMPLATE = ("test://template/", "/data")


async def list_resources(ctx: Any, params: Any) -> Any:
    return {"resources": [{"uri": uri, "name": uri, "mimeType": one["mimeType"]} for uri, one in RESOURCES.items()]}


async def list_templates(ctx: Any, params: Any) -> Any:
    return {"resourceTemplates": [{"uriTemplate": "{id}".join(TEMPLATE), "name": "by id", "mimeType": "application/json"}]}


async def read_resource(ctx: Any, params: Any) -> Any:
    uri = str(params.uri)
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    if uri.startswith(TEMPLATE[0]) and uri.endswith(TEMPLATE[1]):
        id = uri[len(TEMPLATE[0]) : -len(TEMPLATE[1])]
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps({"id": id})}]}
    raise MCPError(-32602 if ctx.protocol_version >= "2026" else -32002, "Resource not found", {"uri": uri})


PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_prompts(ctx: Any, params: Any) -> Any:
    names = [*PROMPTS, *sorted(more_prompts)]
    arguments = {name: [{"name": one, "required": True} for one in PROMPTS.get(name, [])] for name in names}
    return {"prompts": [{"name": name, "description": f"{name}, for tests.", "arguments": arguments[name]} for name in names]}


async def get_prompt(ctx: Any, params: Any) -> Any:
    given = params.arguments or {}
    match params.name:
        case "test_prompt_with_arguments":
            return said(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        case "test_prompt_with_embedded_resource":
            resource = {"uri": given.get("resourceUri"), "mimeType": "text/plain", "text": "Embedded."}
            return said({"type": "resource", "resource": resource}, "Read what is above.")
        case "test_prompt_with_image":
            return said({"type": "image", "data": PIXEL, "mimeType": "image/png"}, "Look at what is above.")
        case "test_input_required_result_prompt":
            wanted = {"user_context": form("What is it about?", context=STRING)}
            return await asked_out(ctx, lambda answers: Ask(wanted) if "user_context" not in answers else said(json.dumps(answers)))
        case name if name in PROMPTS or name in more_prompts:
            return said("This is a simple prompt for testing.")
    raise MCPError(-32602, f"There is no prompt {params.name}")


def said(*parts: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


async def complete(ctx: Any, params: Any) -> Any:
    known = ["paris", "park", "party", "london"]
    return {"completion": {"values": [one for one in known if one.startswith(params.argument.value)], "hasMore": False}}


async def nothing(ctx: Any, params: Any) -> Any:
    return {}


def complete_in(handler: Handler, cached: bool = False) -> Handler:
    """What every result says of itself in 2026-07-28."""

    async def answered(ctx: Any, params: Any) -> Any:
        result = await handler(ctx, params)
        if ctx.protocol_version < "2026":
            return result
        return {"resultType": "complete", **({"ttlMs": 1000, "cacheScope": "public"} if cached else {}), **result}

    return answered


def server() -> Server[Any]:
    return Server(
        "everything",
        version="1",
        on_list_tools=complete_in(list_tools, True),
        on_call_tool=complete_in(call_tool),
        on_list_resources=complete_in(list_resources, True),
        on_list_resource_templates=complete_in(list_templates, True),
        on_read_resource=complete_in(read_resource, True),
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=complete_in(list_prompts, True),
        on_get_prompt=complete_in(get_prompt),
        on_completion=complete_in(complete),
        on_set_logging_level=nothing,
    )
