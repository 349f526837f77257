"""A GGUF file on a simulated GPU: what is planned, what its weights take there, and the logits beside those of a CPU.

    TRITON_INTERPRET=1 python -m tools.gguf_on_a_gpu FILE

Kernels run in Triton's interpreter, on one core: 270 million parameters take minutes. The CPU computes the blocks with
activations of 8 bits, and their numbers with float32 ones; the GPU computes the blocks in float32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.hub.memory_plan import QuantizedModel
from specchat.hub.safetensors_headers import read_architecture
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_weights import load_llama
from tests.fake_gpu import fake_gpu
from tests.triton_interpreter import interpreted_kernels

PROMPT, CONTEXT_TOKENS = (2, 105, 2364, 107, 9259), 256
MEGABYTE = 1e6


def load(folder: Path, quant_format: str, device: str) -> LlamaModel:
    limits = BatchLimits(prefill_chunk=64)
    return load_llama(folder, torch.float32, torch.device(device), CONTEXT_TOKENS, limits, quant_format=quant_format)


def logits(model: LlamaModel) -> Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64):
        return model.prefill(list(PROMPT), cache).logits.cpu()


def main(file: Path) -> None:
    architecture, size, folder = read_architecture(file), file.stat().st_size, prepared_gguf(file)
    for weights in ("gguf", "bf16"):
        planned = QuantizedModel(architecture, weights).weight_bytes()
        print(f"{weights}: {planned / MEGABYTE:.0f} MB of weights planned, {planned / size:.2f} times the file")
    on_cpu = {weights: logits(load(folder, weights, "cpu")) for weights in ("gguf", "float")}
    with fake_gpu(has_triton=True), interpreted_kernels():
        model = load(folder, "gguf", "cuda")
        model.graphs = None
        print(f"loaded: {model.bytes / MEGABYTE:.0f} MB, {model.bytes / size:.2f} times the file", flush=True)
        ours = logits(model)
    for weights, expected in on_cpu.items():
        difference = float((ours - expected).norm() / expected.norm())
        print(f"beside {weights} on a CPU: relative difference {difference:.1e}, likeliest token "
              f"{'the same' if torch.equal(ours.argmax(-1), expected.argmax(-1)) else 'another one'}")  # fmt: skip
    apart = float((on_cpu["gguf"] - on_cpu["float"]).norm() / on_cpu["float"].norm())
    print(f"the two of the CPU: relative difference {apart:.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
