"""The deployment of the acceptance tests: two upstreams with the same tools, one rule a tool, and one principal with its policy a budget.

`web` speaks HTTP, `desk` MCP on stdio, nobody listens behind `down`. What a tool is for stands in RULES; what a run may have in RUNS.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from gateway.settings import Settings, load_settings

SECRET = "s" * 40
HERE = Path(__file__).parent
LIMITED = "turns: unlimited, tool_calls: 500, deadline: 10m, tokens: unlimited"

RUNS: Mapping[str, str] = {
    "plain": f"budgets: {{{LIMITED}}}",
    "tight": "budgets: {turns: 3, tool_calls: 3, tool_calls_per_turn: 2, deadline: 10m, tokens: unlimited}",
    "coins": f"budgets: {{{LIMITED}, cost_usd: 0.50}}\n  on_exhausted: {{cost: refuse}}",
    "coins_close": f"budgets: {{{LIMITED}, cost_usd: 0.50}}",
    "purse": "budgets: {turns: unlimited, tool_calls: 500, deadline: 10m, tokens: 1000, tokens_per_turn: 400}",
    "history": f"budgets: {{{LIMITED}, input_tokens_per_turn: 100}}",
    "twenty": "budgets: {turns: unlimited, tool_calls: 500, deadline: 10m, tokens: 2000, tokens_per_turn: 100}",
    "fifty": "budgets: {turns: unlimited, tool_calls: 50, deadline: 10m, tokens: unlimited}",
    "fifty_coins": "budgets: {turns: unlimited, tool_calls: unlimited, deadline: 10m, tokens: unlimited, cost_usd: 10.00}\n"
    "  on_exhausted: {cost: refuse}",
    "single": f"budgets: {{{LIMITED}, in_flight_calls: 1, open_holds: 1}}",
    "short": "budgets: {turns: unlimited, tool_calls: 500, deadline: 1500ms, tokens: unlimited}",
    "brief": "budgets: {turns: unlimited, tool_calls: 500, deadline: 4s, tokens: unlimited}",
    "late": "budgets: {turns: unlimited, tool_calls: 500, deadline: 300ms, tokens: unlimited}\n  on_exhausted: {deadline: refuse}",
    "strict": f"budgets: {{{LIMITED}}}\n  require_turns: true",
    "loopy": f"budgets: {{{LIMITED}}}\nloops: {{writes: 2, reads: 3, cycles: 2, refusals: 3, close_after: 2}}",
    "solo": f"budgets: {{{LIMITED}}}",
    "racing": "budgets: {turns: unlimited, tool_calls: 400, deadline: 10m, tokens: unlimited}\n  on_exhausted: {tool_calls: refuse}\n"
    "loops: {writes: 20, reads: 20, cycles: 6, refusals: 200, close_after: 200}",
}
"""Principal `agent:NAME` -> the `run` of the policy that governs it. `solo` may have one open run; `agent:nobody` has no policy."""

RULES: Mapping[str, str] = {
    "read": "effect: read_only",
    "poll": "effect: read_only, poll: true",
    "put": "effect: idempotent_write",
    "pay": "effect: non_idempotent, approval: never",
    "charge": 'effect: non_idempotent, approval: {when: "false", hold_open: 0s}',
    "order": "effect: non_idempotent, approval: never, idempotency: {key_from: [id], SEND_AS}",
    "refund": 'effect: non_idempotent, approval: {hold_open: 0s, show: "Refund {args.id}"}',
    "expiring": "effect: non_idempotent, approval: {hold_open: 0s, expires_in: 100ms}",
    "lapsing": "effect: non_idempotent, approval: {hold_open: 0s, execute_within: 100ms}",
    "waiting": "effect: non_idempotent, approval: {hold_open: 20s}",
    "twice": 'effect: non_idempotent, approval: {hold_open: 0s, quorum: 2, approvers: ["user:mia", "user:ben"]}',
    "cats": 'effect: non_idempotent, approval: {hold_open: 0s, approvers: ["user:cat"]}',
    "at_once": "effect: non_idempotent, approval: {hold_open: 0s, execute: at_once}",
    "quick": "effect: read_only, timeout: 400ms",
    "quick_put": "effect: idempotent_write, timeout: 400ms",
    "quick_pay": "effect: non_idempotent, approval: never, timeout: 400ms",
    "again": "effect: read_only, retry: {attempts: 3, backoff: 1ms}",
    "again_put": "effect: idempotent_write, retry: {attempts: 3, backoff: 1ms}",
    "patient_put": "effect: idempotent_write, retry: {attempts: 3, backoff: 8s}",
    "freed": "effect: non_idempotent, approval: never, idempotency: {on_error: retry, not_applied_on: [409], SEND_AS}",
    "capped": "effect: read_only, result: {max_bytes: 1KiB}",
    "shaped": "effect: read_only, result: {schema: {type: object, required: [total]}}",
    "masked": "effect: read_only, result: {redact: [/card/number]}",
    "brief": "effect: idempotent_write, as: UPSTREAM-brief",
    "bound": "effect: read_only, arguments: {bind: {tenant: principal.claims.tenant}}",
    "narrow": "effect: read_only, arguments: {schema: {properties: {size: {maximum: 10}}}}",
    "guarded": "effect: read_only, allow_if: args.size <= 5",
    "priced": "effect: read_only, price: {cost_usd: 0.20}",
    "hasty": "effect: idempotent_write, timeout: 1h, min_time: 59m",
    "placed": "effect: idempotent_write",
    "odd": "effect: read_only",
    "absent": "effect: read_only",
}
"""Tool -> its rule. `placed` has its id in the path (on `web`), `odd` a schema that can't be enforced (on `desk`); `absent` is offered by
nobody, `ghost` without a rule."""

OFFERED = (*(name for name in RULES if name not in ("odd", "absent")), "ghost")
SEND_AS = {"web": "send_as: {header: Idempotency-Key}", "desk": "send_as: {meta: key}", "down": "send_as: {header: Idempotency-Key}"}
SCHEMA = "{type: object, properties: {do: {type: string}, id: {type: string}, size: {type: integer}}}"
SCHEMA_WITH_ID = SCHEMA.replace("object,", "object, required: [id],", 1)
PEOPLE = ("mia", "ben")
AGENTS = (*RUNS, "nobody")


def key_of(id: str) -> str:
    """The API key of a principal."""
    return f"key of {id}".replace(" ", "-").replace(":", "-")


def write(
    folder: Path, web: str, heard: Path, *, port: int = 0, described: str = "Does", ledger: str = "sqlite:gateway.db", small: str = ""
) -> Path:
    """The files of the deployment; the path of gateway.yaml. `described` begins each tool's description.

    `small`: the only agent that has a policy, and `web` the only upstream: it starts in a third of the time."""
    (folder / "policies").mkdir(parents=True, exist_ok=True)
    upstreams = _upstreams(web, heard, described)
    if small:
        upstreams = {"web": upstreams["web"]}
    rules = "".join(map(_rules, upstreams))
    for name, run in RUNS.items():
        if name == small or not small:
            head = f'version: 1\nname: {name}\nmatch: {{principals: ["agent:{name}"]}}\nrun:\n  {run}\n'
            (folder / "policies" / f"{name}.yaml").write_text(f'{head}defaults: {{timeout: 20s, approvers: ["group:leads"]}}\ntools:\n{rules}')
    settings = folder / "gateway.yaml"
    settings.write_text(
        f'listen: 127.0.0.1:{port}\nledger: "{ledger}"\npolicies: policies/\nsecret: ["${{env:GATEWAY_SECRET}}"]\nupstreams:\n'
        + "".join(f"  {name}: {{{how}}}\n" for name, how in upstreams.items())
        + _principals()
    )
    return settings


def _upstreams(web: str, heard: Path, described: str) -> dict[str, str]:
    tools = _http_tools(described)
    command = f'["{sys.executable}", "{HERE / "desk_server.py"}", "{",".join((*OFFERED, "odd"))}"]'
    return {
        "web": f'http: {{base_url: "{web}", tools: {tools}}}',
        "down": f'http: {{base_url: "http://127.0.0.1:9", tools: {tools}}}',
        "desk": f'mcp: {{command: {command}, env: {{HEARD: "{heard}", DESCRIBED: "{described}"}}}}',
    }


def load(settings: Path) -> Settings:
    return load_settings(settings, {"GATEWAY_SECRET": SECRET})


def _rules(upstream: str) -> str:
    send_as = SEND_AS[upstream]
    return "".join(f"  - {{tool: {upstream}.{tool}, {_keyed(rule, send_as)}}}\n".replace("UPSTREAM", upstream) for tool, rule in RULES.items())


def _keyed(rule: str, send_as: str) -> str:
    """Writes carry their key upstream."""
    if "SEND_AS" in rule:
        return rule.replace("SEND_AS", send_as)
    return rule if "read_only" in rule else f"{rule}, idempotency: {{{send_as}}}"


def _http_tools(described: str) -> str:
    tools = (
        f"{{name: {name}, description: \"{described} {name}.\", method: POST, path: '{path}', body: arguments, input_schema: {schema}}}"
        for name in OFFERED
        for path, schema in [("/placed/{id}", SCHEMA_WITH_ID) if name == "placed" else (f"/{name}", SCHEMA)]
    )
    return f"[{', '.join(tools)}]"


def _principals() -> str:
    agents = "".join(
        f'    - {{id: "agent:{name}", claims: {{tenant: acme}}, trust: [call_id, idempotency_key], sha256: "{_sha256(f"agent:{name}")}"}}\n'
        for name in AGENTS
    )
    people = "".join(f'    - {{id: "user:{name}", person: true, groups: [leads], sha256: "{_sha256(f"user:{name}")}"}}\n' for name in PEOPLE)
    people += f'    - {{id: "user:cat", person: true, sha256: "{_sha256("user:cat")}"}}\n'
    meter = f'    - {{id: "agent:meter", sha256: "{_sha256("agent:meter")}"}}\n'
    roles = 'roles: {approver: ["group:leads", "user:cat"], operator: ["group:leads"], reporter: ["agent:meter"]}\n'
    return f'principals:\n  keys:\n{agents}{people}{meter}{roles}limits: [{{open_runs: 50}}, {{for: "agent:solo", open_runs: 1}}]\n'


def _sha256(id: str) -> str:
    return hashlib.sha256(key_of(id).encode()).hexdigest()
