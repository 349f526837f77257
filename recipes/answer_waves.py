"""Answers to thousands of prompts at once on a GPU: no loop over rows, and a wave ends before few rows are left.

A wave is a batch of prompts of similar length that are answered together. It knows neither questions nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recipes.batched_llama import BatchedLlama, BatchKVCache, causal_mask
from recipes.starter_answers import REPEATED_TOKENS

Tokens = NDArray[np.int32]
NUCLEUS_TOKENS = 256
COLUMN_STEP = 64  # kernels of attention want aligned masks, and each new length may cost a new plan
CHECK_STEPS = 8  # reading from the device stops it
PREFILL_TOKENS = 65536
FINISHED_SHARE, FEW_ROWS_SHARE = 0.1, 0.08  # before finished rows are dropped; that end a wave


def never() -> bool:
    return False


@dataclass(frozen=True)
class WaveSettings:
    """How rows are sampled, and when they end."""

    stop_ids: tuple[int, ...]
    max_tokens: int
    top_p: float = 0.9
    is_over: Callable[[], bool] = never  # looked at every few steps


@dataclass
class WaveRows:
    """The rows of a wave that are still written, on the device."""

    index: Tensor  # in the wave
    padding: Tensor
    temperatures: Tensor
    mask: Tensor  # [B, columns]
    chosen: Tensor
    is_running: Tensor
    cache: BatchKVCache

    def keep(self, rows: Tensor) -> None:
        for name in ("index", "padding", "temperatures", "mask", "chosen", "is_running"):
            setattr(self, name, getattr(self, name)[rows])
        self.cache.keep(rows)


def round_up(count: int, step: int = COLUMN_STEP) -> int:
    return -(-count // step) * step


def choose_tokens(logits: Tensor, temperatures: Tensor, top_p: float, generator: torch.Generator) -> Tensor:
    """The most probable token of rows with T 0, and samples of the nucleus for the others. [B, V], [B] -> [B]"""
    best, ids = logits.topk(min(NUCLEUS_TOKENS, logits.shape[-1]))
    scaled = best.float() / temperatures.clamp(min=1e-3)[:, None]
    shares = scaled.softmax(-1)
    scaled = scaled.masked_fill(shares.cumsum(-1) - shares > top_p, float("-inf"))
    noise = torch.empty_like(scaled).exponential_(generator=generator).log_()
    columns = (scaled - noise).argmax(-1).masked_fill(temperatures == 0.0, 0)
    return ids.gather(1, columns[:, None]).squeeze(1)


def loop_starts(tokens: Tensor, length: int = REPEATED_TOKENS) -> Tensor:
    """Where each row begins to repeat itself, or the number of its tokens: `loop_start` of all rows. [B, n] -> [B]"""
    count = tokens.shape[1]
    none = torch.full((len(tokens),), count, device=tokens.device)
    if count <= length:
        return none
    tail, earlier = tokens[:, -length:], tokens[:, :-1].unfold(1, length, 1)
    is_same = (earlier == tail[:, None]).all(-1)
    place = torch.arange(is_same.shape[1], device=tokens.device)
    first = torch.where(is_same, place, -1).amax(1)
    period = (count - length - first).clamp(max=count - 1)
    column = torch.arange(count, device=tokens.device)[None]
    before = tokens.gather(1, (column - period[:, None]).clamp(min=0))
    repeats = (before == tokens) & (column >= period[:, None])
    repeated = repeats[:, : count - length].flip(1).int().cumprod(1).sum(1)
    return torch.where(first >= 0, count - length - repeated, none)


@torch.no_grad()
def write_wave(
    model: BatchedLlama,
    prompts: Sequence[Tokens],
    temperatures: Tensor,
    settings: WaveSettings,
    generator: torch.Generator,
) -> list[Tokens]:
    """The answers to prompts of similar length, each with its stop token unless it loops or is cut off."""
    longest = round_up(max(map(len, prompts)), 16)
    tokens, rows = _start(model, prompts, temperatures, settings, longest)
    stops = torch.tensor(settings.stop_ids, device=model.device)
    limits = torch.full((len(prompts),), settings.max_tokens, device=model.device)
    rows.chosen, step = _prefill(model, tokens, rows, longest, settings, generator), 0
    for step in range(1, settings.max_tokens + 1):
        end = longest + step - 1
        tokens[rows.index, end] = rows.chosen
        rows.is_running &= ~torch.isin(rows.chosen, stops)
        if step % CHECK_STEPS == 0 and _drop_finished(tokens[:, longest : end + 1], rows, limits, settings):
            break
        if step < settings.max_tokens:
            rows.mask[:, end] = 0.0
            width = round_up(end + 1)
            positions, mask = (end - rows.padding)[:, None], rows.mask[:, None, None, :width]
            states = model.forward(rows.chosen[:, None], positions, rows.cache, end, mask, width)[:, 0]
            rows.chosen = choose_tokens(model.logits(states), rows.temperatures, settings.top_p, generator)
    return _answers(tokens[:, longest : longest + step], limits, stops)


def _start(
    model: BatchedLlama, prompts: Sequence[Tokens], temperatures: Tensor, settings: WaveSettings, longest: int
) -> tuple[Tensor, WaveRows]:
    """The tokens of all rows [B, columns], padded on the left, and the rows."""
    columns, device = round_up(longest + settings.max_tokens), model.device
    filled = np.full((len(prompts), columns), settings.stop_ids[0], dtype=np.int64)
    for row, prompt in enumerate(prompts):
        filled[row, longest - len(prompt) : longest] = prompt
    padding = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
    column = torch.arange(columns, device=device)
    is_hidden = (column < padding[:, None]) | (column >= longest)
    mask = torch.zeros(is_hidden.shape, dtype=model.dtype, device=device).masked_fill_(is_hidden, float("-inf"))
    index = torch.arange(len(prompts), device=device)
    running = torch.ones(len(prompts), dtype=torch.bool, device=device)
    cache = model.new_cache(len(prompts), columns)
    rows = WaveRows(index, padding, temperatures.to(device), mask, index, running, cache)
    return torch.from_numpy(filled).to(device), rows


def _prefill(
    model: BatchedLlama,
    tokens: Tensor,
    rows: WaveRows,
    longest: int,
    settings: WaveSettings,
    generator: torch.Generator,
) -> Tensor:
    """Compute all prompts, and choose the first token of each row."""
    count, chosen = max(PREFILL_TOKENS // longest, 1), list[Tensor]()
    for start in range(0, len(tokens), count):
        part = slice(start, start + count)
        positions = (torch.arange(longest, device=model.device)[None] - rows.padding[part, None]).clamp(min=0)
        mask = causal_mask(rows.padding[part], longest, longest, model.dtype)
        states = model.forward(tokens[part, :longest], positions, rows.cache.rows(part), 0, mask)[:, -1]
        chosen.append(choose_tokens(model.logits(states), rows.temperatures[part], settings.top_p, generator))
    return torch.cat(chosen)


def _drop_finished(written: Tensor, rows: WaveRows, limits: Tensor, settings: WaveSettings) -> bool:
    """Find rows that loop, drop those that ended if they are many; whether the wave ends."""
    steps = written.shape[1]
    starts = loop_starts(written[rows.index])
    is_looping = rows.is_running & (starts < steps)
    limits[rows.index] = torch.where(is_looping, starts, limits[rows.index])
    rows.is_running &= ~is_looping
    running = int(rows.is_running.sum())
    if running <= FEW_ROWS_SHARE * len(written) or settings.is_over():
        return True
    if running < (1.0 - FINISHED_SHARE) * len(rows.index):
        rows.keep(rows.is_running.nonzero().squeeze(1))
    return False


def _answers(written: Tensor, limits: Tensor, stops: Tensor) -> list[Tokens]:
    is_stop = torch.isin(written, stops)
    ends = torch.where(is_stop.any(1), is_stop.int().argmax(1) + 1, written.shape[1])
    lengths, rows = torch.minimum(ends, limits).tolist(), written.int().cpu().numpy()
    return [row[:length].copy() for row, length in zip(rows, lengths, strict=True)]
