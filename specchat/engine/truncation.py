"""The tokens that top-k, top-p and min-p keep, found without sorting a vocabulary.

Rows of logits are divided into blocks. A pass over a row for the maxima of its blocks takes a small part of the time of
a partial sort, and only the blocks with the highest maxima are looked at then. On a GPU, where a sort costs less than
the host's wait for the number of tokens, whole rows are sorted or masked. The result is exact, and that of a row does
not depend on the other rows: sums of probabilities are sums of integers, which no order of summation changes. Knows no
noise and no token ids, only columns.
"""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BLOCK_SIZE = 32  # columns
SHORTLISTS = (64, 1024)  # tokens that top-p looks at; all of them only in rows where these have too little probability
MASKED_LOGIT = float("-inf")
PROBABILITY_UNIT = 2.0**-40


class KeptTokens(NamedTuple):
    """The kept columns of each row and their logits, which may be shifted by a constant; padded with MASKED_LOGIT."""

    logits: Tensor  # [N, C]
    columns: Tensor  # [N, C]


class Blocks:
    """Rows of logits in blocks, with the maximum of each block."""

    def __init__(self, logits: Tensor) -> None:
        self.logits, self.size = logits, logits.shape[-1]
        if missing := -self.size % BLOCK_SIZE:
            logits = functional.pad(logits, (0, missing), value=MASKED_LOGIT)
        self._values = logits.view(len(logits), -1, BLOCK_SIZE)  # [N, B, BLOCK_SIZE]
        self._maxima = self._values.amax(-1)  # [N, B]

    def maximum(self) -> Tensor:
        """[N, 1]"""
        return self._maxima.amax(-1, keepdim=True)

    def first_highest(self) -> KeptTokens:
        """The highest logit of each row, and the first column that has it. [N, 1]"""
        block = self._maxima.argmax(-1, keepdim=True)
        values = self._values.gather(1, block[..., None].expand(-1, -1, BLOCK_SIZE))[:, 0]
        offset = values.argmax(-1, keepdim=True)
        return KeptTokens(values.gather(-1, offset), block * BLOCK_SIZE + offset)

    def highest(self, count: int) -> KeptTokens:
        """The `count` highest logits of each row, in order. They lie in as many of the best blocks."""
        count = min(count, self.size)
        if 2 * count * BLOCK_SIZE >= self.size:
            return KeptTokens(*self.logits.topk(count))
        values, columns = self._best_blocks(count)
        ranked, order = values.topk(count)
        return KeptTokens(ranked, columns.gather(-1, order))

    def at_least(self, floor: Tensor) -> KeptTokens:
        """The columns with at least this logit, which some column of each row has. The floor is [N, 1].

        A row of NaN, where nothing is at least anything, keeps some of its columns.
        """
        values, columns = self._best_blocks(max(int((self._maxima >= floor).sum(-1).amax()), 1))
        return KeptTokens(values.masked_fill(values < floor, MASKED_LOGIT), columns)

    def _best_blocks(self, count: int) -> KeptTokens:
        """All columns of the `count` blocks with the highest maxima."""
        chosen = self._maxima.topk(count, sorted=False).indices[..., None]  # [N, count, 1]
        values = self._values.gather(1, chosen.expand(-1, -1, BLOCK_SIZE)).flatten(1)
        columns = (chosen * BLOCK_SIZE + _offsets(chosen.device)).flatten(1)
        return KeptTokens(values, columns.clamp_(max=self.size - 1))  # behind the last column is only padding


def keep_top_k(logits: Tensor, count: int) -> KeptTokens:
    """The `count` highest logits, the highest first."""
    return Blocks(logits).highest(count)


def keep_top_p(logits: Tensor, top_p: float, count: int = 1) -> KeptTokens:
    """The fewest tokens that have `top_p` of the probability together, as log-probabilities, the highest first.

    There are at least `count` columns; masked ones follow. Each row takes the first shortlist that is enough for
    itself, whatever the other rows take.
    """
    if not logits.is_cpu:
        ranked, columns = logits.log_softmax(-1).sort(dim=-1, descending=True, stable=True)
        return KeptTokens(mask_top_p(ranked, top_p), columns)
    blocks = Blocks(logits.log_softmax(-1))
    first = blocks.first_highest()
    is_peaked = first.logits >= log(top_p)  # one token is enough [N, 1]
    if count == 1 and bool(is_peaked.all()):
        return first
    kept, is_short = _nucleus(blocks.highest(max(SHORTLISTS[0], count)), top_p, count)
    for length in (SHORTLISTS[1], blocks.size):
        if not bool(is_short.any()):
            break
        longer = blocks.logits[is_short].topk(min(length, blocks.size))
        more, is_still_short = _nucleus(KeptTokens(*longer), top_p, count)
        kept = _replace_rows(kept, is_short, more)
        is_short[is_short.clone()] = is_still_short
    kept.columns[:, :1] = torch.where(is_peaked, first.columns, kept.columns[:, :1])
    return kept


def keep_min_p(logits: Tensor, min_p: float) -> KeptTokens:
    """The tokens with at least this share of the highest probability."""
    if not logits.is_cpu:
        columns = torch.arange(logits.shape[-1], device=logits.device)
        return KeptTokens(mask_min_p(logits, min_p), columns.expand_as(logits))
    blocks = Blocks(logits)
    return blocks.at_least(blocks.maximum() + log(min_p))


def mask_top_p(ranked: Tensor, top_p: float) -> Tensor:
    """Mask the tail that has the last 1 - top_p of the probability. Log-probabilities, best first. [N, C] -> [N, C]"""
    before, _total = _sums_before(ranked)
    return ranked.masked_fill(before >= round(top_p / PROBABILITY_UNIT), MASKED_LOGIT)


def mask_min_p(logits: Tensor, min_p: float) -> Tensor:
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + log(min_p), MASKED_LOGIT)


def _nucleus(shortlist: KeptTokens, top_p: float, count: int) -> tuple[KeptTokens, Tensor]:
    """The nucleus as far as it lies in these tokens, the highest first; and where they may be too few. bool [N]"""
    before, total = _sums_before(shortlist.logits)
    limit = round(top_p / PROBABILITY_UNIT)
    is_short = (total < limit) & (shortlist.logits[:, -1] > MASKED_LOGIT)
    logits = shortlist.logits.masked_fill(before >= limit, MASKED_LOGIT)
    width = max(int(logits.isfinite().sum(-1).amax()), count)
    return KeptTokens(logits[:, :width], shortlist.columns[:, :width]), is_short


def _sums_before(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """The probability before each column, and that of the row, in integer units. [N, C] -> [N, C], [N]"""
    units = (ranked.exp() / PROBABILITY_UNIT).long()
    sums = units.cumsum(-1)
    return sums - units, sums[:, -1]


def _replace_rows(kept: KeptTokens, rows: Tensor, more: KeptTokens) -> KeptTokens:
    """Replace these rows, and pad the shorter ones. bool [N]"""
    width, more_width = kept.logits.shape[-1], more.logits.shape[-1]
    added, more_added = max(more_width - width, 0), max(width - more_width, 0)
    logits = functional.pad(kept.logits, (0, added), value=MASKED_LOGIT)
    columns = functional.pad(kept.columns, (0, added))
    logits[rows] = functional.pad(more.logits, (0, more_added), value=MASKED_LOGIT)
    columns[rows] = functional.pad(more.columns, (0, more_added))
    return KeptTokens(logits, columns)


@lru_cache(maxsize=8)
def _offsets(device: torch.device) -> Tensor:
    return torch.arange(BLOCK_SIZE, device=device)
