"""`tools`: what has changed is shown as a diff, and accepted as it was shown; a real upstream changes between two starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli.tools import difference
from tests.cli.running import Ran, ran_beside
from tests.e2e import deployment
from tests.e2e.serving import Stage, running
from tests.e2e.web_upstream import web_upstream

pytestmark = pytest.mark.anyio
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[tuple[Path, Stage]]:
    """A gateway whose stdio server describes its tools otherwise than when they were first seen."""
    folder = tmp_path_factory.mktemp("tools")
    async with web_upstream() as web:
        async with running(folder, web):
            pass
        async with running(folder, web, described="\\e[31m") as stage:
            yield folder, stage


@pytest.fixture
def it(served: tuple[Path, Stage], monkeypatch: pytest.MonkeyPatch) -> Stage:
    folder, stage = served
    monkeypatch.setenv("GATEWAY_SECRET", deployment.SECRET)
    monkeypatch.setenv("GATEWAY_KEY", deployment.key_of("user:mia"))
    monkeypatch.chdir(folder)
    return stage


async def tools(it: Stage, capsys: Capture, *argv: str) -> Ran:
    return await ran_beside(capsys, "tools", *argv, "--url", it.url)


async def test_all_tools_are_listed_with_their_state(it: Stage, capsys: Capture) -> None:
    said = await tools(it, capsys, "list")
    assert said.lines[0].split() == ["TOOL", "STATE", "DIGEST", "ACCEPTED", "BY", "NOTE"]
    states = {line.split()[0]: line.split()[1] for line in said.lines[1:]}
    assert (states["desk.read"], states["web.read"], states["down.read"]) == ("changed", "accepted", "accepted")
    listed = (await tools(it, capsys, "list", "--json")).json
    assert {one["tool"]: one["state"] for one in listed} == states


async def test_a_diff_shows_what_has_changed_safely_and_how_to_accept_it(it: Stage, capsys: Capture) -> None:
    said = await tools(it, capsys, "diff", "desk.read", "web.read")
    assert [line for line in said.lines if line.startswith("  -")] == ['  -  "description": "Does read.",']
    assert len([line for line in said.lines if line.startswith("  +")]) == 1
    assert "\x1b" not in said.out
    [digest] = [one["digest"] for one in (await tools(it, capsys, "diff", "desk.read", "--json")).json]
    assert f"gateway tools accept desk.read@{digest[:12]}" in said.lines[-1]
    assert (await tools(it, capsys, "diff", "web.read")).lines == ["Nothing is held back."]
    assert (await tools(it, capsys, "diff", "desk.none")).code == 1


async def test_what_was_shown_is_accepted_and_nothing_else(it: Stage, capsys: Capture) -> None:
    [digest] = [one["digest"] for one in (await tools(it, capsys, "diff", "desk.put", "--json")).json]
    wrong = await tools(it, capsys, "accept", "desk.put@" + "0" * 12)
    assert (wrong.code, wrong.err.startswith("gateway: tool.digest: ")) == (1, True)
    assert (await tools(it, capsys, "accept", f"desk.put@{digest[:12]}")).lines == ["desk.put is accepted."]
    assert (await tools(it, capsys, "accept", f"desk.put@{digest}", "--json")).json[0]["accepted"]["by"] == "user:mia"
    assert (await tools(it, capsys, "diff", "desk.put")).lines == ["Nothing is held back."]


@pytest.mark.parametrize("chosen", ["desk.read", "desk.read@", "@" + "0" * 12, "desk.read@1234567"])
async def test_a_choice_names_the_tool_and_the_digest(chosen: str, capsys: Capture) -> None:
    assert (await ran_beside(capsys, "tools", "accept", chosen)).code == 2


async def test_who_may_not_look_is_told_so(it: Stage, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", deployment.key_of("agent:plain"))
    for argv in (("list",), ("diff",), ("accept", "desk.read@" + "0" * 12)):
        said = await tools(it, capsys, *argv)
        assert (said.code, said.err.startswith("gateway: auth.forbidden: ")) == (1, True)


def test_a_difference_is_told_by_lines_and_a_new_thing_whole() -> None:
    assert difference({"a": 1, "b": 2}, {"b": 2, "a": 3}) == ["@@ -1,4 +1,4 @@", " {", '-  "a": 1,', '+  "a": 3,', '   "b": 2', " }"]
    assert difference(None, {"a": 1}) == ["@@ -0,0 +1,3 @@", "+{", '+  "a": 1', "+}"]
    assert difference({"a": 1}, {"a": 1}) == []
