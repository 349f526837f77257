"""The bench on one engine: every variant against transformers' own way of doing the same, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from specchat.assemble import Engine
from specchat.bench.compare import Row, compare
from specchat.bench.contenders import Contender, Transformers, ours
from specchat.chat.prompt import extend
from specchat.chat.request import Request
from specchat.drafters.draft_model import DraftModel
from specchat.drafters.lookup import Lookup
from specchat.engine.drafter import Drafter
from specchat.models.load import find_model

LOOKUP_TOKENS = 10  # what transformers' documentation proposes


@dataclass(frozen=True)
class Bench:
    """What is measured: an engine, prompts as tokens, and the longest answer."""

    engine: Engine
    prompts: tuple[list[int], ...]
    limit: int

    def rows(self) -> Iterator[Row]:
        """Plain against `generate`, lookup against its prompt lookup, draft against its assistant; and ours."""
        voice, draft = self.engine.voice, self.engine.draft
        dtype, stop, models = voice.target.pool.layout.dtype, voice.tokenizer.stop, voice.profile.models
        theirs = Transformers.load(find_model(models.target), dtype, stop)
        plain = self._ours(Drafter)
        looking = self._ours(Lookup)
        yield self._row("plain / generate", plain, theirs.generate())
        peer = theirs.generate(prompt_lookup_num_tokens=LOOKUP_TOKENS)
        yield self._row("lookup / prompt_lookup_num_tokens", looking, peer)
        yield self._row("lookup / our plain", looking, plain)
        if draft is not None:
            assistant = Transformers.load(find_model(models.draft, "draft"), dtype, stop).network
            drafting = self._ours(lambda: DraftModel(draft))
            yield self._row("draft / assistant_model", drafting, theirs.generate(assistant_model=assistant))
            yield self._row("draft / our plain", drafting, plain)

    def _ours(self, drafter: Callable[[], Drafter]) -> Contender:
        voice = self.engine.voice
        return ours(voice.target, drafter, voice.profile.speculation.budget, voice.tokenizer.stop)

    def _row(self, name: str, first: Contender, second: Contender) -> Row:
        return Row(name, tuple(compare(first, second, self.prompts, self.limit)))


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
