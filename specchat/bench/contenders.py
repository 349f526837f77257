"""Who is measured: our engine with each drafter, and transformers' `generate` on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from specchat.engine.decode import Plan, Writing
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler


@dataclass(frozen=True)
class Run:
    """One answer: its tokens, the passes of the target (0 when unknown), and the seconds from prompt to end."""

    tokens: list[int]
    passes: int
    seconds: float


Contender = Callable[[list[int], int], Run]  # prompt, most tokens of the answer


def ours(target: Model, drafter: Callable[[list[int]], Drafter], budget: int, stop: frozenset[int]) -> Contender:
    """Our engine, greedy, with a fresh cache and a fresh drafter for every prompt, which it is told."""

    def answer(prompt: list[int], limit: int) -> Run:
        begun, guesser = perf_counter(), drafter(prompt)
        writing = Writing(target, (guesser,))
        writing.revise(prompt)
        with target.pool.seated(writing.cache, writing.rows_for(limit)):
            for _known in writing.read():
                pass
            steps = list(writing.steps(Plan(guesser, Sampler(), budget, limit, stop)))
        seconds = perf_counter() - begun
        writing.close()
        return Run(writing.tokens[len(prompt) :], len(steps), seconds)

    return answer


@dataclass(frozen=True)
class Transformers:
    """The same weights in transformers."""

    network: Any
    stop: frozenset[int]

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, stop: frozenset[int]) -> Transformers:
        """The model of a folder, as `from_pretrained` makes it."""
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
        return cls(network, stop)

    def generate(self, **how: Any) -> Contender:
        """`generate` with these arguments, greedy."""

        @torch.inference_mode()
        def answer(prompt: list[int], limit: int) -> Run:
            ids, begun = torch.tensor([prompt]), perf_counter()
            out = self.network.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=limit,
                eos_token_id=sorted(self.stop), pad_token_id=0, **how,
            )  # fmt: skip
            return Run(out[0, len(prompt) :].tolist(), 0, perf_counter() - begun)

        return answer
