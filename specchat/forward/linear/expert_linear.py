"""The linear layers of a mixture of experts: one for each expert, in the same format, chosen row by row.

A pass reads each expert that any of its rows chose once, however many rows chose it. A row has the same bits in every
batch where the layers of the experts are batch invariant. On a GPU the experts are one stack, which kernels multiply
without a wait of the host; passes over many rows take the layers one by one. Knows tensors; knows no router, no network
and no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specchat.forward.batch import MASK_BITS
from specchat.forward.cuda.kernel_trial import passes, triton_module
from specchat.forward.linear.linear import QuantLinear, with_tensors

if TYPE_CHECKING:
    from specchat.forward.cuda.triton_experts import ExpertPairs

FEW_ROWS = MASK_BITS  # of a pass in a CUDA graph
tried_layouts = dict[object, bool]()  # of stacks, and whether the kernels are right for them


@dataclass(frozen=True)
class RowsByExpert:
    """The choices of all rows, sorted by expert: a row is there once for each expert that it chose.

    Those of one row stay in their order: each is another expert, and to sort them takes as long as to compute some.
    """

    experts: list[int]  # that any row chose, in ascending order
    counts: list[int]  # choices of each of them
    order: Tensor | None  # [N * choices]: sorted place -> place in the flattened choices; None for one row
    choices: int  # of a row

    @classmethod
    def sort(cls, chosen: Tensor) -> RowsByExpert:
        """Sort the choices of the rows. [N, choices]

        >>> RowsByExpert.sort(torch.tensor([[2, 0], [2, 5]]))
        RowsByExpert(experts=[0, 2, 5], counts=[1, 2, 1], order=tensor([1, 0, 2, 3]), choices=2)
        """
        if len(chosen) == 1:
            return cls(chosen[0].tolist(), [1] * chosen.shape[1], None, chosen.shape[1])
        experts, order = chosen.flatten().sort(stable=True)
        unique, counts = experts.unique_consecutive(return_counts=True)
        return cls(unique.tolist(), counts.tolist(), order, chosen.shape[1])

    def gather(self, rows: Tensor) -> Tensor:
        """The rows in the order of the experts. [N, D] -> [N * choices, D]"""
        return rows.expand(self.choices, -1) if self.order is None else rows[self.order // self.choices]

    def scatter(self, outputs: Tensor) -> Tensor:
        """What the experts made of each row, in the order of its choices. [N * choices, D] -> [N, choices, D]"""
        by_choice = outputs
        if self.order is not None:
            by_choice = torch.empty_like(outputs)
            by_choice[self.order] = outputs
        return by_choice.view(-1, self.choices, outputs.shape[1])

    def weighted_sum(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """In the order of the choices: a sum over a dimension may depend on the rows. float32 [N, choices] -> [N, D]"""
        parts = self.scatter(outputs).float() * weights[:, :, None]
        total = parts[:, 0]
        for choice in range(1, self.choices):
            total = total + parts[:, choice]
        return total.to(outputs.dtype)


@dataclass(frozen=True)
class ExpertLinear:
    """One linear layer of every expert."""

    experts: tuple[QuantLinear, ...]
    stack: QuantLinear | None = None  # the same tensors with a first dimension, where kernels multiply all at once

    @classmethod
    def of(cls, linears: Iterable[QuantLinear], count: int, dtype: torch.dtype, device: torch.device) -> ExpertLinear:
        """Layers that are made one after the other, for rows of this dtype. On a GPU each is moved to the stack."""
        made, kernels = iter(linears), triton_module("triton_experts", device)
        first = next(made)
        if kernels is None or not isinstance(first, kernels.LAYERS):
            return cls((first, *made))
        stack = with_tensors(lambda tensor: tensor.new_empty(count, *tensor.shape), first)
        layout, experts, are_alike = _layout(first), list[QuantLinear](), True
        for place, linear in enumerate(chain([first], made)):
            are_alike = are_alike and _layout(linear) == layout
            move = partial(lambda place, to, tensor: to[place].copy_(tensor), place)
            experts.append(with_tensors(move, stack, linear) if are_alike else linear)
        stacked, key = cls(tuple(experts), stack), (layout, count, dtype)
        if are_alike and key not in tried_layouts:
            tried_layouts[key] = passes(lambda: kernels.are_right(stacked, dtype), "kernels for experts")
        return stacked if are_alike and tried_layouts[key] else cls(stacked.experts)

    def sort(self, chosen: Tensor) -> RowsByExpert | ExpertPairs:
        """The choices of all rows, as passes over few rows or over many need them. [N, choices]"""
        if self.stack is None or len(chosen) > FEW_ROWS:
            return RowsByExpert.sort(chosen)
        return triton_module("triton_experts", chosen.device).ExpertPairs.sort(chosen)

    @property
    def bytes(self) -> int:
        return sum(expert.bytes for expert in self.experts)

    @property
    def is_batch_invariant(self) -> bool:
        return self.stack is not None or all(expert.is_batch_invariant for expert in self.experts)

    def __call__(self, rows: Tensor, by_expert: RowsByExpert | ExpertPairs) -> Tensor:
        """What `by_expert` gathered times the weights of the experts. -> [N * choices, out]"""
        if not isinstance(by_expert, RowsByExpert):
            assert self.stack is not None, "`sort` says how"
            return by_expert.product(self.stack, rows)
        parts = zip(by_expert.experts, rows.split(by_expert.counts), strict=True)
        return torch.cat([self.experts[expert](part) for expert, part in parts])


def _layout(linear: QuantLinear) -> QuantLinear:
    """Equal for layers whose tensors fit the same stack."""
    return with_tensors(lambda tensor: (tensor.shape, tensor.dtype), linear)
