"""The tensors of a recurrent layer (Qwen3.5, Qwen3-Next) in a GGUF file → those of the published model.

The rates are stored as -exp(A_log). Where a key head serves several heads of values, files of Qwen3.5 have the first
head of each key head, then the second; those of Qwen3-Next keep the published order, but b and a in one tensor, by key
head. Knows shapes; reads no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufTensor
from specchat.weights.gguf.gguf_manifest import HeadOrder, MappedTensor, WeightChange

GATES = "{}"  # in the name of a tensor that holds those of b and a
WITH_KEYS = ("attn_qkv", "ssm_conv1d")  # before the values
BY_VALUE = (*WITH_KEYS, "attn_gate", "ssm_out")  # a head has as many rows as a value has numbers; others have one


@dataclass(frozen=True)
class RecurrentHeads:
    """Those of the recurrent layers of a model."""

    groups: int  # key heads
    heads: int  # of values
    key_size: int
    value_size: int
    are_tiled: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], *, are_tiled: bool) -> RecurrentHeads:
        keys = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
        return cls(*(config[key] for key in keys), are_tiled=are_tiled)

    def order(self, part: str) -> HeadOrder | None:
        """How the heads of a tensor are stored; None for the published order."""
        if part == "ssm_ba":
            return HeadOrder(self.groups, 2, self.heads // self.groups)
        if not self.are_tiled or part == "ssm_norm":
            return None
        first = 2 * self.groups * self.key_size if part in WITH_KEYS else 0
        size = self.value_size if part in BY_VALUE else 1
        return HeadOrder(self.heads // self.groups, self.groups, size, first, is_of_columns=part == "ssm_out")


def recurrent_tensors(heads: RecurrentHeads, tensor: GgufTensor, part: str, name: str) -> Iterator[MappedTensor]:
    """The published tensors in a tensor of the file. ModelError where its shape is not that of the metadata."""
    order = heads.order(part)
    if order is not None and tensor.shape[-1 if order.is_of_columns else 0] != order.first + order.count:
        expected = f"{order.first + order.count} {'columns' if order.is_of_columns else 'rows'}"
        raise ModelError(
            f"{tensor.path}: {tensor.name} has the shape {list(tensor.shape)}, and the file says {expected}"
        )
    if part == "ssm_ba" and order is not None:
        half = replace(tensor, shape=(heads.heads, *tensor.shape[1:]), bytes=tensor.bytes // 2)
        yield MappedTensor(half, name.replace(GATES, "b"), head_order=order)
        yield MappedTensor(half, name.replace(GATES, "a"), head_order=replace(order, skipped=heads.heads))
        return
    if part == "ssm_conv1d":
        tensor = replace(tensor, shape=(*tensor.shape[:-1], 1, tensor.shape[-1]))
    change = {"ssm_a": WeightChange.MINUS_EXP}.get(part, WeightChange.NONE)
    yield MappedTensor(tensor, name, change, head_order=order)
