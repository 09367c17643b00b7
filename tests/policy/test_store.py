"""The folder of policies: all or nothing, the first match governs, and old sets come back from their texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.model import Principal
from gateway.policy.store import LoadedPolicies, load_policies
from gateway.ports import Policies, PolicyError
from tests.policy.writing import HEAD, ceiling, policy

RULE = "- {tool: a.b, effect: read_only}"
BOT = Principal("agent:bot", frozenset({"support"}))

Write = Callable[..., LoadedPolicies]


def named(name: str, more: str = "") -> bytes:
    return policy(RULE, HEAD.replace("name: p", f"name: {name}") + more)


@pytest.fixture
def load(tmp_path: Path) -> Write:
    def write(**files: bytes) -> LoadedPolicies:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_bytes(text)
        return load_policies(tmp_path)

    return write


def refused(load: Write, **files: bytes) -> list[str]:
    with pytest.raises(PolicyError) as error:
        load(**files)
    return str(error.value).split("\n")


# ---- loading ------------------------------------------------------------------------------------------------------------


def test_every_yaml_file_is_a_policy_except_tests(load: Write, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no policy")
    loaded = load(b=named("one"), a=named("two"), c=ceiling(RULE), a_test=b"no policy: [")
    assert loaded.files == ("a.yaml", "b.yaml", "c.yaml")
    assert ([p.name for p in loaded.policies], [p.name for p in loaded.ceilings]) == (["one", "two"], ["c"])


def test_mistakes_of_all_files_come_together_in_name_order(load: Write) -> None:
    lines = refused(load, b=b"version: 3\n", a=named("Bad"), c=named("fine"))
    assert [line.split(":")[0] for line in lines] == sorted(line.split(":")[0] for line in lines)
    assert {line.split(":")[0] for line in lines} == {"a.yaml", "b.yaml"}


def test_a_name_stands_in_one_file_only(load: Write) -> None:
    (line,) = refused(load, a=named("same"), b=named("same"))
    assert line.startswith("b.yaml:2:7: ")
    assert "a.yaml" in line


def test_a_policy_and_a_ceiling_do_not_share_a_name_either(load: Write) -> None:
    assert len(refused(load, a=named("c"), b=ceiling(RULE))) == 1


def test_without_any_policy_nothing_starts(load: Write, tmp_path: Path) -> None:
    assert refused(load)
    assert refused(load, c=ceiling(RULE))
    with pytest.raises(PolicyError, match="nowhere"):
        load_policies(tmp_path / "nowhere")


def test_that_there_are_only_ceilings_is_not_said_while_a_policy_is_merely_broken(load: Write) -> None:
    assert {line.split(":")[0] for line in refused(load, c=ceiling(RULE), p=b"version: 3\n")} == {"p.yaml"}


def test_a_file_that_cannot_be_read_stops_everything(load: Write, tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (line,) = refused(load, a=named("fine"))
    assert line.startswith("folder.yaml:1:1: ")


@pytest.mark.parametrize("name", ["limits.yml", "limits.YAML"])
def test_a_file_that_would_be_left_out_by_its_ending_stops_everything(name: str, load: Write, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ceiling(RULE))
    (line,) = refused(load, a=named("fine"))
    assert line.startswith(f"{name}:1:1: ")


# ---- choosing -----------------------------------------------------------------------------------------------------------


def chosen(loaded: LoadedPolicies, principal: Principal = BOT, task_type: str = "t", name: str | None = None) -> str | None:
    found = loaded.choose(principal, task_type, name)
    return None if found is None else found.policy.name


def test_the_first_match_governs_by_priority_then_name(load: Write) -> None:
    loaded = load(x=named("b"), y=named("a"), z=named("c", "priority: 1\nmatch: {task_types: [t]}\n"))
    assert (chosen(loaded), chosen(loaded, task_type="other")) == ("c", "a")


def test_a_policy_matches_by_principal_group_and_task_type(load: Write) -> None:
    loaded = load(a=named("a", "match: {principals: ['group:support'], task_types: [t]}\n"))
    assert chosen(loaded) == "a"
    assert chosen(loaded, task_type="other") is None
    assert chosen(loaded, Principal("agent:bot")) is None


def test_a_caller_may_name_a_policy_only_if_it_matches(load: Write) -> None:
    loaded = load(a=named("a"), b=named("b"), c=named("c", "match: {principals: ['group:other']}\n"))
    assert [chosen(loaded, name=name) for name in ("b", "c", "none")] == ["b", None, None]


def test_a_ceiling_governs_nobody_by_itself_but_stands_over_all_it_matches(load: Write) -> None:
    loaded = load(a=named("a"), c=ceiling(RULE, "match: {principals: ['group:support']}\n"))
    assert chosen(loaded, name="c") is None
    over, free = loaded.choose(BOT, "t", None), loaded.choose(Principal("agent:x"), "t", None)
    assert over is not None
    assert free is not None
    assert ([one.name for one in over.ceilings], [one.name for one in free.ceilings]) == (["c"], [])
    assert over.digest != free.digest


# ---- sets by digest -----------------------------------------------------------------------------------------------------


def test_the_same_choice_is_the_same_set(load: Write) -> None:
    loaded = load(a=named("a"), c=ceiling(RULE))
    one = loaded.choose(BOT, "t", None)
    assert one is not None
    assert one is loaded.choose(Principal("agent:x"), "u", None)
    assert loaded.by_digest(one.digest) is one
    assert loaded.by_digest("unknown") is None


def test_a_sets_digest_changes_with_any_of_its_texts(load: Write) -> None:
    digests = set()
    for files in ({"a": named("a")}, {"a": named("a", "# a remark\n")}, {"c": ceiling(RULE)}, {"c": ceiling(RULE, "#\n")}):
        found = load(**files).choose(BOT, "t", None)
        assert found is not None
        digests.add(found.digest)
    assert len(digests) == 4


def test_a_set_comes_back_from_its_texts_in_a_gateway_that_has_other_files(load: Write, tmp_path: Path) -> None:
    old = load(a=named("a"), c=ceiling(RULE))
    one = old.choose(BOT, "t", None)
    assert one is not None
    (text,) = old.texts(one.digest).values()
    new = load(a=named("a", "priority: 9\n"), c=ceiling(RULE, "#\n"))
    assert new.by_digest(one.digest) is None
    revived = new.revive(one.digest, text)
    assert (revived.digest, revived.policy.digest, revived.policy.file) == (one.digest, one.policy.digest, "a.yaml")
    assert revived.rule_for("a.b").digest == one.rule_for("a.b").digest
    assert new.by_digest(one.digest) is revived
    assert new.texts(one.digest) == {one.digest: text}


@pytest.mark.parametrize("harm", ["", "{}", "turns: 9 -> turns: 99"])
def test_a_text_that_is_not_what_its_digest_says_revives_nothing(harm: str, load: Write) -> None:
    loaded = load(a=named("a"))
    one = loaded.choose(BOT, "t", None)
    assert one is not None
    text = loaded.texts(one.digest)[one.digest]
    old, _, new = harm.partition(" -> ")
    with pytest.raises(PolicyError):
        loaded.revive(one.digest, text.replace(old, new) if new else harm)


def test_a_set_whose_text_can_no_longer_be_used_revives_nothing(load: Write) -> None:
    loaded = load(a=named("a"))
    text = json.dumps({"ceilings": [], "policy": ["a.yaml", "version: 0\n"]})
    with pytest.raises(PolicyError, match=r"a\.yaml:1:"):
        loaded.revive(hashlib.sha256(text.encode()).hexdigest(), text)


def test_the_texts_of_an_unknown_set_are_a_fault_of_ours(load: Write) -> None:
    with pytest.raises(KeyError):
        load(a=named("a")).texts("unknown")


def test_the_digest_of_the_folder_is_over_names_and_texts(load: Write, tmp_path: Path) -> None:
    one = load(a=named("a"))
    assert one.digest == load().digest
    (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
    assert one.digest != load().digest


def test_each_document_is_there_with_its_text(load: Write) -> None:
    loaded = load(a=named("a"), c=ceiling(RULE))
    assert [(one.name, text.encode()) for one, text in loaded.documents()] == [("a", named("a")), ("c", ceiling(RULE))]


def test_it_is_what_the_engine_asks_for(load: Write) -> None:
    policies: Policies = load(a=named("a"))
    assert policies.choose(BOT, "t", None) is not None
