"""result: what may be recorded and seen of an answer; nothing that was taken out stays in beside it."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.core.assess import review
from gateway.core.guards.guard import Placed
from gateway.core.guards.result import DEFAULT_MAX_BYTES, NO_CAP, REDACTED, RESULTS, ResultGuard, kept_aside, linked, structured
from gateway.core.model import Outcome
from gateway.core.policy import MOST_READ
from tests.core.guards.given import Written, rule

CARD = "4111111111111111"


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def guard(*redact: tuple[str, ...], max_bytes: int = 1000, shape: Any = None) -> ResultGuard:
    return ResultGuard(max_bytes, redact, shape)


def seen(result: dict[str, Any], *redact: tuple[str, ...]) -> dict[str, Any]:
    after, finding = guard(*redact).review(result)
    assert finding is None
    return dict(after)


# ---- redaction ----------------------------------------------------------------------------------------------------------


def test_what_a_pointer_names_is_taken_out_of_the_data_and_of_the_text_that_repeats_it() -> None:
    value = {"card": {"number": CARD, "type": "visa"}}
    after = seen({"structuredContent": value, "content": [text(json.dumps(value, indent=2))]}, ("card", "number"))
    clean = {"card": {"number": REDACTED, "type": "visa"}}
    assert (after["structuredContent"], json.loads(after["content"][0]["text"])) == (clean, clean)


def test_a_sole_text_that_is_a_json_document_is_redacted() -> None:
    after = seen({"content": [text(json.dumps({"card": CARD}))], "isError": False, "_meta": {"x": 1}}, ("card",))
    assert json.loads(after["content"][0]["text"]) == {"card": REDACTED}
    assert (after["isError"], "_meta" in after, "structuredContent" in after) == (False, False, False)


def test_every_json_text_is_redacted_however_many_there_are() -> None:
    after = seen({"content": [text(json.dumps({"card": CARD})), text(json.dumps([{"card": CARD}]))]}, ("card",), ("*", "card"))
    assert CARD not in json.dumps(after)


def test_words_that_repeat_what_was_taken_out_lose_it_too() -> None:
    value = {"card": {"number": int(CARD), "codes": ["secret", True, None], "cvc": "123"}}
    after = seen({"structuredContent": value, "content": [text(f"Card {CARD} (123) says secret, True")]}, ("card",))
    assert after["content"][0]["text"] == f"Card {REDACTED} (123) says {REDACTED}, True"


def test_stars_stand_for_every_member_and_numbers_for_items() -> None:
    value = {"orders": [{"card": "one1"}, {"card": "two2"}], "other": {"card": "three"}}
    assert seen({"structuredContent": value}, ("orders", "*", "card"))["structuredContent"]["orders"] == [{"card": REDACTED}] * 2
    assert seen({"structuredContent": value}, ("orders", "1", "card"))["structuredContent"]["orders"] == [{"card": "one1"}, {"card": REDACTED}]
    assert seen({"structuredContent": value}, ("*", "card"))["structuredContent"]["other"] == {"card": REDACTED}


def test_a_pointer_that_leads_nowhere_changes_nothing_that_can_be_looked_into() -> None:
    result = {"structuredContent": {"card": 5}, "content": [text("5 cards")]}
    assert seen(result, ("card", "number")) == result
    assert seen({"content": [text("no json")]}, ("card",)) == {"content": [text("no json")]}


@pytest.mark.parametrize("content", [None, 5, "text", {"type": "text"}, [None, 5, {"type": "text"}, {"type": "text", "text": 5}]])
def test_whatever_an_upstream_sends_as_content_is_survived(content: Any) -> None:
    after = seen({"content": content}, ("card",))["content"]
    assert after == [text(REDACTED)] * (len(content) if isinstance(content, list) else 0)
    assert structured({"content": content}) is None


def test_what_cannot_be_looked_into_does_not_pass_where_something_is_taken_out() -> None:
    blob = {"type": "resource", "resource": {"uri": "x:y", "blob": "eyJjYXJkIjoiNDExMSJ9"}}
    after = seen({"structuredContent": {"card": CARD}, "content": [blob, {"type": "image", "data": "…"}], "_meta": {"card": CARD}}, ("card",))
    assert after == {"structuredContent": {"card": REDACTED}, "content": [text(REDACTED), text(REDACTED)]}


def test_a_byte_order_mark_hides_nothing() -> None:
    assert CARD not in json.dumps(seen({"content": [text("\ufeff" + json.dumps({"card": CARD}))]}, ("card",)))


def test_a_result_over_the_cap_is_dropped_before_anything_is_looked_for_in_it() -> None:
    result = {"structuredContent": {"card": [str(n) for n in range(5000)]}, "content": [text("x" * 100_000)]}
    after, finding = ResultGuard(1000, (("card",),), None).review(result)
    assert finding is not None
    assert finding.reason == "result.too_large"
    assert "structuredContent" not in after


def test_a_text_beside_more_secrets_than_can_be_looked_for_is_dropped_whole() -> None:
    result = {"structuredContent": {"card": [f"secret{n}" for n in range(300)]}, "content": [text("among them secret299")]}
    after, finding = ResultGuard(100_000, (("card",),), None).review(result)
    assert (finding, after["content"]) == (None, [text(REDACTED)])


# ---- what is seen of a result -------------------------------------------------------------------------------------------


def test_conditions_see_structured_content_else_the_sole_text_as_json() -> None:
    assert structured({"structuredContent": {"a": 1}, "content": [text("{}")]}) == {"a": 1}
    assert structured({"content": [text('{"a": 1}'), {"type": "image"}]}) == {"a": 1}
    assert structured({"content": [text('{"a": 1}'), text("{}")]}) is None
    assert structured({"content": [text("words")]}) is None
    assert structured({"content": [text("[" * 200_000)]}) is None
    assert structured({}) is None


# ---- schema and size ----------------------------------------------------------------------------------------------------


def is_object(value: Any) -> tuple[str, ...]:
    return () if isinstance(value, dict) else ("it is no object",)


def test_a_result_that_breaks_its_schema_is_replaced_by_a_note_that_the_tool_ran() -> None:
    after, finding = guard(shape=is_object).review({"structuredContent": [CARD]})
    assert finding is not None
    assert (finding.reason, after["isError"], CARD in json.dumps(after)) == ("result.invalid", True, False)
    assert guard(shape=is_object).review({"structuredContent": {}})[1] is None


def test_an_answer_that_is_an_error_need_not_keep_the_schema() -> None:
    assert guard(shape=is_object).review({"content": [text("no")], "isError": True})[1] is None


@pytest.mark.parametrize("value", ["x" * 2000, ["x"] * 2000, {str(n): n for n in range(500)}, [[1.5] * 500, [None] * 500]])
def test_a_result_over_the_cap_is_dropped_and_said_to_be(value: Any) -> None:
    after, finding = guard().review({"structuredContent": value})
    assert finding is not None
    assert (finding.reason, "structuredContent" in after) == ("result.too_large", False)


def test_characters_count_as_bytes() -> None:
    assert guard(max_bytes=100).review({"content": [text("x" * 50)]})[1] is None
    assert guard(max_bytes=100).review({"content": [text("€" * 50)]})[1] is not None


# ---- in a rule ----------------------------------------------------------------------------------------------------------

LEAK = Outcome("succeeded", result={"structuredContent": {"card": CARD}}, answered=True)


def reviewed(one: ResultGuard, **placed: bool) -> Outcome:
    return review(replace(rule(), guards=(Placed(one, "p.yaml:9", **placed),)), LEAK)


def test_the_record_holds_only_what_the_agent_gets() -> None:
    assert reviewed(guard(("card",))).result == {"structuredContent": {"card": REDACTED}}


def test_a_call_whose_result_cannot_be_used_has_failed_though_it_happened() -> None:
    outcome = reviewed(guard(shape=lambda value: ("no",)))
    assert (outcome.state, outcome.reason, outcome.answered, outcome.whole) == ("failed", "result.invalid", True, None)


def test_a_result_that_is_only_too_long_is_kept_whole_beside_a_note_of_how_it_begins() -> None:
    long = msgspec.structs.replace(LEAK, result={"content": [text("once upon a time " * 1000)], "isError": False})
    outcome = review(replace(rule(), guards=(Placed(guard(max_bytes=5), "p.yaml:9"),)), long)
    assert (outcome.state, outcome.reason, outcome.whole) == ("succeeded", "result.too_large", long.result)
    assert outcome.result is not None
    words = outcome.result["content"][0]["text"]
    assert ("once upon a time" in words, len(words) < 1_200, outcome.result["isError"]) == (True, True, False)


@pytest.mark.parametrize("other", [guard(("card",)), guard(shape=lambda value: ()), guard(("card",), max_bytes=5)])
def test_what_a_guard_must_look_into_is_not_kept_when_it_is_too_long(other: ResultGuard) -> None:
    placed = (Placed(guard(max_bytes=5), "p.yaml:9"), Placed(other, "ceiling.yaml:9"))
    for order in (placed, placed[::-1]):
        outcome = review(replace(rule(), guards=order), LEAK)
        assert (outcome.state, outcome.reason, outcome.whole, CARD in json.dumps(outcome.result)) == ("failed", "result.too_large", None, False)


def test_the_note_leads_to_the_whole_result() -> None:
    note = linked(kept_aside({"content": []}), "run_1", "call_1", "abc", 7)
    link = note["content"][-1]
    assert (link["type"], link["uri"], link["size"], "/v1/runs/run_1/results/abc" in link["description"]) == (
        "resource_link", RESULTS + "abc", 7, True,
    )  # fmt: skip


@pytest.mark.parametrize(("cap", "read"), [(5, 1 << 20), (1 << 20, 4 << 20), (NO_CAP, MOST_READ)])
def test_of_an_answer_no_more_is_read_than_can_be_kept(cap: int, read: int) -> None:
    assert replace(rule(), guards=(Placed(guard(max_bytes=cap), "p.yaml:9"),)).read_bytes == read
    assert replace(rule(), guards=(Placed(guard(max_bytes=cap), "p.yaml:9", shadow=True),)).read_bytes == MOST_READ


def test_in_shadow_or_in_a_skipped_rule_it_changes_nothing() -> None:
    assert reviewed(guard(("card",)), shadow=True) == LEAK
    assert reviewed(guard(("card",)), shadow=True, skipped=True) == LEAK


def test_it_is_built_from_the_rule_and_the_defaults() -> None:
    assert ResultGuard.build(Written().section) == ResultGuard(DEFAULT_MAX_BYTES, (), None)
    assert ResultGuard.build(Written(defaults={"result": {"max_bytes": "1KiB"}}).section) == ResultGuard(1024, (), None)
    own = {"result": {"max_bytes": 9, "redact": ["/a~1b/~0c"], "schema": {"is": is_object}}}
    assert ResultGuard.build(Written(rule=own, defaults={"result": {"max_bytes": "1KiB"}}).section) == ResultGuard(9, (("a/b", "~c"),), is_object)


def test_a_ceiling_has_it_only_where_it_says_so() -> None:
    assert ResultGuard.build(Written(kind="ceiling").section) is None
    assert ResultGuard.build(Written(kind="ceiling", defaults={"result": {"max_bytes": 5}}).section) == ResultGuard(5, (), None)
    assert ResultGuard.build(Written(kind="ceiling", rule={"result": {"redact": ["/a"]}}).section) == ResultGuard(NO_CAP, (("a",),), None)
