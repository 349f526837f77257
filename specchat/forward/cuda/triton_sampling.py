"""The choice of tokens in two launches of Triton: temperature, noise and the best columns, with each logit read once.
Rules of a sampler that leave tokens out are applied before, by torch and by `triton_truncation.py`.

Programs take the best columns of parts of a row, and a program for each row chooses among these. A score and its column
are one number of 64 bits, the column reversed: its maximum is the highest score and, of equal ones, the first column,
as on CPUs, in whatever order it is sought. NaN is above all numbers, as for torch, so that it is found and reported.
At T = 0 no noise is computed. For a vocabulary of no tokens nothing is read or written.

Hash, temperature and the order of the operations are those of `engine/sampling.py`, bit by bit; the two logarithms are
those of CUDA's library, as in torch for CUDA, which may differ from a CPU's in the last place of the noise. At its
first use it is compared with torch; where tokens differ, or nothing can be compiled, torch computes. Knows no model.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice

from specchat.engine.device import copy_to_device
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import DeviceNoise, LogitRows, NoiseInputs, Ranking, Sampler, pack_samples
from specchat.forward.cuda.cuda_graphs import device_noise, noise_header, noise_keys
from specchat.forward.cuda.kernel_trial import passes
from specchat.forward.cuda.triton_truncation import OPTIONS, cut_rows, rank_of
from specchat.forward.linear.linear import sample_tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_COUNT = 16  # best columns of a row
BLOCK_COLUMNS, SHORTLIST_BLOCK_COLUMNS = 1024, 2048  # of a program; for one column, and for more
SCORE_TOLERANCE = 1e-5  # of noise between two libraries of logarithms
SAMPLE_ROWS, SAMPLE_COLUMNS, SAMPLE_VOCABULARY = 3, 2500, 2400


@triton.jit
def _hash_bits(bits):
    bits = (bits ^ (bits >> 16)) * 0x21F0AAAD
    bits = (bits ^ (bits >> 15)) * 0x735A2D97
    return bits ^ (bits >> 15)


@triton.jit
def _gumbel_noise(token_ids, first_key, second_key):
    """`gumbel_noise` of one row; keys and ids are uint32, so that shifts fill with zeros."""
    bits = (_hash_bits(_hash_bits(token_ids + first_key) ^ second_key) & 0x7FFFFFFF).to(tl.int32)
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 4.656612873077393e-10, 0.9999999403953552)
    return -libdevice.log(-libdevice.log1p(-uniform))


@triton.jit
def _best_of_part_kernel(
    logits, keys, temperature, scale, vocab_size, token_ids, cuts, best, columns, stride, key_stride,
    COUNT: tl.constexpr, BLOCK: tl.constexpr, HAS_IDS: tl.constexpr, HAS_CUTS: tl.constexpr,
):  # fmt: skip
    """The COUNT best columns of BLOCK columns of a row, as numbers that order as score and column do."""
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    end = columns
    if not HAS_IDS:
        end = tl.minimum(tl.load(vocab_size), columns).to(tl.int32)
    column = part * BLOCK + tl.arange(0, BLOCK)
    if part * BLOCK < end:
        # masked by a number that the host knows, so that many are read at once; the end is on the device
        scores = tl.load(logits + row * stride + column, mask=column < columns, other=0.0).to(tl.float32)
        if HAS_CUTS:
            scores = tl.where(rank_of(scores, column) >= tl.load(cuts + row), scores, float("-inf"))
        scores = tl.where(column < end, tl.div_rn(scores, tl.load(temperature).to(tl.float32)), float("-inf"))
        amount = tl.load(scale).to(tl.float32)
        if amount != 0.0:
            ids = column
            if HAS_IDS:
                ids = tl.load(token_ids + column, mask=column < columns, other=0).to(tl.int32)
            first_key = tl.load(keys + row * key_stride).to(tl.uint32)
            second_key = tl.load(keys + row * key_stride + 1).to(tl.uint32)
            scores = scores + _gumbel_noise(ids.to(tl.uint32), first_key, second_key) * amount
        ranked = tl.where(column < columns, rank_of(scores, column), -0x8000000000000000)
        to = best + (row * tl.num_programs(0) + part) * COUNT
        for place in range(COUNT):
            highest = tl.max(ranked, axis=0)
            tl.store(to + place, highest)
            ranked = tl.where(ranked == highest, -0x8000000000000000, ranked)


@triton.jit
def _best_of_row_kernel(
    best, vocab_size, token_ids, tokens, scores, columns, parts,
    COUNT: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr, HAS_IDS: tl.constexpr, IS_PACKED: tl.constexpr,
):  # fmt: skip
    """The COUNT best columns of a row: tokens and scores, or packed as `pack_samples` does."""
    row = tl.program_id(0).to(tl.int64)
    end = columns
    if not HAS_IDS:
        end = tl.minimum(tl.load(vocab_size), columns).to(tl.int32)
    place = tl.arange(0, PLACES)
    if end > 0:
        written = ((end + BLOCK - 1) // BLOCK) * COUNT
        ranked = tl.load(best + row * parts * COUNT + place, mask=place < written, other=-0x8000000000000000)
        for rank in range(COUNT):
            highest = tl.max(ranked, axis=0)
            ranked = tl.where(ranked == highest, -0x8000000000000000, ranked)
            token = 0x7FFFFFFF - (highest & 0x7FFFFFFF)
            if HAS_IDS:
                token = tl.load(token_ids + token)
            bits = (highest >> 32).to(tl.int32)
            bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
            if IS_PACKED:
                tl.store(tokens + row * 2, token)
                tl.store(tokens + row * 2 + 1, ((bits & 0x7F800000) != 0x7F800000).to(tl.int64))
            else:
                tl.store(tokens + row * COUNT + rank, token)
                tl.store(scores + row * COUNT + rank, bits.to(tl.float32, bitcast=True))


class TritonNoise(DeviceNoise):
    """`DeviceNoise` with these kernels, where they compute what torch does."""

    def rank(self, logits: Tensor, count: int = 1, token_ids: Tensor | None = None) -> Ranking:
        count = min(count, logits.shape[-1])
        if count > MAX_COUNT or not chooses_as_torch(logits.dtype, logits.device):
            return super().rank(logits, count, token_ids)
        return rank_columns(self, logits, count, token_ids)

    def sample(self, logits: Tensor) -> Tensor:
        if not chooses_as_torch(logits.dtype, logits.device):
            return super().sample(logits)
        return sample_columns(self, logits)


def rank_columns(
    noise: DeviceNoise, logits: Tensor, count: int, token_ids: Tensor | None = None, cuts: Tensor | None = None
) -> Ranking:
    """As `DeviceNoise.rank`, among what cuts keep. [N, V] -> [N, count]"""
    tokens = torch.empty(len(logits), count, dtype=torch.int64, device=logits.device)
    scores = torch.empty(len(logits), count, dtype=torch.float32, device=logits.device)
    _launch(noise, logits, count, token_ids, cuts, tokens, scores)
    return Ranking(tokens, scores)


def sample_columns(noise: DeviceNoise, logits: Tensor, cuts: Tensor | None = None) -> Tensor:
    """As `DeviceNoise.sample`, among what cuts keep. [N, V] -> [N, 2]"""
    packed = torch.empty(len(logits), 2, dtype=torch.int64, device=logits.device)
    _launch(noise, logits, 1, None, cuts, packed, None)
    return packed


def rank_by_rules(
    logits: Tensor, sampler: Sampler, rows: LogitRows, seen: SeenTokens | None = None, count: int = 1
) -> Ranking:
    """As `Sampler.rank`. Penalties, which change few columns, and masks are left to torch. [N, V] -> [N, count]"""
    noise, logits, cuts = _prepared(logits, sampler, rows, seen)
    return rank_columns(noise, logits, min(count, logits.shape[-1]), rows.token_ids, cuts)


def sample_by_rules(logits: Tensor, sampler: Sampler, rows: LogitRows, seen: SeenTokens | None = None) -> Tensor:
    """As `pack_samples` of `Sampler.rank`. [N, V] -> [N, 2]"""
    return sample_columns(*_prepared(logits, sampler, rows, seen))


def _prepared(
    logits: Tensor, sampler: Sampler, rows: LogitRows, seen: SeenTokens | None
) -> tuple[DeviceNoise, Tensor, Tensor | None]:
    """The noise, the logits of tokens that may be sampled, and their cuts."""
    is_greedy = sampler.temperature == 0
    keys = [] if is_greedy else sampler.noise_keys(rows.positions)
    inputs = NoiseInputs(keys, 1.0 if is_greedy else sampler.temperature, float(not is_greedy))
    numbers = torch.tensor(noise_header(inputs)), torch.from_numpy(noise_keys(inputs, len(logits)).astype(np.int32))
    noise = device_noise(*(copy_to_device(each, logits.device) for each in numbers))
    logits = sampler.penalize_and_mask(logits, rows, seen)
    return noise, logits, None if is_greedy or not sampler.is_truncating else cut_rows(logits, sampler)


def _launch(
    noise: DeviceNoise, logits: Tensor, count: int, token_ids: Tensor | None, cuts: Tensor | None, tokens: Tensor,
    scores: Tensor | None,
) -> None:  # fmt: skip
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    rows, columns = logits.shape
    block = BLOCK_COLUMNS if count == 1 else SHORTLIST_BLOCK_COLUMNS
    parts, keys = triton.cdiv(columns, block), noise.keys
    best = torch.empty(rows, parts, count, dtype=torch.int64, device=logits.device)
    shared = {"COUNT": count, "BLOCK": block, "HAS_IDS": token_ids is not None, **OPTIONS}
    ids = tokens if token_ids is None else token_ids.contiguous()
    _best_of_part_kernel[(parts, rows)](
        logits, keys, noise.temperature, noise.scale, noise.vocab_size, ids, best if cuts is None else cuts, best,
        columns, logits.stride(0), keys.stride(0) if len(keys) > 1 else 0, HAS_CUTS=cuts is not None, **shared,
    )  # fmt: skip
    _best_of_row_kernel[(rows,)](
        best, noise.vocab_size, ids, tokens, tokens if scores is None else scores, columns, parts,
        PLACES=triton.next_power_of_2(parts * count), IS_PACKED=scores is None, **shared,
    )  # fmt: skip


@lru_cache
def chooses_as_torch(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels can be used here: they choose what torch does, with noise and without."""

    def is_right() -> bool:
        return all(_is_right(dtype, device, temperature) for temperature in (0.0, 0.8))

    return dtype in DTYPES and passes(is_right, "sampling kernels", "choose other tokens")


@torch.inference_mode()
def _is_right(dtype: torch.dtype, device: torch.device, temperature: float) -> bool:
    logits = 4 * sample_tensor(dtype, SAMPLE_ROWS, SAMPLE_COLUMNS).to(device)
    keys = torch.arange(2 * SAMPLE_ROWS, dtype=torch.int32).mul_(715827883).view(-1, 2).to(device)
    numbers = torch.tensor([temperature or 1.0, float(temperature > 0)], dtype=torch.float64).to(device)
    vocab_size = torch.tensor(SAMPLE_VOCABULARY).to(device)
    noise = DeviceNoise(keys, numbers[0], numbers[1], vocab_size)
    if not torch.equal(sample_columns(noise, logits), pack_samples(noise.rank(logits))):
        return False
    if temperature == 0:
        return True
    logits[:, ::100] += 40  # so that top-k does not have to choose among equal ones, as torch does in any way
    rows, top_k = LogitRows([1] * SAMPLE_ROWS), SAMPLE_VOCABULARY // 100
    for rules in ({"top_p": 0.9}, {"top_k": top_k, "min_p": 1e-3}):
        sampler = Sampler(temperature, vocab_size=SAMPLE_VOCABULARY, **rules)
        if not torch.equal(sample_by_rules(logits, sampler, rows), pack_samples(sampler.rank(logits, rows))):
            return False
    ours, expected = rank_columns(noise, logits, MAX_COUNT), noise.rank(logits, MAX_COUNT)
    is_close = torch.allclose(ours.scores, expected.scores, SCORE_TOLERANCE, SCORE_TOLERANCE)
    return is_close and torch.equal(ours.token_ids, expected.token_ids)
