"""Who is measured: our engine with each drafter, and transformers' `generate` on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler


@dataclass(frozen=True)
class TimedRun:
    """One answer: its tokens, the passes of the target (0 when unknown), and the seconds from prompt to end."""

    tokens: list[int]
    target_passes: int
    seconds: float


GenerateFunction = Callable[[list[int], int], TimedRun]  # prompt, most tokens of the answer


def specchat_contender(
    target: Model, make_drafter: Callable[[list[int]], Drafter], budget: int, stop_token_ids: frozenset[int]
) -> GenerateFunction:
    """Our engine, greedy, with a fresh cache and a fresh drafter for every prompt, which it is told."""

    def answer(prompt: list[int], limit: int) -> TimedRun:
        begun, guesser = perf_counter(), make_drafter(prompt)
        writing = Generation(target, (guesser,))
        writing.replace_tokens(prompt)
        with target.pool.acquire_slot(writing.cache, writing.rows_needed(limit)):
            for _known in writing.prefill():
                pass
            steps = list(writing.decode(GenerationConfig(guesser, Sampler(), budget, limit, stop_token_ids)))
        seconds = perf_counter() - begun
        writing.close()
        return TimedRun(writing.tokens[len(prompt) :], len(steps), seconds)

    return answer


@dataclass(frozen=True)
class TransformersModel:
    """The same weights in transformers."""

    model: Any
    stop_token_ids: frozenset[int]

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, stop_token_ids: frozenset[int]) -> TransformersModel:
        """The model of a folder, as `from_pretrained` makes it."""
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
        return cls(network, stop_token_ids)

    def generate(self, **generate_options: Any) -> GenerateFunction:
        """`generate` with these arguments, greedy."""

        @torch.inference_mode()
        def answer(prompt: list[int], limit: int) -> TimedRun:
            ids, begun = torch.tensor([prompt]), perf_counter()
            out = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=limit,
                eos_token_id=sorted(self.stop_token_ids), pad_token_id=0, **generate_options,
            )  # fmt: skip
            return TimedRun(out[0, len(prompt) :].tolist(), 0, perf_counter() - begun)

        return answer
