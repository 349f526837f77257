"""Tree attention over a KV cache in Triton, for a few rows (split-KV) and for the rows of a prefill.

A row has the same bits alone, in a chain and in a tree, because nothing that decides the order of its sums depends on
other rows:

- Keys are taken in the order of their positions. Committed rows lie in that order; of the nodes of a tree, a row
  gathers its own path, so that node 7 at depth 2 is read as the third position after the text, as in plain decoding.
- Blocks of keys begin at multiples of BLOCK_KEYS (of fewer, for wide heads) and splits at multiples of SPLIT_KEYS,
  counted in positions. A block that a row does not see adds exactly 0. Partial results of splits are added in the
  order of the splits.
- A tile of rows has one shape for all passes of up to MASK_BITS rows. A row of a tile never enters another's sum.

The number of programs depends on what the host knows (rows of the pass, rows of the cache); the length is read on the
device. Knows tensors and rows; knows no layer.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportOperatorIssue=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.cache_sizes import SPLIT_KEYS
from specchat.forward.batch import MASK_BITS, CacheRows
from specchat.forward.fused_ops import AttentionDimensions

BLOCK_KEYS, MIN_BLOCK_KEYS = 64, 16
BLOCK_BYTES = 2**14  # keys of a block; two blocks of keys and of values are in the memory of a multiprocessor
COMBINED_SPLITS = 16  # partial results that are added at once
MAX_SPLIT_PROGRAMS = 64  # for each tile and key head; each computes every 64th split
TILE_ROWS, PREFILL_TILE_ROWS = 16, 64  # queries of a tile: nodes times queries that share a key head
WIDE_HEAD = 256  # of larger heads, a tile of a prefill has as few queries as one of a tree
OPTIONS = {"num_stages": 2, "enable_fp_fusion": False}  # a fused multiplication rounds less often, in some places


@triton.jit
def _attend_block(
    queries, keys, values, key_rows, is_loaded, is_seen, row_max, row_sum, output,
    stride_row, scale, soft_cap,
    SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, HAS_SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """Add one block of keys to the running softmax of a tile; rows that see none of them keep their bits."""
    column = tl.arange(0, BLOCK_SIZE)
    offsets = key_rows[:, None] * stride_row + column[None, :]
    is_inside = is_loaded[:, None] & (column < SIZE)[None, :]
    block_keys = tl.load(keys + offsets, mask=is_inside, other=0.0)
    scores = tl.dot(queries, tl.trans(block_keys), input_precision="ieee") * scale
    if HAS_SOFT_CAP:  # soft_cap * tanh(scores / soft_cap)
        scores = soft_cap * (2.0 / (1.0 + tl.exp(-2.0 * scores / soft_cap)) - 1.0)
    scores = tl.where(is_seen, scores * 1.4426950408889634, float("-inf"))  # log2(e): the exponentials are of 2
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)  # of rows that have seen nothing
    kept = tl.exp2(row_max - finite_max)
    weights = tl.exp2(scores - finite_max[:, None])
    block_values = tl.load(values + offsets, mask=is_inside, other=0.0)
    row_sum = row_sum * kept + tl.sum(weights, axis=1)
    output = tl.dot(weights.to(block_values.dtype), block_values, output * kept[:, None], input_precision="ieee")
    return new_max, row_sum, output


@triton.jit
def _add_sink(sink, row_max, row_sum):
    """The factor of a result and its sum of weights, with a score that has no value beside those of the keys."""
    scaled = sink.to(tl.float32) * 1.4426950408889634
    new_max = tl.maximum(row_max, scaled)
    kept = tl.exp2(row_max - new_max)
    return kept, row_sum * kept + tl.exp2(scaled - new_max)


@triton.jit
def _path_rows(path, key_position, committed, NODES: tl.constexpr):
    """The rows of a node's path at these positions: committed rows, then its ancestors in the order of their depths."""
    bit = tl.arange(0, NODES)
    is_ancestor = ((path >> bit.to(tl.int64)) & 1).to(tl.int32)
    depth = tl.cumsum(is_ancestor, axis=0) - 1
    is_at = (depth[None, :] == (key_position - committed)[:, None]) & (is_ancestor[None, :] == 1)
    ancestor = tl.sum(tl.where(is_at, bit[None, :], 0), axis=1)
    is_path = (key_position < committed) | (tl.sum(is_at.to(tl.int32), axis=1) > 0)
    return tl.where(key_position < committed, key_position, committed + ancestor), is_path


@triton.jit(do_not_specialize=["count", "splits", "window"])  # one compiled kernel for all passes
def _attention_kernel(
    queries, keys, values, first_row, length, ancestors, sinks, output, partial_output, partial_max, partial_sum,
    count, splits, stride_head, stride_row, scale, soft_cap, window,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr, NODES: tl.constexpr,
    IS_SPLIT: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFT_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """One tile of rows, one key head, and every n-th split of the keys (without IS_SPLIT: all keys)."""
    group: tl.constexpr = HEADS // KV_HEADS
    nodes_in_tile: tl.constexpr = TILE // group
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    committed, offset = tl.load(length).to(tl.int64), tl.load(first_row).to(tl.int64)
    member = tl.arange(0, TILE)
    node_in_tile = member // group
    node = tile * nodes_in_tile + node_in_tile
    is_row = (node_in_tile < nodes_in_tile) & (node < count)
    head = kv_head * group + member % group
    if IS_SPLIT:
        bit = tl.arange(0, NODES)
        paths = tl.load(ancestors + node, mask=is_row, other=0)
        depth = tl.sum(((paths[:, None] >> bit[None, :].to(tl.int64)) & 1).to(tl.int32), axis=1) - 1
        position = committed + tl.where(is_row, depth, 0)
    else:
        position = committed + tl.where(is_row, node, 0)
    column = tl.arange(0, BLOCK_SIZE)
    query_offsets = (node.to(tl.int64) * HEADS + head)[:, None] * SIZE + column[None, :]
    is_number = is_row[:, None] & (column < SIZE)[None, :]
    tile_queries = tl.load(queries + query_offsets, mask=is_number, other=0.0)
    end = tl.max(position, axis=0) + 1
    begin = committed * 0
    if HAS_WINDOW:
        smallest = tl.min(tl.where(is_row, position, end), axis=0)
        begin = tl.maximum(smallest - window + 1, 0)
    shared_end = end
    if IS_SPLIT:
        shared_end = committed // BLOCK * BLOCK  # blocks before it hold committed rows only
    keys += kv_head * stride_head
    values += kv_head * stride_head
    first_split, last_split, step = tl.program_id(2), 1, 1
    if IS_SPLIT:
        last_split = tl.cdiv(end, SPLIT)
        step = tl.num_programs(2)
    for split in range(first_split, last_split, step):
        row_max = tl.full([TILE], float("-inf"), tl.float32)
        row_sum = tl.zeros([TILE], tl.float32)
        result = tl.zeros([TILE, BLOCK_SIZE], tl.float32)
        low, high = begin // BLOCK * BLOCK, end
        if IS_SPLIT:
            low = tl.maximum(low, split * SPLIT)
            high = tl.minimum(end, (split + 1) * SPLIT)
        for start in range(low, tl.minimum(high, shared_end), BLOCK):
            key_position = start + tl.arange(0, BLOCK)
            is_seen = is_row[:, None] & (key_position[None, :] <= position[:, None])
            if HAS_WINDOW:
                is_seen &= key_position[None, :] > position[:, None] - window
            row_max, row_sum, result = _attend_block(
                tile_queries, keys, values, offset + key_position, key_position < end, is_seen,
                row_max, row_sum, result, stride_row, scale, soft_cap, SIZE, BLOCK_SIZE, HAS_SOFT_CAP,
            )  # fmt: skip
        if IS_SPLIT:
            for start in range(tl.maximum(low, shared_end), high, BLOCK):
                key_position = start + tl.arange(0, BLOCK)
                for index in range(tl.minimum(nodes_in_tile, count - tile * nodes_in_tile)):
                    gathering = tile * nodes_in_tile + index
                    path = tl.load(ancestors + gathering)
                    key_row, is_path = _path_rows(path, key_position, committed, NODES)
                    is_seen = (is_row & (node == gathering))[:, None] & is_path[None, :]
                    if HAS_WINDOW:
                        is_seen &= key_position[None, :] > position[:, None] - window
                    row_max, row_sum, result = _attend_block(
                        tile_queries, keys, values, offset + key_row, is_path, is_seen,
                        row_max, row_sum, result, stride_row, scale, soft_cap, SIZE, BLOCK_SIZE, HAS_SOFT_CAP,
                    )  # fmt: skip
        if IS_SPLIT:
            partial = (node.to(tl.int64) * HEADS + head) * splits + split
            tl.store(partial_max + partial, row_max, mask=is_row)
            tl.store(partial_sum + partial, row_sum, mask=is_row)
            tl.store(partial_output + partial[:, None] * SIZE + column[None, :], result, mask=is_number)
        else:
            if HAS_SINKS:
                kept, row_sum = _add_sink(tl.load(sinks + head), row_max, row_sum)
                result = result * kept[:, None]
            result = result / row_sum[:, None]
            tl.store(output + query_offsets, result.to(output.dtype.element_ty), mask=is_number)


@triton.jit(do_not_specialize=["splits"])
def _combine_kernel(
    partial_output, partial_max, partial_sum, length, ancestors, sinks, output, splits,
    HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
    NODES: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Add the partial results of one head of one row, in the order of the splits."""
    node, head = tl.program_id(0), tl.program_id(1)
    bits = (tl.load(ancestors + node) >> tl.arange(0, NODES).to(tl.int64)) & 1
    depth = tl.sum(bits.to(tl.int32), axis=0) - 1
    used = (tl.load(length).to(tl.int64) + depth) // SPLIT + 1  # splits up to the row's own position
    column = tl.arange(0, BLOCK_SIZE)
    row = (node.to(tl.int64) * HEADS + head) * splits
    row_max = tl.full([1], float("-inf"), tl.float32)
    row_sum = tl.zeros([1], tl.float32)
    result = tl.zeros([BLOCK_SIZE], tl.float32)
    for start in range(0, used, BLOCK):
        split = start + tl.arange(0, BLOCK)
        is_used = split < used
        maxima = tl.load(partial_max + row + split, mask=is_used, other=float("-inf"))
        sums = tl.load(partial_sum + row + split, mask=is_used, other=0.0)
        is_number = is_used[:, None] & (column < SIZE)[None, :]
        outputs = tl.load(partial_output + (row + split)[:, None] * SIZE + column[None, :], mask=is_number, other=0.0)
        new_max = tl.maximum(row_max, tl.max(maxima, axis=0))
        finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)  # splits before a sliding window
        kept, weights = tl.exp2(row_max - finite_max), tl.exp2(maxima - finite_max)
        row_sum = row_sum * kept + tl.sum(sums * weights, axis=0)
        result = result * kept + tl.sum(outputs * weights[:, None], axis=0)
        row_max = new_max
    if HAS_SINKS:
        kept, row_sum = _add_sink(tl.load(sinks + head), row_max, row_sum)
        result = result * kept
    to = output + (node.to(tl.int64) * HEADS + head) * SIZE + column
    tl.store(to, (result / row_sum).to(output.dtype.element_ty), mask=column < SIZE)


def keys_of_block(block_size: int, dtype: torch.dtype) -> int:
    """Keys that are multiplied at once: as many for all passes of a model.

    >>> keys_of_block(128, torch.bfloat16), keys_of_block(128, torch.float32), keys_of_block(256, torch.bfloat16)
    (64, 32, 32)
    """
    return min(max(BLOCK_BYTES // (block_size * dtype.itemsize), MIN_BLOCK_KEYS), BLOCK_KEYS)


def attention(
    queries: Tensor,
    location: CacheRows,
    layer: int,
    sizes: AttentionDimensions,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of the rows of a pass to those that they see. [N, heads, size] -> [N, heads * size]

    With ancestor masks, the keys are split and the rows are batch invariant; without, it is a prefill.
    """
    (keys, values), count, scores = location.kv(layer), len(queries), sizes.scores
    group, is_split = sizes.heads // sizes.kv_heads, location.ancestors is not None
    is_small = is_split or sizes.head_size > WIDE_HEAD
    tile = max(TILE_ROWS if is_small else PREFILL_TILE_ROWS, triton.next_power_of_2(group))
    splits = triton.cdiv(location.kv_length, SPLIT_KEYS)
    output = queries.new_empty(count, sizes.heads * sizes.head_size)
    partial_shape = (count, sizes.heads, splits if is_split else 0)
    partial_max, partial_sum = (queries.new_empty(partial_shape, dtype=torch.float32) for _ in range(2))
    partial_output = queries.new_empty(*partial_shape, sizes.head_size, dtype=torch.float32)
    block_size = max(16, triton.next_power_of_2(sizes.head_size))
    ancestors = location.length if location.ancestors is None else location.ancestors  # a prefill does not read it
    some_sinks = location.length if sinks is None else sinks
    grid = (triton.cdiv(count, tile // group), sizes.kv_heads, min(splits, MAX_SPLIT_PROGRAMS) if is_split else 1)
    _attention_kernel[grid](
        queries, keys, values, location.first_row, location.length, ancestors, some_sinks, output, partial_output,
        partial_max, partial_sum, count, splits, keys.stride(1), keys.stride(2), scores.scale, scores.cap or 1.0,
        window or 0, HEADS=sizes.heads, KV_HEADS=sizes.kv_heads, SIZE=sizes.head_size, BLOCK_SIZE=block_size,
        TILE=tile, SPLIT=SPLIT_KEYS, BLOCK=keys_of_block(block_size, keys.dtype), NODES=MASK_BITS, IS_SPLIT=is_split,
        HAS_WINDOW=window is not None, HAS_SOFT_CAP=scores.cap is not None, HAS_SINKS=sinks is not None,
        **OPTIONS,
    )  # fmt: skip
    if is_split:
        _combine_kernel[(count, sizes.heads)](
            partial_output, partial_max, partial_sum, location.length, ancestors, some_sinks, output, splits,
            HEADS=sizes.heads, SIZE=sizes.head_size, BLOCK_SIZE=block_size, SPLIT=SPLIT_KEYS, BLOCK=COMBINED_SPLITS,
            NODES=MASK_BITS, HAS_SINKS=sinks is not None, **OPTIONS,
        )  # fmt: skip
    return output
