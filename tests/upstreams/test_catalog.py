"""The catalog over real upstreams of both kinds: what appears, what is left out, and what an absent one does to the others."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core import streams
from gateway.core.canonical import digest
from gateway.ledger.sqlite import SqliteLedger
from gateway.ports import Answer, Dispatch, LedgerFault, Notice, UpstreamFault
from gateway.upstreams.catalog import Catalog
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.http_request import HttpTool
from gateway.upstreams.mcp_stdio import McpStdio
from gateway.upstreams.pins import CHANGED, NEW, Pins
from tests.fakes import FakeClock
from tests.upstreams.origin import dispatch, origin, tool
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("stdio_server.py"))


class Shop:
    """An upstream in memory with the port's type: its tools and whether it is there are what the test says."""

    def __init__(self, *definitions: dict[str, Any], name: str = "shop", there: bool = True) -> None:
        self.name, self.definitions, self.there, self.closed = name, list(definitions), there, False

    async def open(self) -> None:
        if not self.there:
            raise UpstreamFault("refused", "nobody there")

    async def close(self) -> None:
        self.closed = True

    async def tools(self) -> list[dict[str, Any]]:
        await self.open()
        return self.definitions

    async def send(self, dispatch: Dispatch) -> Answer:
        await self.open()
        return Answer({"content": [], "structuredContent": dict(dispatch.arguments)})


def defined(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}} | more


def compile_shape(schema):
    return "it says bad" if "bad" in schema else lambda value: ()


@asynccontextmanager
async def opened(*upstreams, **more):
    options = {"wait_s": 5.0, "refresh_s": 0.02, "backoff_s": (0.02, 0.05)} | more
    catalog = Catalog(upstreams, compile_shape, **options)
    async with asyncio.timeout(WAIT_S):
        await catalog.open()
        try:
            yield catalog
        finally:
            await catalog.close()


async def until(holds) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen within 5 s")


async def test_tools_of_all_kinds_of_upstreams_stand_side_by_side():
    async def script(connection):
        await connection.request()
        await connection.answer(b'{"paid":true}')

    async with origin(script) as it:
        billing = HttpUpstream("billing", it.url, [HttpTool("pay", "Pays.", "POST", "/pay", {"type": "object"}, sends_body=True)])
        files = McpStdio("files", [sys.executable, SERVER, "legacy"], kill_grace_s=0.5)
        async with opened(billing, files) as catalog:
            assert [one.name for one in catalog.all()] == ["billing.pay", "files.die", "files.echo", "files.flood", "files.hang"]
            paid = await catalog.send(dispatch(tool=catalog.tool("billing.pay")))
            echoed = await catalog.send(dispatch(tool=catalog.tool("files.echo")))
    assert paid.result["structuredContent"] == {"paid": True}
    assert echoed.result["structuredContent"]["name"] == "echo"


async def test_a_tool_is_held_with_its_definition_its_digest_and_its_judge():
    definition = defined("pay", description="Pays.", new=[1])
    async with opened(Shop(definition)) as catalog:
        found = catalog.tool("shop.pay")
    assert (found.name, found.upstream, found.local_name, found.unsupported) == ("shop.pay", "shop", "pay", None)
    assert found.definition == definition
    assert found.digest == digest(definition)
    assert found.shape({}) == ()
    assert catalog.tool("shop.other") is None
    assert catalog.tool("pay") is None


@pytest.mark.parametrize("wrong", [{"description": {}}, {"annotations": [1]}, {"outputSchema": [1]}, {"title": 5}, {"_meta": "x"}])
async def test_a_definition_that_clients_could_not_read_holds_its_tool_back(wrong):
    async with opened(Shop(defined("a", **wrong), defined("b"))) as catalog:
        assert "malformed" in catalog.tool("shop.a").unsupported
        assert catalog.tool("shop.b").unsupported is None


@pytest.mark.parametrize("schema", [{"bad": 1}, None, [], "x"])
async def test_a_schema_that_cannot_be_enforced_holds_its_tool_back_and_no_other(schema):
    async with opened(Shop(defined("a", inputSchema=schema), defined("b"))) as catalog:
        assert catalog.tool("shop.a").unsupported
        assert catalog.tool("shop.a").shape is None
        assert catalog.tool("shop.b").unsupported is None


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ü", "a__b\x00", "x" * 129, "a:b", None, 5])
async def test_a_tool_whose_name_is_out_of_shape_is_left_out(name):
    async with opened(Shop(defined(name), defined("b"))) as catalog:
        assert [one.name for one in catalog.all()] == ["shop.b"]


async def test_names_with_dots_and_slashes_keep_the_upstream_before_the_first_dot():
    async with opened(Shop(defined("a.b/c-d_E"))) as catalog:
        found = catalog.tool("shop.a.b/c-d_E")
    assert (found.upstream, found.local_name) == ("shop", "a.b/c-d_E")


async def test_of_two_tools_with_one_name_the_first_stays():
    async with opened(Shop(defined("a", description="first"), defined("a", description="second"))) as catalog:
        assert [one.definition["description"] for one in catalog.all()] == ["first"]


@pytest.mark.parametrize("names", [["a", "a"], ["a.b"], [""], ["a b"], ["ü"]])
def test_upstreams_need_different_names_in_shape(names):
    with pytest.raises(ValueError, match="different names"):
        Catalog([Shop(name=name) for name in names], compile_shape)


async def test_an_upstream_that_is_away_stops_neither_the_start_nor_the_others_and_appears_when_it_is_there():
    shop = Shop(defined("pay"), there=False)
    async with opened(shop, Shop(defined("b"), name="other")) as catalog:
        assert [one.name for one in catalog.all()] == ["other.b"]
        assert "nobody there" in catalog.away("shop.pay")
        assert catalog.away("other.b") is None
        assert catalog.away("unheard.of") is None
        with pytest.raises(UpstreamFault) as caught:
            await catalog.send(dispatch(tool=tool("shop.pay")))
        assert caught.value.kind == "refused"
        shop.there = True
        await until(lambda: catalog.tool("shop.pay"))
        assert catalog.away("shop.pay") is None


async def test_tools_stay_while_their_upstream_is_away(caplog):
    shop = Shop(defined("pay"))
    async with opened(shop) as catalog:
        shop.there = False
        await until(lambda: catalog.away("shop.pay"))
        await asyncio.sleep(0.2)
        assert catalog.tool("shop.pay") is not None
    assert [record.message for record in caplog.records] == ["upstream shop: nobody there"], "said once"


async def test_a_slow_upstream_is_not_waited_for_for_ever():
    class Slow(Shop):
        async def open(self) -> None:
            await asyncio.sleep(60)

    async with opened(Slow(defined("a")), Shop(defined("b"), name="other"), wait_s=0.1) as catalog:
        assert [one.name for one in catalog.all()] == ["other.b"]
        assert catalog.away("shop.a")


async def test_the_same_sequence_is_given_until_something_changes(caplog):
    shop = Shop(defined("a", inputSchema={"bad": 1}), defined("b"), defined("b"))
    async with opened(shop) as catalog:
        before, kept = catalog.all(), catalog.tool("shop.b")
        await asyncio.sleep(0.2)
        assert catalog.all() is before
        said = len(caplog.records)
        shop.definitions = [defined("b"), defined("c"), defined("a", inputSchema={"bad": True})]
        await until(lambda: catalog.tool("shop.c"))
        assert catalog.tool("shop.b") is kept
        assert catalog.tool("shop.a").definition["inputSchema"] == {"bad": True}
        shop.definitions = []
        await until(lambda: catalog.all() == ())
        assert catalog.tool("shop.b") is None
    assert said == 2, "a refresh that changes nothing says nothing"


async def test_an_upstream_that_floods_us_with_tools_is_cut():
    async with opened(Shop(*(defined(f"t{number}") for number in range(5_100)))) as catalog:
        assert len(catalog.all()) == 5_000


async def test_closing_closes_every_upstream_and_ends_the_keepers():
    shops = [Shop(), Shop(name="other", there=False)]
    async with opened(*shops) as catalog:
        pass
    assert all(shop.closed for shop in shops)
    assert all(keeper.done() for keeper in catalog._keepers)


async def test_a_call_for_an_upstream_that_is_not_there_is_unavailable():
    async with opened() as catalog:
        with pytest.raises(UpstreamFault) as caught:
            await catalog.send(dispatch(tool=tool("gone.pay")))
    assert caught.value.kind == "unavailable"


async def test_a_keeper_that_breaks_is_reported(caplog):
    class Broken(Shop):
        async def tools(self):
            raise RuntimeError("a fault of ours")

    with caplog.at_level(logging.CRITICAL):
        async with opened(Broken(), wait_s=0.1):
            pass
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


# ---- servers and their notices ------------------------------------------------------------------------------------------


class Talking(Shop):
    """One that is an MCP server."""

    offers: dict[str, Any] = {}

    async def request(self, method, params, *, remaining_ms, capabilities=None):
        return {}

    async def watch(self, uris):
        pass

    def listen(self, hear):
        self.hear = hear


async def test_only_mcp_servers_can_be_asked_for_more_than_tools():
    talking = Talking(defined("a"), name="talking")
    async with opened(talking, Shop(defined("b"))) as catalog:
        assert (catalog.server("talking"), catalog.server("shop"), catalog.server("nobody")) == (talking, None, None)


async def test_notices_reach_all_who_listen_and_none_who_stopped():
    talking, heard = Talking(defined("a"), name="talking"), []
    async with opened(talking) as catalog:
        stop = catalog.listen(lambda notice: heard.append((1, notice.method)))
        catalog.listen(lambda notice: heard.append((2, notice.method)))
        talking.hear(Notice("talking", "notifications/resources/updated", {}))
        stop()
        talking.hear(Notice("talking", "notifications/message", {}))
    assert heard == [(1, "notifications/resources/updated"), (2, "notifications/resources/updated"), (2, "notifications/message")]


async def test_a_change_of_tools_is_looked_at_at_once_and_told_once_it_is_seen():
    talking, seen = Talking(defined("a"), name="talking"), []
    async with opened(talking, refresh_s=3600.0) as catalog:
        catalog.listen(lambda notice: seen.append((notice.method, [tool.name for tool in catalog.all()])))
        talking.definitions = [*talking.definitions, defined("b")]
        talking.hear(Notice("talking", "notifications/tools/list_changed", {}))
        assert seen == []
        await until(lambda: seen)
        talking.hear(Notice("talking", "notifications/tools/list_changed", {}))
        await asyncio.sleep(0)
    assert seen == [("notifications/tools/list_changed", ["talking.a", "talking.b"])]


async def test_tools_of_an_upstream_that_says_nothing_are_told_too():
    shop, seen = Shop(defined("a")), []
    async with opened(shop) as catalog:
        catalog.listen(lambda notice: seen.append((notice.upstream, notice.method)))
        shop.definitions = [defined("a", description="another")]
        await until(lambda: seen)
    assert seen == [("shop", "notifications/tools/list_changed")]


# ---- pins ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def ledger(tmp_path):
    ledger = SqliteLedger(tmp_path / "gateway.db", empty=streams.empty, evolve=streams.evolve, clock=FakeClock())
    await ledger.open()
    yield ledger
    await ledger.close()


def usable(catalog) -> list[str]:
    return [one.name for one in catalog.all() if one.usable]


async def test_a_changed_definition_is_held_back_until_it_is_accepted_and_the_others_stay(ledger):
    shop = Shop(defined("a"), defined("b"))
    async with opened(shop, pins=Pins(ledger)) as catalog:
        assert usable(catalog) == ["shop.a", "shop.b"]
        shop.definitions = [defined("a", description="Other."), defined("b")]
        await until(lambda: usable(catalog) == ["shop.b"])
        changed, before = catalog.tool("shop.a"), catalog.all()
        assert (changed.unaccepted, changed.definition["description"]) == (CHANGED, "Other.")
        told = []
        catalog.listen(lambda notice: told.append((notice.upstream, notice.method)))
        await catalog.accept([changed], "user:ops")
        assert usable(catalog) == ["shop.a", "shop.b"]
        assert told == [("shop", "notifications/tools/list_changed")]
        assert catalog.all() is not before
        assert (catalog.pins()["shop.a"].by, catalog.pins()["shop.b"].by) == ("user:ops", "")


async def test_a_tool_that_its_upstream_offers_later_is_held_back_and_one_that_is_gone_is_away(ledger, caplog):
    shop = Shop(defined("a"))
    async with opened(shop, pins=Pins(ledger)) as catalog:
        shop.definitions = [defined("b")]
        await until(lambda: catalog.tool("shop.b"))
        assert (catalog.tool("shop.a"), catalog.tool("shop.b").unaccepted) == (None, NEW)
        shop.definitions = [defined("b"), defined("a")]
        await until(lambda: usable(catalog) == ["shop.a"])
        assert catalog.pins().keys() == {"shop.a"}
    assert len([record for record in caplog.records if "held back" in record.message]) == 1, "said once"


async def test_an_upstream_that_is_away_at_the_start_keeps_its_pins(ledger):
    async with opened(Shop(defined("a")), pins=Pins(ledger)):
        pass
    shop = Shop(defined("a", description="Other."), there=False)
    async with opened(shop, pins=Pins(ledger)) as catalog:
        assert (catalog.all(), list(catalog.pins())) == ((), ["shop.a"])
        shop.there = True
        await until(lambda: catalog.tool("shop.a"))
        assert catalog.tool("shop.a").unaccepted == CHANGED
    async with opened(Shop(name="other"), pins=Pins(ledger)) as catalog:
        assert catalog.pins() == {}, "pins of upstreams that the deployment no longer has"


async def test_what_can_not_be_pinned_is_not_offered_and_tried_again(ledger):
    class Away(SqliteLedger):
        down = True

        async def transact(self, streams, step):
            if self.down:
                raise LedgerFault("the disk is away")
            return await ledger.transact(streams, step)

    away = Away(":unused:", empty=streams.empty, evolve=streams.evolve, clock=FakeClock())
    away.state, away.watch = ledger.state, ledger.watch
    async with opened(Shop(defined("a")), pins=Pins(away)) as catalog:
        assert (catalog.all(), "the disk is away" in catalog.away("shop.a")) == ((), True)
        away.down = False
        await until(lambda: usable(catalog) == ["shop.a"])
        assert catalog.away("shop.a") is None
async def test_definitions_that_are_the_same_as_before_are_not_compared_again():
    class Looked(list[Any]):
        looks = 0

        def __getitem__(self, place: Any) -> Any:
            self.looks += 1
            return super().__getitem__(place)

    class Asked(Shop):
        asked = 0

        async def tools(self) -> list[dict[str, Any]]:
            self.asked += 1
            return await super().tools()

    shop = Asked()
    shop.definitions = Looked([defined("a")])
    async with opened(shop) as catalog:
        await until(lambda: shop.asked > 3)
        assert (shop.definitions.looks, catalog.tool("shop.a") is not None) == (1, True)
        shop.there = False
        await until(lambda: catalog.away("shop.a"))
        shop.there = True
        await until(lambda: not catalog.away("shop.a"))
