"""From logits to tokens: truncation, temperature, and shared randomness (Gumbel noise).

`accept.py` argues why speculative decoding does not change the text. This file provides what the argument needs: noise
that depends on the seed, the position and the token alone. It knows no drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.device import copy_to_device
from specchat.engine.penalties import Penalties, SeenTokens
from specchat.engine.tree import DraftTree
from specchat.engine.truncation import (
    MASKED_LOGIT,
    KeptTokens,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    mask_min_p,
    mask_top_p,
)


@dataclass(frozen=True)
class LogitRows:
    """The positions of rows of logits, and the data that the sampling rules need for each row."""

    positions: list[int]  # of the token before each row [N]
    draft_paths: list[list[int]] | None = None  # draft tokens between the text and each row; only for penalties
    token_ids: Tensor | None = None  # the target's token id of every column, for a reduced vocabulary [V]
    allowed_mask: Tensor | None = None  # of a grammar, for the target alone. bool [N, V]


@dataclass(frozen=True)
class NoiseInputs:
    """What sampling depends on where nothing but temperature and noise change the logits."""

    keys: Sequence[tuple[int, int]] = ()  # of each row
    temperature: float = 1.0  # 1 at T = 0, where there is no noise
    scale: float = 0.0  # of the noise
    vocab_size: int | None = None  # columns from here on are padding


NO_NOISE = NoiseInputs(vocab_size=0)  # for passes whose samples are not read: of no token, so that none is sought


@dataclass(frozen=True)
class DeviceNoise:
    """`NoiseInputs` on the device, where a CUDA graph reads them."""

    keys: Tensor  # int32 [N, 2]
    temperature: Tensor  # []
    scale: Tensor  # []
    vocab_size: Tensor  # []

    def rank(self, logits: Tensor, count: int = 1, token_ids: Tensor | None = None) -> Ranking:
        """The `count` best tokens of each row, as `Sampler.rank` chooses them. [N, V] -> [N, count]

        One row of keys serves all rows. `token_ids` are those of a reduced vocabulary, without padding [V].
        """
        ids = _column_ids(logits) if token_ids is None else token_ids
        noise = _noise_of(_random_bits(self.keys, ids)) * self.scale
        scaled = logits.float() / self.temperature
        if token_ids is None:
            scaled = scaled.masked_fill(ids >= self.vocab_size, MASKED_LOGIT)
        return _top_tokens(scaled + noise, token_ids, count)

    def sample(self, logits: Tensor) -> Tensor:
        """The best token of each row, packed. [N, V] -> [N, 2]"""
        return pack_samples(self.rank(logits))


class Ranking(NamedTuple):
    """The best tokens of every row, best first."""

    token_ids: Tensor  # the target's token ids [N, count]
    scores: Tensor  # -inf where the rules allow no token [N, count]


@dataclass(frozen=True)
class Sampler:
    """Samples tokens from logits. The same seed and position always use the same noise.

    The rules and their order are those of transformers: penalties, grammar, temperature, top-k, top-p, min-p.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    vocab_size: int | None = None  # token ids from here on are padding and never sampled
    biases: tuple[tuple[int, float], ...] = ()  # what single tokens gain or lose, which counts as a penalty

    @cached_property  # asked several times a step
    def has_penalties(self) -> bool:
        return self.penalties != Penalties()

    @property
    def penalties(self) -> Penalties:
        return Penalties(self.repetition_penalty, self.frequency_penalty, self.presence_penalty, self.biases)

    @property
    def is_truncating(self) -> bool:
        return bool(self.top_k) or self.top_p < 1 or self.min_p > 0

    def make_seen_tokens(self, tokens: list[int], vocab_size: int, device: torch.device) -> SeenTokens | None:
        """The tokens that penalties need; None without penalties."""
        return SeenTokens(tokens, vocab_size, device) if self.has_penalties else None

    def rows_of_tree(self, tree: DraftTree, text_length: int, allowed_mask: Tensor | None = None) -> LogitRows:
        """The rows of the nodes of a tree, for a text of `text_length` tokens including the root."""
        paths = [tree.path_tokens(node) for node in range(len(tree))] if self.has_penalties else None
        return LogitRows([text_length - 1 + depth for depth in tree.depths], paths, allowed_mask=allowed_mask)

    def penalize(self, logits: Tensor, rows: LogitRows, seen_tokens: SeenTokens | None) -> Tensor:
        """The logits after the penalties, as floats of their own; without penalties they are given back. [N, V]"""
        if seen_tokens is None:
            return logits
        penalized = logits.to(torch.float32, copy=True)
        self.penalties.apply(penalized, seen_tokens, rows.draft_paths, rows.token_ids)
        return penalized

    def noise_inputs(self, rows: LogitRows, seen_tokens: SeenTokens | None = None) -> NoiseInputs | None:
        """What `DeviceNoise.rank` needs to sample as `rank` does; None where other rules apply."""
        has_rules = seen_tokens is not None or rows.allowed_mask is not None or rows.token_ids is not None
        if self.temperature == 0:
            return None if has_rules else replace(NO_NOISE, vocab_size=self.vocab_size)
        if has_rules or self.is_truncating:
            return None
        return NoiseInputs(self.noise_keys(rows.positions), self.temperature, 1.0, self.vocab_size)

    def noise_keys(self, positions: list[int]) -> list[tuple[int, int]]:
        """What the noise after each of these positions is made from."""
        return [_hash_keys(self.seed, position) for position in positions]

    def rank(self, logits: Tensor, rows: LogitRows, seen_tokens: SeenTokens | None = None, count: int = 1) -> Ranking:
        """The `count` best tokens of each row, after the rules and the noise. [N, V] -> [N, count]"""
        if self.temperature == 0:
            return _top_tokens(self.penalize_and_mask(logits, rows, seen_tokens).float(), rows.token_ids, count)
        logits, ids = self.process_logits(logits, rows, seen_tokens, count)
        if logits.shape[-1] == 1:
            return Ranking(ids.expand_as(logits), logits)
        return _top_tokens(logits + gumbel_noise(self.seed, rows.positions, ids), ids, count)

    def sample(self, logits: Tensor, rows: LogitRows, seen_tokens: SeenTokens | None = None) -> list[int]:
        """The token after each row. Only here does a step wait for the device."""
        return self.rank(logits, rows, seen_tokens).token_ids[:, 0].tolist()

    def process_logits(
        self, logits: Tensor, rows: LogitRows, seen_tokens: SeenTokens | None = None, count: int = 1
    ) -> tuple[Tensor, Tensor]:
        """The logits after all rules at T > 0, and the token ids of their columns. [N, V] -> [N, C], and [C] or [N, C]

        There are `count` columns or more, as far as the rules allow; masked ones may repeat a token.
        """
        logits = self.penalize_and_mask(logits, rows, seen_tokens).float()
        if self.is_truncating:
            logits, columns = self._truncate(logits, count)
            ids = columns if rows.token_ids is None else rows.token_ids[columns]
        else:
            ids = _all_token_ids(logits.shape[-1], logits.device) if rows.token_ids is None else rows.token_ids
        return logits / self.temperature, ids

    def penalize_and_mask(self, logits: Tensor, rows: LogitRows, seen_tokens: SeenTokens | None) -> Tensor:
        """The logits of tokens that may be sampled, after penalties and grammar. [N, V] -> [N, C]"""
        logits = self.penalize(logits, rows, seen_tokens)
        if self.vocab_size is not None and rows.token_ids is None:
            logits = logits[:, : self.vocab_size]
        if rows.allowed_mask is not None:
            is_forbidden = ~rows.allowed_mask[:, : logits.shape[-1]]
            logits = logits.masked_fill(copy_to_device(is_forbidden, logits.device), MASKED_LOGIT)
        return logits

    def _truncate(self, logits: Tensor, count: int) -> KeptTokens:
        """What top-k, top-p and min-p keep, in this order. [N, V] -> [N, C]"""
        if self.top_k:
            kept = keep_top_k(logits, self.top_k)
            if self.top_p < 1:
                kept = kept._replace(logits=mask_top_p(kept.logits, self.temperature, self.top_p))
        elif self.top_p < 1:
            kept = keep_top_p(logits, self.temperature, self.top_p, count)
        else:
            return keep_min_p(logits, self.temperature, self.min_p)
        return kept._replace(logits=mask_min_p(kept.logits, self.temperature, self.min_p)) if self.min_p > 0 else kept


def gumbel_noise(seed: int, positions: list[int], token_ids: Tensor) -> Tensor:
    """Noise for which argmax(logits + noise) is a sample of softmax(logits). ids [V] or [N, C] -> [N, V] or [N, C]

    Seed and position give each row two keys; an integer hash of key and token id (two rounds of a 32-bit mixer) gives
    31 uniform bits. The noise is the same on every device, and does not depend on the column of a token.
    """
    keys = torch.tensor([_hash_keys(seed, position) for position in positions], dtype=torch.int32)
    if token_ids.is_cpu:
        return _noise_of(torch.from_numpy(_hash_on_cpu(token_ids.numpy(), keys.numpy())))
    return _noise_of(_random_bits(copy_to_device(keys, token_ids.device), token_ids))


def pack_samples(ranking: Ranking) -> Tensor:
    """The best token of each row, and whether its score is a finite number: all that a step waits for. [N, 2]"""
    return torch.cat((ranking.token_ids[:, :1], ranking.scores[:, :1].isfinite()), dim=1)


def _noise_of(random_bits: Tensor) -> Tensor:
    uniform = random_bits.float().add_(0.5).mul_(2.0**-31).clamp_(max=1 - 2.0**-24)  # small values stay finely spaced
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _random_bits(keys: Tensor, token_ids: Tensor) -> Tensor:
    """31 bits of every row and token. keys int32 [N, 2]; ids [V] or [N, C]"""
    return _hash_bits(_hash_bits(token_ids.to(torch.int32) + keys[:, :1]) ^ keys[:, 1:]) & 0x7FFFFFFF


def _top_tokens(scores: Tensor, token_ids: Tensor | None, count: int) -> Ranking:
    """The columns with the highest scores, as token ids. ids [V], [N, C], or None if columns are token ids."""
    if count == 1:
        order = scores.argmax(-1, keepdim=True)
        best = scores.gather(-1, order)
    else:
        best, order = scores.topk(min(count, scores.shape[-1]))
    if token_ids is not None:
        order = token_ids[order] if token_ids.dim() == 1 else token_ids.gather(-1, order)
    return Ranking(order, best)


def _column_ids(logits: Tensor) -> Tensor:
    """The columns, in memory that belongs to a CUDA graph: a graph must not read a cache that drops its entries."""
    return torch.arange(logits.shape[-1], device=logits.device)


@lru_cache(maxsize=8)
def _all_token_ids(size: int, device: torch.device) -> Tensor:
    return torch.arange(size, device=device)


def _hash_on_cpu(token_ids: NDArray[np.int64], keys: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same 31 bits as on other devices; for small arrays, numpy takes a third of the time of torch."""
    first, second = np.hsplit(keys.view(np.uint32), 2)
    bits = _hash_unsigned(_hash_unsigned(token_ids.astype(np.uint32) + first) ^ second)
    return (bits & 0x7FFFFFFF).view(np.int32)


def _hash_unsigned(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """`_hash_bits`, whose shifts are logical here without help."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x735A2D97)
    return bits ^ (bits >> np.uint32(15))


def _hash_bits(bits: Tensor) -> Tensor:
    """A bijection of 32-bit integers in which every bit depends on every other. Integer overflow wraps around."""
    bits = (bits ^ _logical_shift_right(bits, 16)) * 0x21F0AAAD
    bits = (bits ^ _logical_shift_right(bits, 15)) * 0x735A2D97
    return bits ^ _logical_shift_right(bits, 15)


def _logical_shift_right(bits: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros, the sign bit included."""
    return (bits >> places) & ((1 << (32 - places)) - 1)


@lru_cache(maxsize=4096)  # drafter and target use the same few positions
def _hash_keys(seed: int, position: int) -> tuple[int, int]:
    """Two 32-bit keys of a position, as signed integers."""
    state = _splitmix64(seed, position)
    low, high = state & 0xFFFFFFFF, state >> 32
    return low - ((low >> 31) << 32), high - ((high >> 31) << 32)


def _splitmix64(seed: int, position: int) -> int:
    """A 64-bit hash of seed and position (SplitMix64)."""
    state = (seed * 0x9E3779B97F4A7C15 + (position + 1) * 0xD1B54A32D192ED03) & (2**64 - 1)
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return state ^ state >> 31
