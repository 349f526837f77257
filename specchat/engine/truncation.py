"""The tokens that top-k, top-p and min-p keep.

Every device keeps the same tokens of the same logits, in every row and in whatever order sums are computed: what a
token has of the probability is a whole number, which integers alone make from the distance of its logit to the highest
one. `forward/native/native_sampling.cpp` and `forward/cuda/triton_truncation.py` compute the same numbers.

On a CPU, where a sort of a vocabulary takes longer than a pass of a small network, top-p looks at the most probable
tokens first; the result is exact. Knows no noise and no token ids, only columns.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

SHORTLIST = 1024  # tokens that top-p looks at on a CPU; all of them only where these have too little probability
MASKED_LOGIT = float("-inf")
EXPONENT_BITS = 24
EXPONENT_STEPS = 24204406.0  # 2**24 / ln 2; a float32 has this number
MOST_STEPS = float(32 << EXPONENT_BITS)  # from here on a token has no unit
# 2**31 * 2**-x for x from 0 to 1 is the first of them - x * (the second - x * (...)), with an error of 6 units
COEFFICIENTS = (2147483648, 1488522040, 515878638, 119168800, 20577645, 2743350, 236085)
TOP_P_BITS = 24


class KeptTokens(NamedTuple):
    """The kept columns of each row and their logits, which may be shifted by a constant; padded with MASKED_LOGIT."""

    logits: Tensor  # [N, C]
    columns: Tensor  # [N, C]


def keep_top_k(logits: Tensor, count: int) -> KeptTokens:
    """The `count` highest logits, the highest first."""
    return KeptTokens(*logits.topk(min(count, logits.shape[-1])))


def keep_top_p(logits: Tensor, temperature: float, top_p: float, count: int = 1) -> KeptTokens:
    """The fewest tokens that have `top_p` of the probability together, the highest first.

    There are at least `count` columns; masked ones follow.
    """
    if logits.is_cpu and max(SHORTLIST, count) < logits.shape[-1]:
        total = probability_units(logits, temperature).sum(-1, keepdim=True)
        ranked, columns = _ranked(logits, logits.topk(max(SHORTLIST, count)).indices.sort(-1).values)
        found = probability_units(ranked, temperature).sum(-1, keepdim=True)
        if bool((found >= units_to_keep(total, top_p)).all()):
            kept = mask_top_p(ranked, temperature, top_p, total)
            width = max(int(kept.isfinite().sum(-1).amax()), count)
            return KeptTokens(kept[:, :width], columns[:, :width])
    ranked, columns = logits.sort(dim=-1, descending=True, stable=True)
    return KeptTokens(mask_top_p(ranked, temperature, top_p), columns)


def keep_min_p(logits: Tensor, temperature: float, min_p: float) -> KeptTokens:
    """The tokens with at least this share of the highest probability."""
    columns = torch.arange(logits.shape[-1], device=logits.device)
    return KeptTokens(mask_min_p(logits, temperature, min_p), columns.expand_as(logits))


def mask_top_p(ranked: Tensor, temperature: float, top_p: float, total: Tensor | None = None) -> Tensor:
    """Mask the tail with the last 1 - top_p of the probability; `total`: of the row. Best first. [N, C] -> [N, C]"""
    units = probability_units(ranked, temperature)
    sums = units.cumsum(-1)
    return ranked.masked_fill(
        sums - units >= units_to_keep(sums[:, -1:] if total is None else total, top_p), MASKED_LOGIT
    )


def mask_min_p(logits: Tensor, temperature: float, min_p: float) -> Tensor:
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + temperature * log(min_p), MASKED_LOGIT)


def probability_units(logits: Tensor, temperature: float) -> Tensor:
    """The probability of each column at this temperature, in units of which the best one has 2**31. [N, C] -> [N, C]"""
    distances = logits.amax(-1, keepdim=True) - logits
    steps = (distances * (EXPONENT_STEPS / temperature)).clamp(max=MOST_STEPS).long()
    fraction, units = steps & ((1 << EXPONENT_BITS) - 1), torch.full_like(steps, COEFFICIENTS[-1])
    for coefficient in COEFFICIENTS[-2::-1]:
        units = coefficient - (units * fraction >> EXPONENT_BITS)
    return units >> (steps >> EXPONENT_BITS).clamp(0, 32)


def units_to_keep(total: Tensor, top_p: float) -> Tensor:
    """Rounded down, in integers: what some columns together must have of `total`, which is below 2**51."""
    share = top_p_share(top_p)
    return (total >> TOP_P_BITS) * share + ((total & ((1 << TOP_P_BITS) - 1)) * share >> TOP_P_BITS)


def top_p_share(top_p: float) -> int:
    """Of 2**24."""
    return max(int(top_p * (1 << TOP_P_BITS)), 1)


def _ranked(logits: Tensor, columns: Tensor) -> KeptTokens:
    """These columns, in ascending order, with the highest logits first; of equal ones the first column. [N, C]"""
    ranked, order = logits.gather(-1, columns).sort(dim=-1, descending=True, stable=True)
    return KeptTokens(ranked, columns.gather(-1, order))
