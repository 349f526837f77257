"""Tiles and splits of the products of experts, each timed: what could be taken in place of what is.

Rows keep their bits whatever the tile is; with other splits a row has other bits, but the same ones in every pass. Each
tile is a kernel that must be compiled, so only those are tried that promise most by their registers, shared memory and
instructions (docs/gpu.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from specchat.forward.cuda.triton_experts import ExpertPairs, tiled_parts
from specchat.forward.cuda.triton_linear import TILES, Tile, TiledWeight, hardware, split_count
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat_bench.gpu.experts import ExpertShape, chosen_experts, shapes, stack_of_noise
from specchat_bench.gpu.gpu_bench import GpuBench
from specchat_bench.gpu.report import Line, attempt

TRIED = (TILES[0], Tile(1, 128, 4, 2), Tile(1, 64, 2, 3), Tile(1, 64, 4, 3))
SPLIT_FACTORS = (1, 0.5, 2)  # of the splits that are taken now


@torch.inference_mode()
def tile_lines(bench: GpuBench) -> Iterator[Line]:
    """A line for each tile and number of splits; the first one of a product is what is taken now."""
    for name, shape in shapes(bench).items():
        for weights in shape.formats:
            for layer in shape.products:
                yield from _lines(
                    f"{name}, {weights} {layer}", shape, stack_of_noise(shape, weights, layer, bench), bench
                )


def _lines(name: str, shape: ExpertShape, stack: ExpertLinear, bench: GpuBench) -> Iterator[Line]:
    assert stack.stack is not None, "the section of experts says why there is none"
    weight, chosen = tiled_parts(stack.stack)[0][0], chosen_experts(shape, bench)
    _has_tensor_cores, processors = hardware(bench.device)
    now = split_count(weight.outputs * shape.choices, weight.blocks, processors)
    counts = [*dict.fromkeys(_whole_splits(weight, round(factor * now)) for factor in SPLIT_FACTORS)]
    for tile in TRIED if bench.has_clock else TRIED[:2]:
        for splits in counts:
            sizes = f"{tile.outputs} outputs, {tile.warps} warps, {tile.stages} stages, {splits} splits"
            product = partial(_time, weight, tile, splits, stack.bytes / shape.experts, bench)
            yield attempt(f"{name}: {sizes}", *(partial(product, chosen[:, :count]) for count in bench.sizes.rows))


def _whole_splits(weight: TiledWeight, wanted: int) -> int:
    """None of which is empty."""
    wanted = min(max(wanted, 1), weight.blocks)
    return -(-weight.blocks // -(-weight.blocks // wanted))


def _time(
    weight: TiledWeight, tile: Tile, splits: int, expert_bytes: float, bench: GpuBench, chosen: torch.Tensor
) -> Line:
    """Of one product, whose rows choose other experts in each call."""
    rows = bench.noise(chosen.shape[1], weight.inputs)
    pairs = [ExpertPairs.sort(each).tiles for each in chosen]
    calls = [partial(weight.product_of, rows, None, tile, splits, each) for each in pairs]
    touched = sum(len(each.unique()) for each in chosen) / len(chosen)
    return bench.timed(calls, round(touched * expert_bytes), f" {chosen.shape[1]}")
