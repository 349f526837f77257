"""What happens between the products of a layer: norms, gates, turns, and the mix of what was looked at.

`Composed` is torch's own operations, on any device. `Compiled` is the kernels of `native_ops.cpp`, for the few rows of a
decoding pass on a CPU; what they are not made for it leaves to the other. Both compute what the Llama family computes;
what they round otherwise is a unit in the last place. Knows tensors and rows of a cache; knows no weight by name.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import Place
from specchat.forward.attention import added, attended, mixed, turned
from specchat.forward.batch import Laid
from specchat.forward.native_ops import NUMBERS, Found, address, kernels

FEW_ROWS, ALWAYS_FEW = 512, 32  # of one thread; more threads share out fewer rows sooner, but never a tree of guesses
FEW_SCORES = 2**13  # of all heads; from here on torch's attention is as quick, and then quicker
FEW_EXACT_SCORES = 2**16  # of all heads and one row: torch's would have to take rows in blocks
LARGEST_HEAD = 512  # that the kernels have room for

NEAR = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # what a different order of sums may change

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Heads:
    """How attention is cut up, and what norms add to a mean square."""

    count: int
    kv_count: int
    size: int
    epsilon: float


@dataclass(frozen=True)
class Asked:
    """What a layer's attention begins with: queries, keys and values of every row, and how they are turned."""

    states: Tensor  # [N, (heads + 2 kv_heads) * size]
    query_norm: Tensor | None  # [size]
    key_norm: Tensor | None
    cosine: Tensor  # [N, 1, size]
    sine: Tensor  # as cosine; its first half is negative


class Composed:
    """By torch's own operations, on any device."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads

    def norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        """RMS norm over the last numbers. [N, D]"""
        return functional.rms_norm(rows, weight.shape, weight, self.heads.epsilon)

    def add(self, rows: Tensor, more: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The sum, and its norm. [N, D] each"""
        rows = rows + more
        return rows, self.norm(rows, weight)

    def gate(self, both: Tensor) -> Tensor:
        """silu of the first half of every row, times the second. [N, 2 inner] -> [N, inner]"""
        gate, up = both.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def is_exact_over(self, _width: int) -> bool:
        """Whether a row that looks at so many keys is mixed alike, to the bit, whatever other rows there are."""
        return False

    def attend(self, asked: Asked, laid: Laid, layer: int, window: int | None) -> Tensor:
        """Write keys and values of the rows, and mix what they see of a layer. [N, heads * size]"""
        heads = self.heads
        states = asked.states.view(len(asked.states), -1, heads.size)
        queries, keys, values = states.split((heads.count, heads.kv_count, heads.kv_count), dim=1)
        both = states[:, : heads.count + heads.kv_count]
        if asked.query_norm is not None and asked.key_norm is not None:
            norms = ((queries, asked.query_norm), (keys, asked.key_norm))  # of heads, which kernels do while they turn
            both = torch.cat([Composed.norm(self, each, weight) for each, weight in norms], dim=1)
        queries, keys = turned(both, asked.cosine, asked.sine).split((heads.count, heads.kv_count), dim=1)
        keys, values = laid.write(layer, keys.transpose(0, 1)[None], values.transpose(0, 1)[None])
        return attended(queries, keys, values, laid.masks[window])


class Compiled(Composed):
    """By compiled kernels, where rows are few; else by torch. All numbers have one dtype."""

    def __init__(self, heads: Heads, found: Found, dtype: torch.dtype) -> None:
        super().__init__(heads)
        made = [found.kernel(name, dtype) for name in ("norm", "add", "gate", "turn", "attend")]
        self._norm, self._add, self._gate, self._turn, self._attend = (each for each in made if each is not None)

    def norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        if len(rows) > few_rows():
            return super().norm(rows, weight)
        out = torch.empty_like(rows)
        self._norm(rows.data_ptr(), weight.data_ptr(), out.data_ptr(), *rows.shape, self.heads.epsilon)
        return out

    def add(self, rows: Tensor, more: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        if len(rows) > few_rows():
            return super().add(rows, more, weight)
        more = more.contiguous()
        total, out = torch.empty_like(rows), torch.empty_like(rows)
        self._add(
            rows.data_ptr(), more.data_ptr(), weight.data_ptr(), total.data_ptr(), out.data_ptr(),
            *rows.shape, self.heads.epsilon,
        )  # fmt: skip
        return total, out

    def gate(self, both: Tensor) -> Tensor:
        if len(both) > few_rows():
            return super().gate(both)
        both = both.contiguous()
        count, inner = both.shape[0], both.shape[1] // 2
        out = both.new_empty(count, inner)
        self._gate(both.data_ptr(), out.data_ptr(), count, inner)
        return out

    def is_exact_over(self, width: int) -> bool:
        return self.heads.count * width <= FEW_EXACT_SCORES

    def attend(self, asked: Asked, laid: Laid, layer: int, window: int | None) -> Tensor:
        states, heads, mask, place = asked.states.contiguous(), self.heads, laid.masks[window], laid.place
        count, shared = len(states), heads.count // heads.kv_count
        if count > few_rows() or place is None:
            return super().attend(asked, laid, layer, window)
        keys, values, first, width = place(layer)
        begin, stride = first * heads.size * keys.element_size(), keys.stride(1)
        queries = states.new_empty(heads.count, count, heads.size)
        self._turn(
            states.data_ptr(), address(asked.query_norm), address(asked.key_norm),
            asked.cosine.data_ptr(), asked.sine.data_ptr(), queries.data_ptr(),
            keys.data_ptr() + begin, values.data_ptr() + begin,
            count, heads.count, heads.kv_count, heads.size, stride, heads.epsilon,
        )  # fmt: skip
        if heads.count * count * width > FEW_SCORES and not laid.is_exact:
            rows = queries.view(1, heads.kv_count, -1, heads.size)
            mix = mixed(rows, keys[:, :, :width], values[:, :, :width], mask)
            return mix.view(heads.count, count, heads.size).transpose(0, 1).reshape(count, -1)
        out = states.new_empty(count, heads.count * heads.size)
        room = torch.empty(shared * count * (2 * heads.size + width))
        self._attend(
            queries.data_ptr(), keys.data_ptr(), values.data_ptr(), address(mask),
            out.data_ptr(), count, heads.count, heads.kv_count, heads.size, stride, width, room.data_ptr(),
        )  # fmt: skip
        return out


def few_rows() -> int:
    """Up to how many rows one thread is done before as many as compute are awake, and have shared them out."""
    return max(FEW_ROWS // torch.get_num_threads(), ALWAYS_FEW)


def between(heads: Heads, like: Tensor) -> Composed:
    """The quickest there is for numbers like these, where they are."""
    if like.device.type != "cpu" or like.dtype not in NUMBERS or heads.size > LARGEST_HEAD:
        return Composed(heads)
    found = kernels()
    if found.library is None:
        return Composed(heads)
    compiled = Compiled(heads, found, like.dtype)
    if not agrees(compiled, like.dtype):
        log.warning("the compiled kernels compute otherwise than torch, and are not used")
        return Composed(heads)
    return compiled


@torch.inference_mode()
def agrees(compiled: Compiled, dtype: torch.dtype) -> bool:
    """Whether the kernels say what torch says of a few rows: compilers have been wrong, and files been broken."""
    ours, theirs, near = _said(compiled, dtype), _said(Composed(compiled.heads), dtype), NEAR[dtype]
    return all(torch.allclose(our, their, near, near) for our, their in zip(ours, theirs, strict=True))


def _said(by: Composed, dtype: torch.dtype) -> list[Tensor]:
    """All that is computed of three rows behind five sure ones."""
    heads, first, count, width = by.heads, 5, 3, 64
    keys, values = _some(dtype, 2, 1, heads.kv_count, 16, heads.size)
    mask = added(torch.ones(count, first + count).tril_(first).bool(), heads.count // heads.kv_count, keys)

    def write(_layer: int, new_keys: Tensor, new_values: Tensor) -> tuple[Tensor, Tensor]:
        end = first + count
        keys[:, :, first:end], values[:, :, first:end] = new_keys, new_values
        return keys[:, :, :end], values[:, :, :end]

    places = torch.arange(count)
    laid = Laid(places, places, {None: mask}, write, lambda _layer: Place(keys, values, first, first + count))
    turn, norm = _some(dtype, count, 1, heads.size), _some(dtype, heads.size)
    states = _some(dtype, count, (heads.count + 2 * heads.kv_count) * heads.size)
    mix = by.attend(Asked(states, norm, norm, turn, turn), laid, 0, None)
    rows, weight = _some(dtype, count, width), _some(dtype, width)
    return [mix, keys, values, by.norm(rows, weight), *by.add(rows, rows, weight), by.gate(rows)]


def _some(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.arange(math.prod(shape)).float().sin_().view(shape).to(dtype)
