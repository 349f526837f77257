"""The tensors of a recurrent layer (Qwen3.5, Qwen3-Next) in a GGUF file → those of the published model.

The rates are stored as -exp(A_log). Where a key head serves several heads of values, files of Qwen3.5 have the first
head of each key head, then the second; those of Qwen3-Next keep the published order, but b and a in one tensor, by key
head. Knows shapes; reads no weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufTensor
from specchat.weights.gguf.gguf_manifest import HeadOrder, MappedTensor, WeightChange

GATES = "{}"  # in the name of a tensor that holds those of b and a
WITH_KEYS = ("attn_qkv", "ssm_conv1d")  # before the values
BY_VALUE = (*WITH_KEYS, "attn_gate", "ssm_out")  # a head has as many rows as a value has numbers; others have one


def recurrent_tensors(
    config: Mapping[str, Any], tensor: GgufTensor, part: str, name: str, *, are_tiled: bool
) -> Iterator[MappedTensor]:
    """The published tensors in a tensor of the file. ModelError where its shape is not that of the metadata."""
    order, heads = _head_order(config, part, are_tiled=are_tiled), config["linear_num_value_heads"]
    if order is not None and tensor.shape[-1 if order.is_of_columns else 0] != order.first + order.count:
        expected = f"{order.first + order.count} {'columns' if order.is_of_columns else 'rows'}"
        raise ModelError(
            f"{tensor.path}: {tensor.name} has the shape {list(tensor.shape)}, and the file says {expected}"
        )
    if part == "ssm_ba" and order is not None:
        half = replace(tensor, shape=(heads, *tensor.shape[1:]), bytes=tensor.bytes // 2)
        yield MappedTensor(half, name.replace(GATES, "b"), head_order=order)
        yield MappedTensor(half, name.replace(GATES, "a"), head_order=replace(order, skipped=heads))
        return
    if part == "ssm_conv1d":
        tensor = replace(tensor, shape=(*tensor.shape[:-1], 1, tensor.shape[-1]))
    change = WeightChange.MINUS_EXP if part == "ssm_a" else WeightChange.NONE
    yield MappedTensor(tensor, name, change, head_order=order)


def _head_order(config: Mapping[str, Any], part: str, *, are_tiled: bool) -> HeadOrder | None:
    """How the heads of a tensor are stored; None for the published order."""
    groups, shared = config["linear_num_key_heads"], config["linear_num_value_heads"] // config["linear_num_key_heads"]
    if part == "ssm_ba":
        return HeadOrder(groups, 2, shared)
    if not are_tiled or part == "ssm_norm":
        return None
    first = 2 * groups * config["linear_key_head_dim"] if part in WITH_KEYS else 0
    size = config["linear_value_head_dim"] if part in BY_VALUE else 1
    return HeadOrder(shared, groups, size, first, is_of_columns=part == "ssm_out")
