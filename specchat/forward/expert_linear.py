"""The linear layers of a mixture of experts: one for each expert, in the same format, chosen row by row.

A pass reads each expert that any of its rows chose once, however many rows chose it. A row has the same bits in every
batch where the layers of the experts are batch invariant. Knows tensors; knows no router, no network and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from specchat.forward.linear import QuantLinear, WeightSource
from specchat.forward.quant_linear import quant_linear


@dataclass(frozen=True)
class RowsOfExpert:
    """The rows that chose an expert, and which of their choices it was."""

    expert: int
    rows: Tensor  # [n]
    places: Tensor  # [n], below the number of choices of a row


@dataclass(frozen=True)
class ExpertLinear:
    """One linear layer of every expert."""

    experts: tuple[QuantLinear, ...]

    @classmethod
    def quantize(cls, experts: int, source_of: Callable[[int], WeightSource], quant_format: str) -> ExpertLinear:
        """Quantize the experts one after the other, so that at most one is in memory as floats."""
        return cls(tuple(quant_linear(source_of(expert), quant_format) for expert in range(experts)))

    @property
    def bytes(self) -> int:
        return sum(expert.bytes for expert in self.experts)

    @property
    def is_batch_invariant(self) -> bool:
        return all(expert.is_batch_invariant for expert in self.experts)

    def __getitem__(self, expert: int) -> QuantLinear:
        return self.experts[expert]

    def __len__(self) -> int:
        return len(self.experts)


def rows_by_expert(chosen: Tensor) -> Iterator[RowsOfExpert]:
    """Each expert that a row chose, once, in ascending order. [N, choices]

    >>> [(each.expert, each.rows.tolist()) for each in rows_by_expert(torch.tensor([[2, 0], [2, 5]]))]
    [(0, [0]), (2, [0, 1]), (5, [1])]
    """
    choices = chosen.shape[1]
    experts, order = chosen.flatten().sort(stable=True)
    unique, counts = experts.unique_consecutive(return_counts=True)
    for expert, places in zip(unique.tolist(), order.split(counts.tolist()), strict=True):
        yield RowsOfExpert(expert, places // choices, places % choices)


def run_experts(
    rows: Tensor, chosen: Tensor, shares: Tensor, expert_mlps: Sequence[Callable[[Tensor], Tensor]]
) -> Tensor:
    """The sum of what the chosen experts make of each row, times their shares. [N, D], [N, choices] twice -> [N, D]

    The choices of a row are added in the order in which it chose them, whatever the other rows chose.
    """
    parts = rows.new_empty(*chosen.shape, rows.shape[1])
    for each in rows_by_expert(chosen):
        parts[each.rows, each.places] = expert_mlps[each.expert](rows[each.rows])
    parts *= shares[:, :, None]
    out = parts[:, 0]
    for place in range(1, chosen.shape[1]):  # a sum over a dimension may depend on the number of rows
        out = out + parts[:, place]
    return out
