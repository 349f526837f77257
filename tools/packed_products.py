"""Time linear layers on the blocks of GGUF files: one row in milliseconds, several rows by that, and their bounds.

    python -m tools.packed_products --shapes 576x960,576x576,576x3072,1536x576 --formats Q4_1,Q8_0 --rows 1,4,8,16

The weights are random. There are so many layers of each shape that no cache holds them, as in a model, and formats and
rows are timed in turn; the minimum counts, of CPU time with one thread, so other programs disturb less. With `--ghz`,
the clock of the CPU, each cost has its bound: a pass reads the weights, as one row does, and multiplies. An instruction
of AVX512-VNNI multiplies 64 weights, others the sums of 32 inputs by their scales, and two of them begin in a cycle.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

import torch

from specchat.forward.linear.packed_linear import PACKED_FORMATS, PackedLinear, StoredBlocks, packed_linear
from specchat.forward.native.native_ops import native_kernels

BLOCK_WEIGHTS, PRODUCTS, PER_CYCLE = 1024, 16, 2  # 32 inputs of 32 outputs; dot products of a row; those of a cycle
SCALED = {"Q4_1": 6, "Q5_1": 6, "Q4_K": 6, "Q5_K": 6, "Q6_K": 8}  # its multiplications with scales and minimums
CODE_LIMIT = 61  # bytes below it are small numbers also where they are read as a half float


def random_layer(name: str, inputs: int, outputs: int) -> PackedLinear:
    kind = PACKED_FORMATS[name]
    size = inputs // kind.block_inputs * kind.block_bytes
    rows = torch.randint(CODE_LIMIT, (outputs, size), dtype=torch.uint8)
    layer = packed_linear([StoredBlocks(name, (outputs, inputs), lambda first, last: rows[first:last])], torch.bfloat16)
    if not isinstance(layer, PackedLinear):
        raise SystemExit(f"no kernel for {name} here: {native_kernels().missing_reason}")
    return layer


def pass_seconds(layers: Sequence[PackedLinear], batches: Mapping[int, torch.Tensor], threads: int) -> float:
    """Seconds of one product with each layer: of the CPU, or on the clock with several threads."""
    clock = time.process_time if threads == 1 else time.perf_counter
    started_at = clock()
    for layer in layers:
        layer(batches[layer.in_features])
    return clock() - started_at


def bound(name: str, count: int, weights_per_second: float, ghz: float, threads: int) -> float:
    """The cost of a pass over so many rows, at least, by that of one row, which reads so many weights in a second."""
    instructions = count * (PRODUCTS + SCALED.get(name, 4)) / BLOCK_WEIGHTS  # for each weight
    return max(instructions * weights_per_second / (PER_CYCLE * ghz * 1e9 * threads), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="1536x8960", help="inputs x outputs, separated by commas")
    parser.add_argument("--formats", default="Q4_K,Q5_K,Q6_K,Q8_0", help="block types, separated by commas")
    parser.add_argument("--rows", default="1,4,8,16", help="rows of a pass, separated by commas")
    parser.add_argument("--mib", type=int, default=200, help="weights of each format")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ghz", type=float, default=0.0, help="of the CPU's clock, for the bound; 0: no bound")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.shapes.split(",")]
    counts = [int(count) for count in arguments.rows.split(",")]
    layers = dict[str, list[PackedLinear]]()
    for name in arguments.formats.split(","):
        layers[name] = [random_layer(name, *shape) for shape in shapes]
        copies = arguments.mib * 2**20 // sum(layer.bytes for layer in layers[name])
        layers[name] += [random_layer(name, *shape) for _ in range(copies) for shape in shapes]
    batches = {
        count: {inputs: torch.randn(count, inputs, dtype=torch.bfloat16) for inputs, _outputs in shapes}
        for count in counts
    }
    best = dict[tuple[str, int], float]()
    for _ in range(arguments.rounds):
        for key in ((name, count) for name in layers for count in counts):
            seconds = pass_seconds(layers[key[0]], batches[key[1]], arguments.threads)
            best[key] = min(seconds, best.get(key, seconds))
    print(f"{native_kernels().origin}; {arguments.shapes}, {arguments.threads} threads, one of each shape")
    cells = [f"c({count})" + (", bound" if arguments.ghz else "") for count in counts[1:]]
    print(f"| blocks | bits a weight | {counts[0]} row, ms | GB/s | {' | '.join(cells)} |")
    print("|---" * (4 + len(cells)) + "|")
    for name, all_layers in layers.items():
        weights = sum(inputs * outputs for inputs, outputs in shapes) * (len(all_layers) // len(shapes))
        read, first = sum(layer.bytes for layer in all_layers), best[name, counts[0]]
        row = [name, f"{read * 8 / weights:.2f}", f"{first * 1e3 * len(shapes) / len(all_layers):.3f}"]
        row.append(f"{read / first / 1e9:.1f}")
        for count in counts[1:]:
            cost = f"{best[name, count] / first:.2f}"
            least = bound(name, count, weights / first, arguments.ghz, arguments.threads) if arguments.ghz else 0.0
            row.append(f"{cost}, {least:.2f}" if arguments.ghz else cost)
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
