"""The result of one timed generation, and the type of a function that makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class TimedRun:
    """One answer: its tokens, the passes of the target (0 when unknown), and the seconds from prompt to end."""

    tokens: list[int]
    target_passes: int
    seconds: float


GenerateFunction = Callable[[list[int], int], TimedRun]  # prompt, most tokens of the answer
