"""The bench on one engine: every variant against others' way of doing the same, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from specchat.assemble import Engine
from specchat.bench.compare import Comparison, compare
from specchat.bench.contenders import GenerateFunction, TransformersModel, specchat_contender
from specchat.bench.llama_cpp import LlamaCppModel, find_library_folder
from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Request
from specchat.drafters.combined import SuffixAndRealign
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.drafter import Drafter
from specchat.models.load import find_model

PROMPT_LOOKUP_TOKENS = 10  # what transformers' documentation proposes
GGUF_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}  # as llama.cpp calls it
LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True)
class PeerBench:
    """What is measured: an engine, prompts as tokens, and the longest answer. `only` keeps rows whose name has it.

    Where `file_in` says which tokens of a prompt are a file that its answer rewrites, an edit is measured too.
    """

    engine: Engine
    prompts: tuple[list[int], ...]
    max_tokens: int
    name_filter: str = ""
    source_of_prompt: Callable[[list[int]], list[int]] | None = None

    def rows(self) -> Iterator[Comparison]:
        """Plain against `generate`, copying against its prompt lookup, draft against its assistant; and ours."""
        for name, pair in self._comparisons().items():
            if self.name_filter in name:
                first, second = pair()
                yield Comparison(name, tuple(compare(first, second, self.prompts, self.max_tokens)))

    @property
    def gguf_type(self) -> str:
        """How llama.cpp stores weights that are held as ours are; in 8 bits where ours are smaller than floats."""
        voice = self.engine.models
        return "q8_0" if voice.profile.models.weights != "float" else GGUF_TYPES[voice.target.pool.layout.dtype]

    def _comparisons(self) -> dict[str, Callable[[], tuple[GenerateFunction, GenerateFunction]]]:
        plain, looking = self._specchat(lambda _: Drafter()), self._specchat(lambda _: PromptLookup())
        copying = self._specchat(lambda _: SuffixAndRealign(SuffixDecoding()))
        pairs: dict[str, Callable[[], tuple[GenerateFunction, GenerateFunction]]] = {
            "plain / generate": lambda: (plain, self._transformers.generate()),
            "lookup / prompt_lookup_num_tokens": lambda: (looking, self._transformers_prompt_lookup()),
            "suffix / prompt_lookup_num_tokens": lambda: (copying, self._transformers_prompt_lookup()),
            "suffix / generate": lambda: (copying, self._transformers.generate()),
            "lookup / our plain": lambda: (looking, plain),
        }
        if self.source_of_prompt is not None:
            editing = self._specchat(self._edit_drafter)
            pairs["edit / prompt_lookup_num_tokens"] = lambda: (editing, self._transformers_prompt_lookup())
            pairs["edit / generate"] = lambda: (editing, self._transformers.generate())
        if (draft := self.engine.draft_model) is not None:
            drafting = self._specchat(lambda _: DraftModelDrafter(draft))
            pairs["draft / assistant_model"] = lambda: (drafting, self._transformers_assistant())
            pairs["draft / our plain"] = lambda: (drafting, plain)
        if (library := find_library_folder()) is not None:
            kind = self.gguf_type
            pairs[f"plain / {LLAMA_CPP} {kind}"] = lambda: (plain, self._llama_cpp(library, kind))
        return pairs

    @property
    def _target_folder(self) -> Path:
        return find_model(self.engine.models.profile.models.target)

    @cached_property
    def _transformers(self) -> TransformersModel:
        voice = self.engine.models
        return TransformersModel.load(
            self._target_folder, voice.target.pool.layout.dtype, voice.tokenizer.stop_token_ids
        )

    def _transformers_prompt_lookup(self) -> GenerateFunction:
        return self._transformers.generate(prompt_lookup_num_tokens=PROMPT_LOOKUP_TOKENS)

    def _transformers_assistant(self) -> GenerateFunction:
        folder = find_model(self.engine.models.profile.models.draft, "draft")
        assistant = TransformersModel.load(
            folder, self.engine.models.target.pool.layout.dtype, self._transformers.stop_token_ids
        ).model
        return self._transformers.generate(assistant_model=assistant)

    def _llama_cpp(self, library: Path, gguf_type: str) -> GenerateFunction:
        window = max(map(len, self.prompts)) + self.max_tokens + 1
        return LlamaCppModel(
            library, self._target_folder, gguf_type, self.engine.models.target.vocab_size, window
        ).generate

    def _edit_drafter(self, prompt: list[int]) -> Drafter:
        """Who guesses when a file is edited: the file is known, and where the answer begins."""
        drafter = SuffixAndRealign(SuffixDecoding())
        drafter.set_original(self.source_of_prompt(prompt) if self.source_of_prompt else [], len(prompt))
        return drafter

    def _specchat(self, make_drafter: Callable[[list[int]], Drafter]) -> GenerateFunction:
        voice = self.engine.models
        return specchat_contender(
            voice.target, make_drafter, voice.profile.speculation.budget, voice.tokenizer.stop_token_ids
        )


def tokenize_prompts(engine: Engine, requests: Iterator[Request], count: int, max_tokens: int) -> tuple[list[int], ...]:
    """The first `count` prompts that leave room for an answer in the window."""
    voice, chosen = engine.models, list[list[int]]()
    for request in requests:
        ids = build_next_prompt(voice.tokenizer, voice.profile.prompt.system, (), request).token_ids
        if len(ids) + max_tokens <= voice.target.context_window:
            chosen.append(ids)
        if len(chosen) == count:
            break
    return tuple(chosen)


def as_table(rows: list[Comparison]) -> str:
    """Rows as Markdown: how many times faster the first of the two is."""
    lines = [
        "| ours / theirs | median | lowest | highest | tokens per pass | same text |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row.speedup_range
        lines.append(
            f"| {row.name} | {row.median_speedup:.2f} | {low:.2f} | {high:.2f} | {row.tokens_per_step:.2f} "
            f"| {row.identical_prompts} of {len(row.pairs)} |"
        )
    return "\n".join(lines)


def set_thread_count(count: int) -> None:
    """How many threads torch may use for a pass; 0 leaves it alone."""
    if count:
        torch.set_num_threads(count)
