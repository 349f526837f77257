"""The tokens that top-k, top-p and min-p keep.

On a CPU, where a sort of a vocabulary takes longer than a pass of a small network, top-p looks at the most probable
tokens first. The result is exact, and that of a row does not depend on the other rows: sums of probabilities are sums
of integers, which no order of summation changes. Knows no noise and no token ids, only columns.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

SHORTLIST = 1024  # tokens that top-p looks at on a CPU; all of them only where these have too little probability
MASKED_LOGIT = float("-inf")
PROBABILITY_UNIT = 2.0**-40


class KeptTokens(NamedTuple):
    """The kept columns of each row and their logits, which may be shifted by a constant; padded with MASKED_LOGIT."""

    logits: Tensor  # [N, C]
    columns: Tensor  # [N, C]


def keep_top_k(logits: Tensor, count: int) -> KeptTokens:
    """The `count` highest logits, the highest first."""
    return KeptTokens(*logits.topk(min(count, logits.shape[-1])))


def keep_top_p(logits: Tensor, top_p: float, count: int = 1) -> KeptTokens:
    """The fewest tokens that have `top_p` of the probability together, as log-probabilities, the highest first.

    There are at least `count` columns; masked ones follow.
    """
    logits = logits.log_softmax(-1)
    if logits.is_cpu and max(SHORTLIST, count) < logits.shape[-1]:
        ranked, columns = _ranked(logits, logits.topk(max(SHORTLIST, count)).indices.sort(-1).values)
        _before, total = _sums_before(ranked)
        if bool(((total >= round(top_p / PROBABILITY_UNIT)) | (ranked[:, -1] == MASKED_LOGIT)).all()):
            kept = mask_top_p(ranked, top_p)
            width = max(int(kept.isfinite().sum(-1).amax()), count)
            return KeptTokens(kept[:, :width], columns[:, :width])
    ranked, columns = logits.sort(dim=-1, descending=True, stable=True)
    return KeptTokens(mask_top_p(ranked, top_p), columns)


def keep_min_p(logits: Tensor, min_p: float) -> KeptTokens:
    """The tokens with at least this share of the highest probability."""
    columns = torch.arange(logits.shape[-1], device=logits.device)
    return KeptTokens(mask_min_p(logits, min_p), columns.expand_as(logits))


def mask_top_p(ranked: Tensor, top_p: float) -> Tensor:
    """Mask the tail that has the last 1 - top_p of the probability. Log-probabilities, best first. [N, C] -> [N, C]"""
    before, _total = _sums_before(ranked)
    return ranked.masked_fill(before >= round(top_p / PROBABILITY_UNIT), MASKED_LOGIT)


def mask_min_p(logits: Tensor, min_p: float) -> Tensor:
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + log(min_p), MASKED_LOGIT)


def _ranked(logits: Tensor, columns: Tensor) -> KeptTokens:
    """These columns, in ascending order, with the highest logits first; of equal ones the first column. [N, C]"""
    ranked, order = logits.gather(-1, columns).sort(dim=-1, descending=True, stable=True)
    return KeptTokens(ranked, columns.gather(-1, order))


def _sums_before(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """The probability before each column, and that of the row, in integer units. [N, C] -> [N, C], [N]"""
    units = (ranked.exp() / PROBABILITY_UNIT).long()
    sums = units.cumsum(-1)
    return sums - units, sums[:, -1]
