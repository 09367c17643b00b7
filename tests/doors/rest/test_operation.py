"""Operations are data that fits together."""

import inspect
import re

import pytest

from gateway.doors.rest.door import OPERATIONS
from gateway.doors.rest.operation import Operation


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.perform.__name__)
def test_an_operation_takes_a_body_only_where_it_changes_something(operation: Operation) -> None:
    assert (operation.takes is None) == (operation.method == "GET")
    assert inspect.iscoroutinefunction(operation.perform)
    assert re.fullmatch(r"(/v1)(/\w+|/\{\w+\})+", operation.path)
    assert all(200 <= status < 300 for status in operation.answers)


def test_no_two_operations_share_a_place() -> None:
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)
