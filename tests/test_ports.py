"""What crosses a port: one tree of faults, told apart by blame, and adapters that have every method the engine calls."""

from __future__ import annotations

import inspect

import pytest

from gateway import ports
from gateway.ledger.sqlite import SqliteLedger
from gateway.policy.store import LoadedPolicies
from gateway.system import SystemClock, SystemIds
from gateway.upstreams.catalog import Catalog
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.mcp_stdio import McpStdio

ADAPTERS = [
    (ports.Ledger, SqliteLedger),
    (ports.Catalog, Catalog),
    (ports.Policies, LoadedPolicies),
    (ports.Clock, SystemClock),
    (ports.Ids, SystemIds),
    (ports.Upstream, HttpUpstream),
    (ports.Upstream, McpStdio),
]


FAULTS = [
    ports.RequestFault("run.unknown", "m"),
    ports.PolicyError("m"),
    ports.UpstreamFault("reset", "m"),
    ports.UpstreamRefusal(-32602, "m"),
    ports.Unanswered(-32601, "m"),
    ports.LedgerFault("m"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_a_gateway_fault_that_says_its_message(fault: ports.GatewayFault) -> None:
    assert isinstance(fault, ports.GatewayFault)
    assert str(fault) == "m"


def test_a_request_fault_carries_its_reason_findings_and_data() -> None:
    fault = ports.RequestFault("hold.conflict", "late", data={"state": "denied"})
    assert (fault.reason, fault.findings, fault.data) == ("hold.conflict", (), {"state": "denied"})


def test_an_upstream_fault_carries_what_is_known_of_the_answer() -> None:
    fault = ports.UpstreamFault("cut", "broke off", status=503, retry_after_ms=1000)
    assert (fault.kind, fault.status, fault.retry_after_ms) == ("cut", 503, 1000)


@pytest.mark.parametrize(("port", "adapter"), ADAPTERS)
def test_an_adapter_has_its_ports_methods_with_the_same_parameters(port: type, adapter: type) -> None:
    for name, method in vars(port).items():
        if name.startswith("_") or not callable(method):
            continue
        wanted = list(inspect.signature(method).parameters)
        assert list(inspect.signature(getattr(adapter, name)).parameters)[: len(wanted)] == wanted, f"{adapter.__name__}.{name}"
        assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(getattr(adapter, name)), f"{adapter.__name__}.{name}"
