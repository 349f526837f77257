"""The linear layers of a mixture of experts: one for each expert, in the same format, chosen row by row.

A pass reads each expert that any of its rows chose once, however many rows chose it. A row has the same bits in every
batch where the layers of the experts are batch invariant. Knows tensors; knows no router, no network and no file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.forward.linear.linear import QuantLinear


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


@dataclass(frozen=True)
class ExpertLinear:
    """One linear layer of every expert."""

    experts: tuple[QuantLinear, ...]

    @property
    def bytes(self) -> int:
        return sum(expert.bytes for expert in self.experts)

    @property
    def is_batch_invariant(self) -> bool:
        return all(expert.is_batch_invariant for expert in self.experts)

    def __call__(self, rows: Tensor, by_expert: RowsByExpert) -> Tensor:
        """Each row, sorted by expert, times the weight of its expert. [N * choices, in] -> [N * choices, out]"""
        parts = zip(by_expert.experts, rows.split(by_expert.counts), strict=True)
        return torch.cat([self.experts[expert](part) for expert, part in parts])
