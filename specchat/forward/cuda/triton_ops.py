"""The fused ops of a layer on a CUDA GPU: the kernels of `triton_rows.py` and `triton_attention.py` behind `TorchOps`.

Triton comes with torch for CUDA and compiles for the GPU that is there. At their first use the kernels are compared
with torch, and the attention of a tree with that of its paths, bit by bit; where one differs, or none can be compiled,
torch computes everything. Knows tensors and rows of a KV cache; knows no weight by name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from specchat.devices import compute_capability
from specchat.forward.attention import AttentionMask, attention
from specchat.forward.batch import CacheRows, ForwardBatch, ancestor_masks
from specchat.forward.cuda import triton_attention, triton_rows
from specchat.forward.cuda.cuda_graphs import CudaGraphCapture
from specchat.forward.cuda.kernel_trial import TENSOR_CORES, is_faster, passes
from specchat.forward.fused_ops import AttentionDimensions, QKVInputs, TorchOps, matches_torch
from specchat.forward.linear.linear import TOLERANCE, sample_tensor
from specchat.forward.llama.variations import SILU, Activation, SwiGluClamp

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_SIZE = 512  # keys and values of a block lie in the memory of a multiprocessor
SAMPLE_TREE = (-1, 0, 0, 2, 3)  # parents
TIMED_LENGTH = 2048
SAMPLE_LENGTH = triton_attention.SPLIT_KEYS - 2  # the paths of the tree cross the border of a split


class TritonOps(TorchOps):
    """Implemented with Triton kernels. All tensors must have one dtype and be on one GPU.

    The attention of passes without `cache_rows` is that of torch.
    """

    is_batch_invariant, reads_cache_rows = True, True

    def __init__(self, dimensions: AttentionDimensions) -> None:
        super().__init__(dimensions)
        self._norm_offset = float(dimensions.scaling.norms_add_one)

    def rms_norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return triton_rows.rms_norm(rows, weight, self.dimensions.epsilon, self._norm_offset)

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return triton_rows.add_rms_norm(rows, residual, weight, self.dimensions.epsilon, self._norm_offset)

    def activate_and_mul(self, gate_up: Tensor, activation: Activation = SILU) -> Tensor:
        if isinstance(activation, SwiGluClamp):  # no kernel does
            return super().activate_and_mul(gate_up, activation)
        return triton_rows.activate_and_mul(gate_up, activation)

    def attention(self, inputs: QKVInputs, batch: ForwardBatch, layer: int, window: int | None) -> Tensor:
        if batch.cache_rows is None:
            return super().attention(inputs, batch, layer, window)
        queries = triton_rows.qk_norm_rope(inputs, self.dimensions, batch.cache_rows, layer)
        windows = [each for each in (window, batch.cache_rows.window) if each is not None]
        window = min(windows, default=None)
        return triton_attention.attention(queries, batch.cache_rows, layer, self.dimensions, window, inputs.sinks)


@lru_cache
def triton_ops(dimensions: AttentionDimensions, dtype: torch.dtype, device: torch.device) -> TritonOps | None:
    """The kernels for this dtype and GPU; None, with a line in the log, where they fail or give other results."""
    is_possible = dtype in DTYPES and dimensions.head_size <= MAX_HEAD_SIZE and dimensions.head_size % 2 == 0
    if not is_possible:
        return None
    ops = TritonOps(dimensions)

    def is_right() -> bool:
        checks = (is_tree_invariant, is_prefill_right)
        return matches_torch(ops, dtype, device) and all(check(dimensions, dtype, device) for check in checks)

    is_used = passes(is_right, "Triton kernels") and is_fast(dimensions, dtype, device)
    return ops if is_used else None


@torch.inference_mode()
def is_fast(dimensions: AttentionDimensions, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether attention of a few rows to TIMED_LENGTH takes less time than with torch; not asked with tensor cores."""
    if compute_capability(device) >= TENSOR_CORES:
        return True
    mask = torch.ones(len(SAMPLE_TREE), len(SAMPLE_TREE), dtype=torch.bool, device=device).tril_()
    queries, chain = _sample_pass(dimensions, dtype, mask, TIMED_LENGTH)
    keys, values = chain.kv(0)
    allowed = torch.ones(len(mask), chain.kv_length, dtype=torch.bool, device=device).tril_(TIMED_LENGTH)
    seen = AttentionMask(allowed, dimensions.heads // dimensions.kv_heads, queries)
    return is_faster(
        lambda: triton_attention.attention(queries, chain, 0, dimensions),
        lambda: attention(queries, keys, values, seen, dimensions.scores),
        CudaGraphCapture(device), device, (dimensions, dtype),
    )  # fmt: skip


@torch.inference_mode()
def is_tree_invariant(dimensions: AttentionDimensions, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether each node of a small tree has the bits of plain decoding: its path committed, and the node alone."""
    paths, mask = list[list[int]](), torch.zeros(len(SAMPLE_TREE), len(SAMPLE_TREE), dtype=torch.bool)
    for node, parent in enumerate(SAMPLE_TREE):
        paths.append([*(paths[parent] if parent >= 0 else []), node])
        mask[node, paths[node]] = True
    queries, tree = _sample_pass(dimensions, dtype, mask.to(device))
    (keys, values), zero = tree.kv(0), tree.first_row
    together = triton_attention.attention(queries, tree, 0, dimensions)
    for node, path in enumerate(paths):
        order = torch.tensor([*range(SAMPLE_LENGTH), *(SAMPLE_LENGTH + each for each in path)]).to(device)
        path_rows = keys.index_select(2, order), values.index_select(2, order)
        alone = replace(
            tree,
            kv=lambda _layer, path_rows=path_rows: path_rows,
            length=zero + len(order) - 1,
            ancestors=zero[None] + 1,
        )
        if not torch.equal(
            triton_attention.attention(queries[node : node + 1], alone, 0, dimensions)[0], together[node]
        ):
            return False
    return True


@torch.inference_mode()
def is_prefill_right(dimensions: AttentionDimensions, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernel for many rows computes what the one for few rows does; it has a larger tile."""
    mask = torch.ones(len(SAMPLE_TREE), len(SAMPLE_TREE), dtype=torch.bool, device=device).tril_()
    queries, chain = _sample_pass(dimensions, dtype, mask)
    few, many = (
        triton_attention.attention(queries, each, 0, dimensions) for each in (chain, replace(chain, ancestors=None))
    )
    return torch.allclose(few, many, TOLERANCE[dtype], TOLERANCE[dtype])


def _sample_pass(
    dimensions: AttentionDimensions, dtype: torch.dtype, mask: Tensor, length: int = SAMPLE_LENGTH
) -> tuple[Tensor, CacheRows]:
    """Queries of a few nodes that follow `length` rows, and the rows of a cache."""
    device, count, rows = mask.device, len(mask), length + len(mask)
    stored = sample_tensor(dtype, 2, 1, dimensions.kv_heads, rows, dimensions.head_size).to(device)
    queries = sample_tensor(dtype, count, dimensions.heads, dimensions.head_size).to(device)
    zero = torch.zeros((), dtype=torch.long, device=device)
    kv = stored[0], stored[1]
    return queries, CacheRows(lambda _layer: kv, zero, zero + length, ancestor_masks(mask), rows)
