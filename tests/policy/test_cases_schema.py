"""The schema of policy tests names what answers and verdicts there are, and no more."""

import json

from jsonschema import Draft202012Validator

from gateway.core.model import BudgetLeft
from gateway.policy.cases_schema import BUDGET, CASES_SCHEMA, VERDICTS


def test_it_is_a_json_schema_in_plain_json() -> None:
    Draft202012Validator.check_schema(CASES_SCHEMA)
    assert json.loads(json.dumps(CASES_SCHEMA)) == CASES_SCHEMA


def test_budget_names_what_every_answer_carries() -> None:
    assert set(BUDGET) <= set(BudgetLeft.__struct_fields__)


def test_verdicts_are_those_of_the_glossary() -> None:
    assert VERDICTS == ("allow", "hold", "deny", "replay", "busy", "doubt")
