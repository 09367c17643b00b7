"""The engine: one loop for calls, one method for each thing a door may ask, one sweep for what time alone does."""

from gateway.engine.api import (
    AskedCall,
    Caller,
    HoldView,
    ListedTool,
    RunRequest,
    RunView,
    ToolView,
    TurnResult,
    TurnView,
    UsageRequest,
)  # fmt: skip
from gateway.engine.desk import fault, stopping
from gateway.engine.inquiry import Answers
from gateway.engine.sweep import Engine

__all__ = [
    "Answers", "AskedCall", "Caller", "Engine", "HoldView", "ListedTool", "RunRequest", "RunView", "ToolView", "TurnResult", "TurnView",
    "UsageRequest", "fault", "stopping",
]  # fmt: skip
