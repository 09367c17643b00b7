"""The rates service answers what it knows and says what it doesn't."""

from __future__ import annotations

import httpx
import pytest

from gateway.demo.rates import app

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("path", "status", "rate"), [
    ("/rates/EUR", 200, 1.09), ("/rates/GBP?to=EUR", 200, 1.165138), ("/rates/EUR?to=EUR", 200, 1.0),
    ("/rates/XXX", 404, None), ("/rates/EUR?to=XXX", 404, None),
])  # fmt: skip
async def test_a_rate_is_that_of_one_unit(path: str, status: int, rate: float | None) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://rates") as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.json().get("rate")) == (status, rate)
