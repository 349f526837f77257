"""Decodes one answer with the engine."""

from dataclasses import dataclass

import torch

from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.model import Model

DRAFT_BUDGET = 24  # draft tokens per pass


@dataclass(frozen=True)
class GeneratedAnswer:
    tokens: list[int]
    steps: list[Step]


def generate_answer(target: Model, plan: GenerationConfig, prompt: list[int]) -> GeneratedAnswer:
    """Decode an answer with this configuration; its stop token is included."""
    generation = Generation(target, (plan.drafter,))
    try:
        generation.replace_tokens(prompt)
        with torch.inference_mode():
            steps = generation.generate(plan)
        return GeneratedAnswer(generation.tokens[len(prompt) :], steps)
    finally:
        generation.close()
