"""Penalties on tokens that the text has already: what every node of a tree loses for the text and for its own path.
The biases of single tokens, which a request may give, go with them.

Sampling and drafting use this one function, so that drafts are ranked by the rules that the target will sample by. A
text has few of the tokens of a vocabulary, and only their columns are read and written. Knows logits and tokens; knows
no temperature, no noise and no drafter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device import copy_to_device


class SeenTokens:
    """The tokens that occur in the text so far, for the repetition penalty, and those of the answer alone, counted."""

    def __init__(self, prompt: list[int], vocab_size: int, device: torch.device) -> None:
        self.token_ids = dict.fromkeys(prompt)  # each once
        self.counts = torch.zeros(vocab_size, device=device)  # in the answer, whole numbers [V]
        self._on_device: Tensor | None = None

    def extend(self, tokens: list[int]) -> None:
        """Add tokens of the answer."""
        self.token_ids.update(dict.fromkeys(tokens))
        self._on_device = None
        self.counts.index_put_((copy_to_device(tokens, self.counts.device),), self.counts.new_ones(()), accumulate=True)

    def ids_on_device(self) -> Tensor:
        """The tokens as a tensor; it is made once for all levels of a tree."""
        if self._on_device is None:
            self._on_device = copy_to_device(list(self.token_ids), self.counts.device)
        return self._on_device

    def copy(self) -> SeenTokens:
        """For those who must not change it."""
        seen = copy(self)
        seen.token_ids, seen.counts = dict(self.token_ids), self.counts.clone()
        return seen


class _PathTokens(NamedTuple):
    """The different draft tokens before each row, and how often each of them is there."""

    rows: list[int]
    token_ids: list[int]
    counts: list[int]


@dataclass(frozen=True)
class Penalties:
    """The repetition penalty of transformers, and then those of OpenAI on the tokens of the answer.

    A token that occurs `count` times in the answer loses `frequency` * `count` + `presence`. Before all of them, some
    tokens gain or lose their `biases`, in the text or not.
    """

    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    biases: tuple[tuple[int, float], ...] = ()  # of different tokens

    def apply(
        self,
        logits: Tensor,
        seen: SeenTokens,
        draft_paths: Sequence[Sequence[int]] | None = None,
        token_ids: Tensor | None = None,
    ) -> None:
        """Penalize logits in place. `token_ids`: of the columns, for a reduced vocabulary. [N, C]

        The draft tokens before a row count as committed: they get their values after those of the text.
        """
        device, path_tokens = logits.device, _path_tokens(draft_paths or ())
        if self.biases:
            biased, biases = (torch.tensor(each) for each in zip(*self.biases, strict=True))
            columns, is_known = _columns_of(copy_to_device(biased, device), logits, token_ids, seen)
            logits[:, columns[is_known]] += copy_to_device(biases.to(logits.dtype), device)[is_known]
        ids = seen.ids_on_device()
        columns, is_known = _columns_of(ids, logits, token_ids, seen)
        text = self._penalized(logits.index_select(1, columns[is_known]).float(), seen.counts[ids[is_known]])
        if not path_tokens.rows:
            logits.index_copy_(1, columns[is_known], text.to(logits.dtype))
            return
        rows, path_ids = (copy_to_device(each, device) for each in (path_tokens.rows, path_tokens.token_ids))
        path_columns, is_in_row = _columns_of(path_ids, logits, token_ids, seen)
        rows, path_ids, path_columns = rows[is_in_row], path_ids[is_in_row], path_columns[is_in_row]
        counts = seen.counts[path_ids] + copy_to_device(path_tokens.counts, device)[is_in_row]
        path = self._penalized(logits[rows, path_columns].float(), counts)
        logits.index_copy_(1, columns[is_known], text.to(logits.dtype))
        logits[rows, path_columns] = path.to(logits.dtype)

    def _penalized(self, logits: Tensor, counts: Tensor) -> Tensor:
        """The logits of tokens that the text has; `counts` in the answer."""
        logits = torch.where(logits < 0, logits * self.repetition, logits / self.repetition)
        return logits - (self.frequency * counts + self.presence * (counts > 0))


def _path_tokens(draft_paths: Sequence[Sequence[int]]) -> _PathTokens:
    found = [(row, token, count) for row, path in enumerate(draft_paths) for token, count in Counter(path).items()]
    return _PathTokens(*(list(each) for each in zip(*found, strict=True))) if found else _PathTokens([], [], [])


def _columns_of(
    ids: Tensor, logits: Tensor, token_ids: Tensor | None, seen: SeenTokens
) -> tuple[Tensor, Tensor | slice]:
    """The columns of tokens, and which of them there are: a draft vocabulary has less than the target's."""
    if token_ids is None:
        return ids, slice(None) if logits.shape[-1] >= len(seen.counts) else ids < logits.shape[-1]
    columns = _all_columns(token_ids, len(seen.counts))[ids]
    return columns, columns >= 0


@lru_cache(maxsize=8)
def _all_columns(token_ids: Tensor, vocab_size: int) -> Tensor:
    """The column of every token in a reduced vocabulary, -1 without one. A tensor is hashed by what it is. [V]"""
    columns = torch.full((vocab_size,), -1, device=token_ids.device)
    columns[token_ids] = torch.arange(len(token_ids), device=token_ids.device)
    return columns
