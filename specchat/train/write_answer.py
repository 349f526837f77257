"""One answer of a model, decoded by the engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specchat.engine.decode import Plan, Step, Writing
from specchat.engine.model import Model

BUDGET = 24  # guesses in one pass


@dataclass(frozen=True)
class Written:
    """An answer, and the passes that it took."""

    tokens: list[int]
    steps: list[Step]


def write_as(target: Model, plan: Plan, prompt: list[int]) -> Written:
    """An answer as planned, with its end mark."""
    writing = Writing(target, (plan.drafter,))
    try:
        writing.revise(prompt)
        with torch.inference_mode(), target.pool.seated(writing.cache, writing.rows_for(plan.limit)):
            for _known in writing.read():
                pass
            steps = list(writing.steps(plan))
        return Written(writing.tokens[len(prompt) :], steps)
    finally:
        writing.close()
