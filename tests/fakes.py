"""Stand-ins with the ports' types, for tests that need to decide what time it is."""

from __future__ import annotations

from gateway.core.model import BudgetLeft


class FakeClock:
    """Both clocks stand still until a test moves them; sleeping moves them too."""

    def __init__(self, now_ms: int = 1_796_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def boot_ms(self) -> int:
        return self.now

    async def sleep(self, ms: int) -> None:
        self.now += ms


def budget(**changes: object) -> BudgetLeft:
    """A budget with something left of everything."""
    left = {
        "turns_left": 5, "final_turn": False, "tool_calls_left": 12, "tokens_left": 9000, "cost_usd_left": 1.25,
        "deadline_at": 1_796_000_090_000, "seconds_left": 88.5, "warning": None,
    }  # fmt: skip
    return BudgetLeft(**{**left, **changes})  # type: ignore[arg-type]
