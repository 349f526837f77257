"""The bench on one engine: every variant against others' way of doing the same, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from specchat.assemble import Engine
from specchat.bench.compare import Row, compare
from specchat.bench.contenders import Contender, Transformers, ours
from specchat.bench.llama_cpp import Llama, find_llama
from specchat.chat.prompt import extend
from specchat.chat.request import Request
from specchat.drafters.combined import Copying
from specchat.drafters.draft_model import DraftModel
from specchat.drafters.prompt_lookup import Lookup
from specchat.drafters.suffix import Suffix
from specchat.engine.drafter import Drafter
from specchat.models.load import find_model

LOOKUP_TOKENS = 10  # what transformers' documentation proposes
STORED = {torch.float32: "f32", torch.bfloat16: "bf16"}  # as llama.cpp calls it
OF_LLAMA = "llama.cpp"


@dataclass(frozen=True)
class Bench:
    """What is measured: an engine, prompts as tokens, and the longest answer. `only` keeps rows whose name has it.

    Where `file_in` says which tokens of a prompt are a file that its answer rewrites, an edit is measured too.
    """

    engine: Engine
    prompts: tuple[list[int], ...]
    limit: int
    only: str = ""
    file_in: Callable[[list[int]], list[int]] | None = None

    def rows(self) -> Iterator[Row]:
        """Plain against `generate`, copying against its prompt lookup, draft against its assistant; and ours."""
        for name, pair in self._pairs().items():
            if self.only in name:
                first, second = pair()
                yield Row(name, tuple(compare(first, second, self.prompts, self.limit)))

    @property
    def kind(self) -> str:
        """How llama.cpp stores weights that are held as ours are; in 8 bits where ours are smaller than floats."""
        voice = self.engine.voice
        return "q8_0" if voice.profile.models.weights != "float" else STORED[voice.target.pool.layout.dtype]

    def _pairs(self) -> dict[str, Callable[[], tuple[Contender, Contender]]]:
        plain, looking = self._ours(lambda _: Drafter()), self._ours(lambda _: Lookup())
        copying = self._ours(lambda _: Copying(Suffix()))
        pairs: dict[str, Callable[[], tuple[Contender, Contender]]] = {
            "plain / generate": lambda: (plain, self._theirs.generate()),
            "lookup / prompt_lookup_num_tokens": lambda: (looking, self._looking_up()),
            "suffix / prompt_lookup_num_tokens": lambda: (copying, self._looking_up()),
            "suffix / generate": lambda: (copying, self._theirs.generate()),
            "lookup / our plain": lambda: (looking, plain),
        }
        if self.file_in is not None:
            editing = self._ours(self._editing)
            pairs["edit / prompt_lookup_num_tokens"] = lambda: (editing, self._looking_up())
            pairs["edit / generate"] = lambda: (editing, self._theirs.generate())
        if (draft := self.engine.draft) is not None:
            drafting = self._ours(lambda _: DraftModel(draft))
            pairs["draft / assistant_model"] = lambda: (drafting, self._assisted())
            pairs["draft / our plain"] = lambda: (drafting, plain)
        if (library := find_llama()) is not None:
            kind = self.kind
            pairs[f"plain / {OF_LLAMA} {kind}"] = lambda: (plain, self._in_llama(library, kind))
        return pairs

    @property
    def _folder(self) -> Path:
        return find_model(self.engine.voice.profile.models.target)

    @cached_property
    def _theirs(self) -> Transformers:
        voice = self.engine.voice
        return Transformers.load(self._folder, voice.target.pool.layout.dtype, voice.tokenizer.stop)

    def _looking_up(self) -> Contender:
        return self._theirs.generate(prompt_lookup_num_tokens=LOOKUP_TOKENS)

    def _assisted(self) -> Contender:
        folder = find_model(self.engine.voice.profile.models.draft, "draft")
        assistant = Transformers.load(folder, self.engine.voice.target.pool.layout.dtype, self._theirs.stop).network
        return self._theirs.generate(assistant_model=assistant)

    def _in_llama(self, library: Path, kind: str) -> Contender:
        window = max(map(len, self.prompts)) + self.limit + 1
        return Llama(library, self._folder, kind, self.engine.voice.target.vocabulary, window).answer

    def _editing(self, prompt: list[int]) -> Drafter:
        """Who guesses when a file is edited: the file is known, and where the answer begins."""
        drafter = Copying(Suffix())
        drafter.rewrite(self.file_in(prompt) if self.file_in else [], len(prompt))
        return drafter

    def _ours(self, drafter: Callable[[list[int]], Drafter]) -> Contender:
        voice = self.engine.voice
        return ours(voice.target, drafter, voice.profile.speculation.budget, voice.tokenizer.stop)


def tokens_of(engine: Engine, requests: Iterator[Request], count: int, limit: int) -> tuple[list[int], ...]:
    """The first `count` prompts that leave room for an answer in the window."""
    voice, chosen = engine.voice, list[list[int]]()
    for request in requests:
        ids = extend(voice.tokenizer, voice.profile.prompt.system, (), request).ids
        if len(ids) + limit <= voice.target.window:
            chosen.append(ids)
        if len(chosen) == count:
            break
    return tuple(chosen)


def as_table(rows: list[Row]) -> str:
    """Rows as Markdown: how many times faster the first of the two is."""
    lines = [
        "| ours / theirs | median | lowest | highest | tokens per pass | same text |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row.spread
        lines.append(
            f"| {row.name} | {row.ratio:.2f} | {low:.2f} | {high:.2f} | {row.tokens_per_pass:.2f} "
            f"| {row.equal} of {len(row.pairs)} |"
        )
    return "\n".join(lines)


def threads(count: int) -> None:
    """How many threads torch may use for a pass; 0 leaves it alone."""
    if count:
        torch.set_num_threads(count)
