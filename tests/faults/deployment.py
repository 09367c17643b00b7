"""What a gateway of the fault tests is deployed with: one policy, a rule an effect and temper, and three upstreams with the same tools.

`web` is the faulty HTTP upstream, `desk` the faulty stdio server, and nobody listens behind `down`. `ledger` is a parameter, so that another
store joins by its URL.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

SECRET = "s" * 40
AGENT = "agent:bot"
PEOPLE = ("user:mia", "user:ben")
SQLITE = "sqlite:gateway.db"

_EFFECTS: Mapping[str, str] = {
    "read": "effect: read_only",
    "put": "effect: idempotent_write, idempotency: {SEND_AS}",
    "pay": "effect: non_idempotent, approval: never, idempotency: {SEND_AS}",
}
_TEMPERS: Mapping[str, str] = {
    "": "",
    "quick_": ", timeout: 300ms",
    "again_": ", retry: {attempts: 3, backoff: 1ms}",
    "brisk_": ", timeout: 300ms, retry: {attempts: 3, backoff: 1ms}",
}
_HELD: Mapping[str, str] = {
    "ask": "effect: non_idempotent, idempotency: {SEND_AS}, price: {cost_usd: 0.01}, approval: {hold_open: 0s}",
    "two": 'effect: non_idempotent, idempotency: {SEND_AS}, approval: {hold_open: 0s, quorum: 2, approvers: ["user:mia", "user:ben"]}',
    "soon": "effect: non_idempotent, idempotency: {SEND_AS}, approval: {hold_open: 0s, execute: at_once}",
}
RULES: Mapping[str, str] = {f"{temper}{name}": rule + more for temper, more in _TEMPERS.items() for name, rule in _EFFECTS.items()} | _HELD
"""Tool -> its rule; `quick_…` has 300 ms, `again_…` three attempts, `brisk_…` both; the last three wait for people."""

_SEND_AS = {"web": "send_as: {header: Idempotency-Key}", "desk": "send_as: {meta: key}", "down": "send_as: {header: Idempotency-Key}"}
_SCHEMA = "{type: object, properties: {do: {type: string}, id: {type: string}, size: {type: integer}}}"
_POLICY = """\
version: 1
name: faults
run:
  budgets: {{turns: unlimited, tool_calls: 5000, deadline: 30m, tokens: unlimited, cost_usd: 5.00}}
defaults: {{timeout: {timeout}, approvers: ["group:leads"]}}
loops: {{writes: 20, reads: 20, refusals: 200}}
tools:
{rules}"""
_SETTINGS = """\
listen: 127.0.0.1:{port}
ledger: "{ledger}"
policies: policies/
secret: ["${{env:GATEWAY_SECRET}}"]
upstreams:
  web: {{http: {{base_url: "http://127.0.0.1:{web}", tools: [{tools}]}}}}
  down: {{http: {{base_url: "http://127.0.0.1:9", tools: [{tools}]}}}}
  desk: {{mcp: {{command: ["{python}", -m, tests.faults.desk, "{folder}", "{names}"], env: {{PYTHONPATH: "{root}"}}}}}}
principals:
  keys:
    - {{id: "agent:bot", trust: [call_id, idempotency_key], sha256: "{bot}"}}
    - {{id: "user:mia", person: true, groups: [leads], sha256: "{mia}"}}
    - {{id: "user:ben", person: true, groups: [leads], sha256: "{ben}"}}
roles: {{approver: ["group:leads"], operator: ["group:leads"]}}
limits: {{open_runs: 100, open_holds: 1000}}
"""
ROOT = Path(__file__).resolve().parents[2]


def key_of(id: str) -> str:
    """The API key of a principal."""
    return f"key-of-{id.partition(':')[2]}"


def write(folder: Path, *, port: int, web: int, ledger: str = SQLITE, timeout: str = "20s") -> Path:
    """The files of the deployment; the path of gateway.yaml. `timeout`: of the tools that name none."""
    (folder / "policies").mkdir(exist_ok=True)
    rules = [
        f"  - {{tool: {upstream}.{tool}, {rule.replace('SEND_AS', way)}}}\n" for upstream, way in _SEND_AS.items() for tool, rule in RULES.items()
    ]
    (folder / "policies" / "faults.yaml").write_text(_POLICY.format(rules="".join(rules), timeout=timeout))
    tools = [f"{{name: {name}, description: Does., method: POST, path: /{name}, body: arguments, input_schema: {_SCHEMA}}}" for name in RULES]
    keys = {id.partition(":")[2]: hashlib.sha256(key_of(id).encode()).hexdigest() for id in (AGENT, *PEOPLE)}
    settings = folder / "gateway.yaml"
    settings.write_text(
        _SETTINGS.format(
            port=port, ledger=ledger, web=web, tools=", ".join(tools), python=sys.executable, folder=folder, names=",".join(RULES), root=ROOT, **keys
        )
    )
    return settings
