"""Our engine against others on the same weights: transformers' `generate`, its prompt lookup and assistant, llama.cpp.

Works on prompts as tokens, greedy, so that it also runs on random weights without a tokenizer. Every prompt runs ours,
theirs, theirs, ours: a machine that slows down slows both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from specchat.chat.request import Request
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.hub.find_models import find_model
from specchat.loading.load_engine import Engine
from specchat.weights.gguf.gguf_conversion import safetensors_folder
from specchat.weights.gguf.gguf_sources import local_gguf
from specchat_bench.columns import markdown_table
from specchat_bench.latency import time_answer
from specchat_bench.llama_cpp import GenerateFunction, LlamaCppLimits, LlamaCppModel, TimedRun, find_library_folder

PROMPT_LOOKUP_TOKENS = 10  # the value in the documentation of transformers
GGUF_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}  # the names of llama.cpp
LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True)
class PairedRuns:
    """Ours against theirs on one prompt: each ran twice, ours first and last."""

    ours: tuple[TimedRun, TimedRun]
    theirs: tuple[TimedRun, TimedRun]

    @property
    def speedup(self) -> float:
        """Seconds per token, theirs by ours; above 1 ours is faster."""
        return _seconds_per_token(self.theirs) / _seconds_per_token(self.ours)

    @property
    def is_identical(self) -> bool:
        return all(run.tokens == self.ours[0].tokens for run in (*self.ours, *self.theirs))


@dataclass(frozen=True)
class Comparison:
    name: str
    pairs: tuple[PairedRuns, ...]

    @property
    def median_speedup(self) -> float:
        return median(pair.speedup for pair in self.pairs)

    @property
    def speedup_range(self) -> tuple[float, float]:
        ratios = [pair.speedup for pair in self.pairs]
        return min(ratios), max(ratios)

    @property
    def tokens_per_step(self) -> float:
        runs = [pair.ours[0] for pair in self.pairs]
        return sum(len(run.tokens) for run in runs) / max(sum(run.target_passes for run in runs), 1)

    @property
    def identical_prompts(self) -> int:
        return sum(pair.is_identical for pair in self.pairs)


def compare(
    ours: GenerateFunction, theirs: GenerateFunction, prompts: Iterable[list[int]], max_tokens: int
) -> Iterator[PairedRuns]:
    """Run ours, theirs, theirs, ours on every prompt; before that, the first prompt once to warm both up."""
    for index, prompt in enumerate(prompts):
        if index == 0:
            for each in (ours, theirs):
                each(prompt, max_tokens)
        yield run_pair(ours, theirs, prompt, max_tokens)


def run_pair(ours: GenerateFunction, theirs: GenerateFunction, prompt: list[int], max_tokens: int) -> PairedRuns:
    first, other, again, last = (each(prompt, max_tokens) for each in (ours, theirs, theirs, ours))
    return PairedRuns((first, last), (other, again))


def _seconds_per_token(runs: tuple[TimedRun, TimedRun]) -> float:
    return sum(run.seconds for run in runs) / max(sum(len(run.tokens) for run in runs), 1)


@dataclass(frozen=True)
class PeerBench:
    """The comparisons of one engine. `name_filter` keeps those whose name contains it.

    With `requests`, those that the prompts are built from, `auto` is compared: it chooses by the kind of a request.
    """

    engine: Engine
    prompts: tuple[list[int], ...]
    max_tokens: int
    name_filter: str = ""
    requests: tuple[Request, ...] = ()

    def rows(self, progress: Callable[[str], None]) -> Iterator[Comparison]:
        for name, pair in self._comparisons().items():
            if self.name_filter in name:
                first, second = pair()
                row = Comparison(name, tuple(compare(first, second, self.prompts, self.max_tokens)))
                progress(f"{row.name}: {row.median_speedup:.2f}")
                yield row

    @property
    def gguf_type(self) -> str:
        """The GGUF type that is nearest to the format of our weights."""
        models = self.engine.models
        is_float = models.profile.models.weights in ("auto", "float")
        return GGUF_TYPES[models.target.pool.layout.dtype] if is_float else "q8_0"

    def _comparisons(self) -> dict[str, Callable[[], tuple[GenerateFunction, GenerateFunction]]]:
        plain, lookup, suffix = map(self._specchat, (Drafter, PromptLookup, SuffixDecoding))
        pairs: dict[str, Callable[[], tuple[GenerateFunction, GenerateFunction]]] = {
            "plain / generate": lambda: (plain, self._transformers.generate()),
            "lookup / prompt_lookup_num_tokens": lambda: (lookup, self._transformers_prompt_lookup()),
            "suffix / prompt_lookup_num_tokens": lambda: (suffix, self._transformers_prompt_lookup()),
            "suffix / generate": lambda: (suffix, self._transformers.generate()),
            "lookup / our plain": lambda: (lookup, plain),
        }
        if self.requests:
            pairs["auto / generate"] = lambda: (self._auto, self._transformers.generate())
        if (draft := self.engine.resources.draft_model) is not None:
            draft_model = self._specchat(lambda: DraftModelDrafter(draft))
            pairs["draft / assistant_model"] = lambda: (draft_model, self._transformers_assistant())
            pairs["draft / our plain"] = lambda: (draft_model, plain)
        if (library := find_library_folder()) is not None:
            file, kind = local_gguf(self.engine.models.profile.models.target), self.gguf_type
            if file is None:
                pairs[f"plain / {LLAMA_CPP} {kind}"] = lambda: (plain, self._llama_cpp(library, kind))
            else:
                pairs[f"plain / {LLAMA_CPP} {file.name}"] = lambda: (plain, self._llama_cpp_of_file(library, file))
                if self.requests:
                    pairs[f"auto / {LLAMA_CPP} {file.name}"] = lambda: (
                        self._auto, self._llama_cpp_of_file(library, file)
                    )  # fmt: skip
        return pairs

    @property
    def _target_folder(self) -> Path:
        return find_model(self.engine.models.profile.models.target)

    @cached_property
    def _transformers(self) -> TransformersModel:
        models = self.engine.models
        folder = safetensors_folder(self._target_folder)
        return TransformersModel.load(folder, models.target.pool.layout.dtype, models.tokenizer.stop_token_ids)

    def _transformers_prompt_lookup(self) -> GenerateFunction:
        return self._transformers.generate(prompt_lookup_num_tokens=PROMPT_LOOKUP_TOKENS)

    def _transformers_assistant(self) -> GenerateFunction:
        folder = safetensors_folder(find_model(self.engine.models.profile.models.draft, "draft"))
        assistant = TransformersModel.load(
            folder, self.engine.models.target.pool.layout.dtype, self._transformers.stop_token_ids
        ).model
        return self._transformers.generate(assistant_model=assistant)

    def _llama_cpp(self, library: Path, gguf_type: str) -> GenerateFunction:
        return LlamaCppModel.from_folder(library, self._target_folder, gguf_type, self._llama_cpp_limits).generate

    def _llama_cpp_of_file(self, library: Path, file: Path) -> GenerateFunction:
        return LlamaCppModel(library, file, self._llama_cpp_limits).generate

    @property
    def _llama_cpp_limits(self) -> LlamaCppLimits:
        models = self.engine.models
        window = max(map(len, self.prompts)) + self.max_tokens + 1
        return LlamaCppLimits(models.target.vocab_size, window, models.tokenizer.stop_token_ids)

    def _auto(self, prompt: list[int], max_tokens: int) -> TimedRun:
        """A conversation of its own, from the request to the last token, so templates and tokenizing count."""
        request = self.requests[self.prompts.index(prompt)]
        profile = self.engine.models.profile.override({"limits.repeats": 0})  # the others end no loop either
        started_at = perf_counter()
        with closing(self.engine.create_session(profile=profile)) as session:
            answer = time_answer(session.ask(replace(request, temperature=0.0, max_tokens=max_tokens)))
        tokens = [token.token_id for step in answer.steps for token in step.committed_tokens]
        return TimedRun(tokens, answer.totals.steps, perf_counter() - started_at)

    def _specchat(self, make_drafter: Callable[[], Drafter]) -> GenerateFunction:
        models = self.engine.models
        return specchat_contender(
            models.target, make_drafter, models.profile.speculation.budget, models.tokenizer.stop_token_ids
        )


def cut_or_repeat(tokens: list[int], count: int) -> list[int]:
    """The first `count` tokens of a prompt, which starts again where it is too short."""
    return (tokens * -(-count // len(tokens)))[:count]


def specchat_contender(
    target: Model, make_drafter: Callable[[], Drafter], budget: int, stop_token_ids: frozenset[int]
) -> GenerateFunction:
    """Our engine, greedy, with a new KV cache and a new drafter for every prompt."""

    def answer(prompt: list[int], max_tokens: int) -> TimedRun:
        started_at, drafter = perf_counter(), make_drafter()
        generation = Generation(target, (drafter,))
        generation.replace_tokens(prompt)
        steps = generation.generate(GenerationConfig(drafter, Sampler(), budget, max_tokens, stop_token_ids))
        seconds = perf_counter() - started_at
        generation.close()
        return TimedRun(generation.tokens[len(prompt) :], len(steps), seconds)

    return answer


@dataclass(frozen=True)
class TransformersModel:
    model: Any
    stop_token_ids: frozenset[int]

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, stop_token_ids: frozenset[int]) -> TransformersModel:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
        return cls(network, stop_token_ids)

    def generate(self, **generate_options: Any) -> GenerateFunction:
        @torch.inference_mode()
        def answer(prompt: list[int], max_tokens: int) -> TimedRun:
            ids, started_at = torch.tensor([prompt]), perf_counter()
            out = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_tokens,
                eos_token_id=sorted(self.stop_token_ids), pad_token_id=0, **generate_options,
            )  # fmt: skip
            return TimedRun(out[0, len(prompt) :].tolist(), 0, perf_counter() - started_at)

        return answer


def as_table(rows: Iterable[Comparison]) -> str:
    """How many times faster the first of the two is, as Markdown."""
    header = ["ours / theirs", "median", "lowest", "highest", "tokens/step", "identical"]
    return markdown_table(header, map(_cells, rows))


def _cells(row: Comparison) -> list[str]:
    low, high = row.speedup_range
    ratios = [f"{ratio:.2f}" for ratio in (row.median_speedup, low, high)]
    return [row.name, *ratios, f"{row.tokens_per_step:.2f}", f"{row.identical_prompts} of {len(row.pairs)}"]
