"""What the engine needs from the world, and what each may raise.

    GatewayFault
    ├── RequestFault    the agent's or the caller's: carries a reason code
    ├── PolicyError     the platform team's: policies or settings that can't be used
    ├── UpstreamFault   the tool's: no answer, with what may have happened
    ├── UpstreamRefusal the tool's: a JSON-RPC error to a request beside calls
    ├── Unanswered      the client's: it doesn't answer what a tool asks
    └── LedgerFault     ours: not durable, so not done

Adapters implement these; the engine and the doors know nothing else of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from gateway.core.deployment import Pin
from gateway.core.events import Event
from gateway.core.model import Finding, Json, Payload, Principal, Tool
from gateway.core.policy import PolicySet


class GatewayFault(Exception):
    """Root of all faults that cross a port."""


class RequestFault(GatewayFault):
    """The caller's mistake, or something it may not have: `finding.reason` is a row of `core.reasons`."""

    def __init__(self, reason: str, message: str, *, findings: Sequence[Finding] = (), data: Mapping[str, Json] | None = None):
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.findings = tuple(findings)
        self.data = dict(data or {})


def malformed(detail: str) -> RequestFault:
    """A request that can't be read, or asks for what can't be; nothing was done."""
    return RequestFault("request.malformed", detail)


class PolicyError(GatewayFault):
    """Policies or settings can't be used; the text is one `file:line:column: message` a line."""


class UpstreamFault(GatewayFault):
    """No answer from a tool. `kind` is a row of the fault table in `core.outcomes`."""

    def __init__(self, kind: str, message: str, *, status: int | None = None, retry_after_ms: int | None = None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after_ms = retry_after_ms


class UpstreamRefusal(GatewayFault):
    """An MCP server's JSON-RPC error to a request beside calls, untouched."""

    def __init__(self, code: int, message: str, data: Json = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Unanswered(GatewayFault):
    """Nobody answers what a tool asks: the client can't, has left, took too long, or refused. `code` is JSON-RPC's."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


class LedgerFault(GatewayFault):
    """The ledger couldn't make something durable; nothing that depended on it happened (`ledger.unavailable`)."""


# ---- ledger -------------------------------------------------------------------------------------------------------------


class Decision(Struct, frozen=True):
    """What a step wants appended, in order, and what its caller is told."""

    events: tuple[tuple[str, Event], ...]
    answer: Any
    payloads: tuple[tuple[str, Payload], ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    """digest -> text, kept for as long as the ledger lives."""


Step = Callable[[Mapping[str, Any], int], Decision]
"""`step(states by stream, now in ms) -> Decision`; pure; may run more than once; a raise reaches only its own caller."""


class Committed(Struct, frozen=True):
    """A durable decision. `at`: the stamp of its batch. `states`: the streams' states after it."""

    answer: Any
    at: int
    states: Mapping[str, Any]


class Recorded(Struct, frozen=True):
    """One event as it stands in the ledger."""

    stream: str
    seq: int
    event_id: str
    at: int
    event: Event
    hash: str


class Ledger(Protocol):
    """Append-only streams with folded states. All methods raise LedgerFault when the store can't be used."""

    @property
    def alone(self) -> bool:
        """Can no other process append, so that another owner's call in flight is a dead one's?"""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    def transact(self, streams: Sequence[str], step: Step) -> Awaitable[Committed]:
        """Decide on current states and append durably; a stream that doesn't exist has its kind's empty state. A Decision
        without events, payloads and policies is answered at once, without a commit."""

    async def state(self, stream: str) -> Any:
        """The current folded state (`core.run.Tree`, `core.principal.PrincipalState` or `core.gateway.GatewayState`)."""

    def at_hand(self, stream: str) -> Any | None:
        """The state as this process saw it last, None if it isn't in memory: behind, maybe, by what other processes did. For facts that never
        change, and where a step decides anew anyway."""

    async def watch(self, stream: str, after: int) -> None:
        """Return as soon as the stream's `state.seq` is above `after`. The only way to learn of another's event; callers bound it."""

    async def payload(self, stream: str, hash: str) -> bytes | None:
        """The bytes behind a hash; None if erased or never stored."""

    async def policy_text(self, digest: str) -> str | None: ...

    async def events(self, stream: str, after: int = 0, limit: int = 1000) -> list[Recorded]: ...

    async def due(self, now: int, limit: int = 500) -> list[str]:
        """Run streams in which something is due by `now` (deadline, expiry, lapse, idle, closing)."""

    async def in_flight(self) -> list[str]:
        """Run streams that have an admitted, unsettled call."""

    async def due_calls(self, now: int, limit: int = 10_000) -> list[str]:
        """Calls that some process must look after by `now` (`Tree.call_due_at`), the longest due first."""

    async def erase(self, closed_by: int) -> int:
        """Erase the payloads of every tree whose root run had closed by then, a few at a time; events stay. How many."""

    async def rows(self, view: str, where: Mapping[str, Any], *, limit: int = 100, before: str | None = None) -> list[dict[str, Any]]:
        """Newest first from a view (`runs`, `calls`, `holds`, `votes`), filtered by equality on columns; `before` is an id to page on."""


# ---- upstreams ----------------------------------------------------------------------------------------------------------


Ask = Callable[[Mapping[str, Json]], Awaitable[Mapping[str, Json]]]
"""What an upstream wants to know in the midst of a call: id -> {method, params}, 2026-07-28's `inputRequests`; gives id -> result, its
`inputResponses`, untouched and perhaps not complete. Raises Unanswered, in time for the upstream to end the call by itself."""


class Client(Struct, frozen=True):
    """Who made a call, while it runs. `capabilities`: what it can be asked (`elicitation`, `sampling`, `roots`), as the protocol writes it;
    `ask` raises Unanswered for the rest. `log` gets the params of each `notifications/message` of `log_level` or above."""

    progress: Callable[[Mapping[str, Json]], None] | None = None
    log: Callable[[Mapping[str, Json]], None] | None = None
    log_level: str | None = None
    capabilities: Mapping[str, Json] = field(default_factory=dict)
    ask: Ask | None = None


NOBODY = Client()


class Dispatch(Struct, frozen=True):
    """One attempt for an upstream. `remaining_ms` is the time left from now; `deadline_at` is the same, absolute."""

    tool: Tool
    arguments: Mapping[str, Json]
    key: str
    send_as: tuple[str, str] | None
    deadline_at: int
    remaining_ms: int
    fresh_connection: bool = False
    """True for non_idempotent calls: a stale keep-alive connection must not leave them in doubt."""
    max_bytes: int = 16 * 1024 * 1024
    call: str = ""
    attempt: int = 1
    trace: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Json] = field(default_factory=dict)
    client: Client = NOBODY
    """Who listens, and can be asked."""


class Answer(Struct, frozen=True):
    """A definite answer in the form of an MCP CallToolResult, untouched. `status` is HTTP's where there was one. A JSON-RPC error is an
    `isError` result that carries it under `_meta[wire.mcp.META_ERROR]`."""

    result: Mapping[str, Json]
    status: int | None = None
    retry_after_ms: int | None = None


class Upstream(Protocol):
    """One upstream. Cancelling the task of `send` reaches the tool: the connection closes, the MCP cancel goes out."""

    name: str

    async def open(self) -> None:
        """Start; returns when `tools` can answer, or raises UpstreamFault. Must be cheap to call again after a failure."""

    async def close(self) -> None: ...

    async def tools(self) -> Sequence[Mapping[str, Json]]:
        """The definitions as the upstream gives them (MCP tool shape); the same sequence until one changes. Raises UpstreamFault."""

    async def send(self, dispatch: Dispatch) -> Answer:
        """One attempt; never retries by itself. Raises UpstreamFault, always with a kind of `core.outcomes`.

        A server that asks the client something meanwhile (`dispatch.client.ask`) is answered inside this one attempt: by the response to its
        request, or by the same request once more where it had answered `input_required`."""


class Notice(Struct, frozen=True):
    """A notification of a server that belongs to no request of ours: `notifications/{tools,prompts,resources}/list_changed`,
    `notifications/resources/updated`, `notifications/message`."""

    upstream: str
    method: str
    params: Mapping[str, Json]


Hear = Callable[[Notice], None]


@runtime_checkable
class Server(Upstream, Protocol):
    """An upstream that is an MCP server, and so may offer more than tools."""

    @property
    def offers(self) -> Mapping[str, Json]:
        """Its capabilities (`prompts`, `resources`, `completions`, `logging`) as it declared them; empty while it is away."""

    async def request(
        self, method: str, params: Mapping[str, Json], *, remaining_ms: int, capabilities: Mapping[str, Json] | None = None
    ) -> Mapping[str, Json]:
        """One request about resources, prompts or completion; the result untouched, a 2026 server's `input_required` too: its answers come
        as `inputResponses` and `requestState` in the params of the next. Raises UpstreamRefusal, UpstreamFault."""

    async def watch(self, uris: Collection[str]) -> None:
        """The resources whose updates are wanted, all of them, kept over reconnects; an earlier collection is replaced. Raises as `request`."""

    def listen(self, hear: Hear) -> None:
        """Tell `hear` each notice from now on; at most one listener (the catalog)."""


class Catalog(Protocol):
    """All tools of all upstreams, by full name."""

    def tool(self, name: str) -> Tool | None: ...
    def all(self) -> Sequence[Tool]:
        """Every tool; the same sequence until something changes."""

    def away(self, name: str) -> str | None:
        """Why the upstream of this tool doesn't answer now; None if it does, or if there is no such upstream."""

    def pins(self) -> Mapping[str, Pin]:
        """Full name -> the accepted definition's digest, of the upstreams that there are."""

    async def accept(self, tools: Sequence[Tool], by: str) -> None:
        """Accept these tools' definitions as they are here; durable, and in effect when it returns. Raises LedgerFault."""

    def send(self, dispatch: Dispatch) -> Awaitable[Answer]:
        """As an upstream's."""

    def server(self, upstream: str) -> Server | None:
        """The MCP server of this name; None if the upstream is something else."""

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Tell `hear` each notice of each server, and once the tools here have changed; call what is returned to end that."""


# ---- policies, clock, ids -----------------------------------------------------------------------------------------------


class Policies(Protocol):
    """The loaded documents."""

    def choose(self, principal: Principal, task_type: str, name: str | None) -> PolicySet | None:
        """The set that governs a new run; None if no policy matches (or the named one doesn't)."""

    def by_digest(self, digest: str) -> PolicySet | None:
        """A set that is loaded or was revived."""

    def texts(self, digest: str) -> Mapping[str, str]:
        """What the ledger keeps for a set: its digest -> one self-contained text, enough for `revive`."""

    def revive(self, digest: str, text: str) -> PolicySet:
        """Compile a set again from its kept text, and remember it; raises PolicyError."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, ms since the epoch."""

    def boot_ms(self) -> int:
        """Boottime clock, ms: goes on while the machine sleeps, never jumps."""

    async def sleep(self, ms: int) -> None: ...


class Ids(Protocol):
    """Identity and unguessability."""

    def new(self, prefix: str) -> str:
        """A fresh id, `prefix_…`, sortable by time."""

    def seal(self, stream: str, value: Json) -> Payload:
        """A value as a payload: equal values in one stream get equal hashes, unguessable without the gateway's secret."""

    def unseal(self, data: bytes) -> Json:
        """The value that a payload's bytes hold."""
