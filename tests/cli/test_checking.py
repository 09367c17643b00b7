"""`check` and `test`: every mistake of every file with its place, exit statuses for CI, and what they work on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Ran, ran
from tests.serving import POLICY

TESTS = """\
policy: shop
principals: {bot: {id: "agent:bot"}}
cases:
  - name: an order is read
    when: {principal: bot, tool: shop.get_order, arguments: {id: "1"}}
    then: {verdict: allow}
"""
WRONG = TESTS.replace("verdict: allow", "verdict: hold")


@pytest.fixture
def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def check(*argv: str) -> Ran:
        return ran(capsys, "check", *argv)

    return check


@pytest.fixture
def test(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def test(*argv: str) -> Ran:
        return ran(capsys, "test", *argv)

    return test


def places(found: list[dict[str, Any]]) -> list[str]:
    return [f"{one['file']}:{one['line']}:{one['column']}" for one in found]


# ---- check --------------------------------------------------------------------------------------------------------------


def test_a_deployment_without_mistakes_ends_with_0_and_names_what_was_looked_at(folder: Path, check: Any) -> None:
    said = check("--json")
    assert (said.code, said.json["ok"], said.json["mistakes"]) == (0, True, [])
    assert said.json["files"] == ["gateway.yaml", "policies/shop.yaml"]
    assert check().lines[-1].endswith("gateway.yaml, policies/shop.yaml.")


def test_it_says_plainly_when_all_is_well(folder: Path, check: Any) -> None:
    (folder / "policies" / "shop.yaml").write_text(POLICY.replace("run:\n", "run:\n  require_turns: true\n"))
    said = check()
    assert (said.code, said.out) == (0, "All is well in gateway.yaml, policies/shop.yaml.\n")


def test_mistakes_of_settings_and_of_all_policies_come_together(folder: Path, check: Any) -> None:
    (folder / "gateway.yaml").write_text("listen: 1\nsecret: [abc]\nroles: {king: []}\n")
    (folder / "policies" / "a.yaml").write_text("version: 2\nname: A\n" + POLICY.partition("name: shop\n")[2])
    (folder / "policies" / "b.yaml").write_text("{")
    said = check("--json")
    assert (said.code, said.json["ok"]) == (1, False)
    found = places(said.json["mistakes"])
    assert {"gateway.yaml:1:9", "gateway.yaml:2:10", "gateway.yaml:3:9", "policies/a.yaml:1:10", "policies/a.yaml:2:7"} <= set(found)
    assert any(place.startswith("policies/b.yaml:") for place in found)
    text = check()
    assert [line for line in text.lines if line.startswith(tuple(found))] == text.lines[:-1]
    assert text.lines[-1].startswith(f"{len(found)} mistakes, 0 warnings")


def with_document(folder: Path, document: str, **more: str) -> None:
    """The deployment with one more upstream, read from `document`."""
    (folder / "api.yaml").write_text(document)
    text = (folder / "gateway.yaml").read_text()
    settings = "".join(f", {name}: {value}" for name, value in more.items())
    (folder / "gateway.yaml").write_text(text.replace("upstreams:\n", f"upstreams:\n  api: {{openapi: {{document: api.yaml{settings}}}}}\n"))


def test_what_is_left_out_of_an_openapi_document_is_a_warning_at_its_place(folder: Path, check: Any) -> None:
    parameters = "parameters: [{name: a, in: query, style: odd}]"
    with_document(folder, f"openapi: 3.1.0\npaths:\n  /x:\n    get: {{{parameters}}}\n    put: {{}}\n", base_url="http://a", include='["* /*", none]')
    said = check("--json")
    assert (said.code, said.json["mistakes"]) == (0, [])
    assert places(said.json["warnings"])[:2] == ["api.yaml:3:3", "api.yaml:4:52"]


def test_an_operation_whose_schema_cannot_be_enforced_is_a_warning(folder: Path, check: Any) -> None:
    parameters = "parameters: [{name: a, in: query, schema: {type: string, pattern: '(?=x)y'}}]"
    with_document(folder, f"openapi: 3.1.0\npaths:\n  /x:\n    get: {{{parameters}}}\n", base_url="http://a")
    said = check("--json")
    assert (said.code, places(said.json["warnings"])[0]) == (0, "api.yaml:4:10")


@pytest.mark.parametrize(("url", "warned"), [("http://api.test", True), ("https://api.test", False), ("http://127.0.0.1:1", False)])
def test_credentials_in_clear_text_are_a_warning(folder: Path, check: Any, url: str, warned: bool) -> None:
    text = (folder / "gateway.yaml").read_text()
    oauth = f'{{oauth: {{token_url: "{url}", client_id: a, client_secret: "${{env:GATEWAY_SECRET}}"}}}}'
    tool = "{name: a, description: b, method: GET, path: /, input_schema: {type: object}}"
    one = f'{{http: {{base_url: "{url}", tools: [{tool}]}}, auth: {oauth}}}'
    (folder / "gateway.yaml").write_text(text.replace("upstreams:\n", f"upstreams:\n  api: {one}\n"))
    found = [one for one in check("--json").json["warnings"] if "api.test" in one["message"]]
    assert len(found) == (2 if warned else 0)
    assert {one["file"] for one in found} <= {"gateway.yaml"}


def test_every_mistake_of_an_openapi_document_is_a_mistake_of_the_deployment(folder: Path, check: Any) -> None:
    with_document(folder, "openapi: 3.1.0\nservers: {}\n")
    said = check("--json")
    assert (said.code, places(said.json["mistakes"])) == (1, ["api.yaml:1:1", "api.yaml:2:10"])
    assert places(check("--json", "--upstreams").json["warnings"])[0].startswith("gateway.yaml:")


def test_what_this_version_cannot_run_is_a_mistake_at_its_place(folder: Path, check: Any) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace("limits: {open_runs: 3}", "limits: {quotas: [{per: day, tool_calls: 1}]}"))
    line = text[: text.index("limits:")].count("\n") + 1
    said = check("--json")
    assert (said.code, places(said.json["mistakes"])) == (1, [f"gateway.yaml:{line}:18"])


def test_a_hold_that_nobody_can_approve_is_a_mistake(folder: Path, check: Any) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace('approver: ["group:finance"]', "approver: []"))
    assert check().code == 1
    assert check("policies").code == 0, "who there is stands in the deployment"


def test_a_deployment_without_a_secret_is_warned_about(folder: Path, check: Any) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace('secret: ["${env:GATEWAY_SECRET}"]\n', ""))
    said = check("--json")
    assert said.code == 0
    assert [one["message"] for one in said.json["warnings"] if "secret" in one["message"]]


def test_files_that_others_can_write_are_warned_about_by_their_name(folder: Path, check: Any) -> None:
    (folder / "policies" / "shop.yaml").chmod(0o666)
    assert "policies/shop.yaml:1:1" in places(check("--json").json["warnings"])


def test_a_folder_of_policies_a_policy_and_a_deployment_can_be_named(folder: Path, check: Any) -> None:
    (folder / "gateway.yaml").rename(folder / "other.yaml")
    assert check("policies", "--json").json["files"] == ["policies/shop.yaml"]
    assert check("policies/shop.yaml", "--json").json["files"] == ["policies/shop.yaml"]
    for argv in (("other.yaml",), ("-c", "other.yaml"), ("other.yaml", "-c", "nowhere.yaml")):
        assert check(*argv, "--json").json["files"] == ["other.yaml", "policies/shop.yaml"]
    (folder / "other.yaml").rename(folder / "gateway.yaml")
    assert check(".", "--json").json["files"] == ["gateway.yaml", "policies/shop.yaml"]


def test_one_policy_is_judged_alone(folder: Path, check: Any) -> None:
    (folder / "policies" / "b.yaml").write_text("{")
    assert check("policies/shop.yaml").code == 0
    assert check("policies/b.yaml").code == 1


@pytest.mark.parametrize("argv", [("nowhere",), ("policies", "--upstreams"), ("-c", "nowhere.yaml")])
def test_what_cannot_be_checked_is_one_line(folder: Path, check: Any, argv: tuple[str, ...]) -> None:
    said = check(*argv)
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)


def test_tests_are_not_taken_for_policies(folder: Path, check: Any) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    assert check("--json").json["files"] == ["gateway.yaml", "policies/shop.yaml"]
    said = check("policies/shop_test.yaml")
    assert said.code == 1
    assert "gateway test" in said.err


def test_a_folder_that_is_not_there_is_a_mistake_of_the_deployment(folder: Path, check: Any) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace("policies: policies/", "policies: elsewhere"))
    said = check("--json")
    assert (said.code, places(said.json["mistakes"])) == (1, ["elsewhere:1:1"])


def test_rules_are_held_against_the_tools_of_the_upstreams_on_demand(folder: Path, check: Any) -> None:
    rule = "  - {tool: shop.get_order, effect: read_only}\n"
    (folder / "policies" / "shop.yaml").write_text(POLICY.replace(rule, rule + "  - {tool: shop.gone, effect: read_only}\n"))
    before, after = check("--json"), check("--upstreams", "--json")
    assert (before.code, after.code) == (0, 0)
    new = set(places(after.json["warnings"])) - set(places(before.json["warnings"]))
    assert "policies/shop.yaml:7:12" in new


def test_upstreams_that_are_not_asked_because_of_mistakes_are_said_to_be_so(folder: Path, check: Any) -> None:
    text = (folder / "gateway.yaml").read_text()
    line = text[: text.index("upstreams:")].count("\n") + 2
    for right, wrong in (("limits: {open_runs: 3}", "limits: {open_runs: x}"), ("limits: {open_runs: 3}", "notify: {apprise: [x]}")):
        (folder / "gateway.yaml").write_text(text.replace(right, wrong))
        asked, unasked = check("--json"), check("--upstreams", "--json")
        new = [place for place in places(unasked.json["warnings"]) if place not in places(asked.json["warnings"])]
        assert (unasked.code, [place.rpartition(":")[0] for place in new]) == (1, [f"gateway.yaml:{line}"])


def test_an_upstream_that_does_not_answer_is_a_warning_and_no_rule_is_blamed(folder: Path, check: Any) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace("upstreams:\n", "upstreams:\n  gone: {mcp: {command: [/nowhere/at-all]}}\n"))
    (folder / "policies" / "shop.yaml").write_text(POLICY.replace("tools:\n", "tools:\n  - {tool: gone.x, effect: read_only}\n"))
    said = check("--upstreams", "--json")
    assert said.code == 0
    assert [place for place in places(said.json["warnings"]) if place.startswith("gateway.yaml")] == ["gateway.yaml:6:9"]
    assert not [one for one in said.json["warnings"] if "no tool of the upstreams" in one["message"]]


# ---- test ---------------------------------------------------------------------------------------------------------------


def test_passing_cases_are_counted(folder: Path, test: Any) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    said = test()
    assert (said.code, said.out) == (0, "1 case in 1 file: all passed.\n")
    assert test("--json").json == {
        "ok": True, "mistakes": [],
        "cases": [{"where": "policies/shop_test.yaml:4", "name": "an order is read", "passed": True, "wrong": [], "findings": []}],
    }  # fmt: skip


def test_a_failure_is_shown_with_its_place_and_what_was_expected(folder: Path, test: Any) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(WRONG)
    said = test()
    assert said.code == 1
    assert said.lines[0].startswith("policies/shop_test.yaml:4: an order is read")
    assert "expected 'hold', got 'allow'" in said.lines[1]
    assert said.lines[-1] == "1 case in 1 file: 1 failed."
    assert [one["passed"] for one in test("--json").json["cases"]] == [False]


def test_a_file_of_tests_that_cannot_be_used_fails_beside_those_that_can(folder: Path, test: Any) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    (folder / "policies" / "z_test.yaml").write_text("policy: nobody\n")
    said = test("--json")
    assert (said.code, len(said.json["cases"])) == (1, 1)
    assert {one["file"] for one in said.json["mistakes"]} == {"policies/z_test.yaml"}
    text = test()
    assert (text.code, text.lines[-1]) == (1, "1 case in 2 files: 1 passed; 1 file could not be used.")


@pytest.mark.parametrize("path", ["policies", "policies/shop_test.yaml", ".", "gateway.yaml"])
def test_folders_files_and_deployments_can_be_named(folder: Path, test: Any, path: str) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    assert test(path).code == 0


def test_one_file_of_tests_is_run_alone(folder: Path, test: Any) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    (folder / "policies" / "other_test.yaml").write_text(WRONG)
    assert test("policies/shop_test.yaml").code == 0
    assert test().code == 1


def test_tests_need_no_secret(folder: Path, test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    monkeypatch.delenv("GATEWAY_SECRET")
    assert test().code == 0


def test_no_tests_are_no_success(folder: Path, test: Any) -> None:
    said = test()
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)


def test_policies_that_cannot_be_used_are_not_tested(folder: Path, test: Any) -> None:
    (folder / "policies" / "shop_test.yaml").write_text(TESTS)
    (folder / "policies" / "shop.yaml").write_text("{")
    said = test()
    assert (said.code, said.out) == (1, "")
    assert "policies/shop.yaml:2:1: " in said.err


@pytest.mark.parametrize("path", ["nowhere", "nowhere_test.yaml", "policies/shop.yaml"])
def test_what_holds_no_tests_is_said(folder: Path, test: Any, path: str) -> None:
    said = test(path)
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)
