"""One answer of a model, decoded by the engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.model import Model

DRAFT_BUDGET = 24  # guesses in one pass


@dataclass(frozen=True)
class GeneratedAnswer:
    """An answer, and the passes that it took."""

    tokens: list[int]
    steps: list[Step]


def generate_answer(target: Model, plan: GenerationConfig, prompt: list[int]) -> GeneratedAnswer:
    """An answer as planned, with its end mark."""
    writing = Generation(target, (plan.drafter,))
    try:
        writing.replace_tokens(prompt)
        with torch.inference_mode(), target.pool.acquire_slot(writing.cache, writing.rows_needed(plan.max_new_tokens)):
            for _known in writing.prefill():
                pass
            steps = list(writing.decode(plan))
        return GeneratedAnswer(writing.tokens[len(prompt) :], steps)
    finally:
        writing.close()
