"""Time linear layers on the blocks of GGUF files: milliseconds of a product for few and many rows, beside its bytes.

    python -m tools.packed_products --shape 1536x8960 --formats Q4_K,Q5_K,Q6_K,Q8_0 --rows 1,4,8,16

The weights are random. There are so many layers of one shape that no cache holds them, as in a model, and formats and
rows are timed in turn; the minimum of CPU time counts, so other programs disturb less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from specchat.forward.linear.linear import QuantLinear
from specchat.forward.linear.packed_linear import PACKED_FORMATS, StoredBlocks, packed_linear
from specchat.forward.native.native_ops import native_kernels

CODE_LIMIT = 61  # bytes below it are small numbers also where they are read as a half float


def random_layer(name: str, inputs: int, outputs: int) -> QuantLinear:
    kind = PACKED_FORMATS[name]
    size = inputs // kind.block_inputs * kind.block_bytes
    rows = torch.randint(CODE_LIMIT, (outputs, size), dtype=torch.uint8)
    layer = packed_linear([StoredBlocks(name, (outputs, inputs), lambda first, last: rows[first:last])], torch.bfloat16)
    if layer is None:
        raise SystemExit(f"no kernel for {name} here: {native_kernels().missing_reason}")
    return layer


def pass_seconds(layers: Sequence[QuantLinear], rows: torch.Tensor) -> float:
    """CPU seconds of one product, the mean over all layers."""
    started_at = time.process_time()
    for layer in layers:
        layer(rows)
    return (time.process_time() - started_at) / len(layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="1536x8960", help="inputs x outputs")
    parser.add_argument("--formats", default="Q4_K,Q5_K,Q6_K,Q8_0", help="block types, separated by commas")
    parser.add_argument("--rows", default="1,4,8,16", help="rows of a pass, separated by commas")
    parser.add_argument("--mib", type=int, default=200, help="weights of each format")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    inputs, outputs = map(int, arguments.shape.split("x"))
    counts = [int(count) for count in arguments.rows.split(",")]
    layers = dict[str, list[QuantLinear]]()
    for name in arguments.formats.split(","):
        first = random_layer(name, inputs, outputs)
        others = arguments.mib * 2**20 // first.bytes
        layers[name] = [first, *(random_layer(name, inputs, outputs) for _ in range(others))]
    batches = {count: torch.randn(count, inputs, dtype=torch.bfloat16) for count in counts}
    best = dict[tuple[str, int], float]()
    for _ in range(arguments.rounds):
        for key in ((name, count) for name in layers for count in counts):
            seconds = pass_seconds(layers[key[0]], batches[key[1]])
            best[key] = min(seconds, best.get(key, seconds))
    print(f"{native_kernels().origin}; {inputs} x {outputs}, {arguments.threads} threads, milliseconds of CPU time")
    for name, same in layers.items():
        bits = same[0].bytes * 8 / (inputs * outputs)
        times = " ".join(f"{best[name, count] * 1e3:8.3f}" for count in counts)
        print(f"{name:6} {bits:5.2f} bits a weight  {times}")


if __name__ == "__main__":
    main()
