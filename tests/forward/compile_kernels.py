"""Compile every kernel that a layer launches, for a GPU that is not here: `compile_kernels.py CAPABILITY SIZE DTYPE`.

With `blocks` as a fourth argument, those that multiply blocks of GGUF files; with `experts`, those of a mixture of
experts. Prints a line of JSON for each kernel,
with the registers of a thread, the bytes that it spills, and its instructions, as the assembler of NVIDIA made them.
Launches are caught, so that no kernel runs: what is compiled is what the functions of the product would launch, with
their constants.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import triton
from torch import Tensor
from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from specchat.engine.sampling import DeviceNoise, LogitRows, Sampler
from specchat.forward.batch import CacheRows
from specchat.forward.cuda import (
    triton_attention,
    triton_blocks,
    triton_experts,
    triton_linear,
    triton_rows,
    triton_sampling,
    triton_tree,
)
from specchat.forward.cuda.device_states import DevicePass, DeviceStates
from specchat.forward.fused_ops import AttentionDimensions, QKVInputs
from specchat.forward.linear.block_linear import BLOCK_TYPES, BlockWeight
from specchat.forward.linear.byte_linear import ByteWeight
from specchat.forward.linear.int4_linear import Int4Weight
from specchat.forward.llama.gated_delta_net import DeltaNetSizes, GatedDeltaNet, MixerInputs
from specchat.forward.recurrences import DeltaGates

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int32: "*i32", torch.int64: "*i64",
    torch.int8: "*i8", torch.int16: "*i16", torch.float64: "*fp64",
}  # fmt: skip
WARP_SIZE, ALIGNMENT, CPU = 32, 16, torch.device("cpu")
# Parts are stored by all threads before one of them counts, and read after it, past the cache of the multiprocessor.
COUNT = r"atom\.global\.gpu\.acq_rel\.add"
MEMORY_OPERATION = re.compile(rf"\b(st\.global|bar\.sync|{COUNT}|atom|ld\.global\.cg|ld\.global)\b")
COUNTED_PARTS = re.compile(rf"st\.global( bar\.sync)+ {COUNT}( bar\.sync)+ st\.global( (?!atom)\S+)* ld\.global\.cg")
capability, head_size, dtype = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3])
compiled = set[str]()


def compile_launch(self: Any, *arguments: Any, grid: Any, warmup: bool, **constants: Any) -> None:
    """In place of a launch."""
    values = dict(zip(self.arg_names, arguments, strict=False)) | constants
    options = {name: value for name, value in constants.items() if name not in self.arg_names}
    signature, known, attributes = dict[str, str](), dict[str, Any](), dict[tuple[int], Any]()
    for index, parameter in enumerate(self.params):
        value, name = values[parameter.name], parameter.name
        is_number = isinstance(value, int) and not parameter.is_constexpr and not parameter.do_not_specialize
        if parameter.is_constexpr:
            signature[name], known[name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[name] = POINTERS[value.dtype]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, Tensor) or (is_number and value % ALIGNMENT == 0):
            attributes[(index,)] = [["tt.divisibility", ALIGNMENT]]
    if (key := f"{self.__name__} {signature} {known}") in compiled:
        return
    compiled.add(key)
    source = ASTSource(self, signature, known, attributes)
    kernel = compile_kernel(source, target=GPUTarget("cuda", capability, WARP_SIZE), options=options)
    used = {"shared": kernel.metadata.shared, **resources(kernel.asm["cubin"])}
    if constants.get("HAS_SPLITS"):
        used["counts_parts"] = bool(COUNTED_PARTS.search(" ".join(MEMORY_OPERATION.findall(kernel.asm["ptx"]))))
    print(json.dumps({"kernel": self.__name__, **used, "constants": known}), flush=True)


def resources(cubin: bytes) -> dict[str, int]:
    """Registers, spilled bytes and instructions, by the disassembler in Triton's wheel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, code = (
            subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout
            for option in ("--dump-resource-usage", "-sass")
        )
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found, usage
    instructions = len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+\S", code, re.MULTILINE))
    return {"registers": int(found[1]), "spilled": int(found[2]), "instructions": instructions}


def launch_all() -> None:
    """What the layers of an 8B model launch, for few rows and for many, and with a sliding window."""
    sizes, rows = AttentionDimensions(32, 8, head_size, 1e-6), torch.zeros(4, 4096, dtype=dtype)
    triton_rows.rms_norm(rows, rows[0], sizes.epsilon)
    triton_rows.add_rms_norm(rows, rows, rows[0], sizes.epsilon)
    triton_rows.activate_and_mul(rows)
    zero, stored = torch.zeros((), dtype=torch.long), torch.zeros(1, 8, 1024, head_size, dtype=dtype)
    for count, ancestors in ((4, torch.ones(4, dtype=torch.long)), (100, None)):
        location = CacheRows(lambda _layer: (stored, stored), zero, zero, ancestors, 1024)
        angles = torch.zeros(count, 1, head_size, dtype=dtype)
        qkv = torch.zeros(count, 48 * head_size, dtype=dtype)
        norm = angles[0, 0]
        queries = triton_rows.qk_norm_rope(QKVInputs(qkv, norm, norm, angles, angles), sizes, location, 0)
        for window in (None, 4096):
            triton_attention.attention(queries, location, 0, sizes, window)
        triton_attention.attention(queries, location, 0, sizes, None, torch.zeros(32, dtype=dtype))
    groups = torch.zeros(32, 4096)
    weight = Int4Weight.of_words(torch.zeros(16, 4096, 64, dtype=torch.int16), groups, groups.half(), 128, 4096)
    launch_product(triton_linear.tiled(weight), rows[0])
    for numbers in (torch.int8, torch.float8_e4m3fn):
        numbers_of_8_bits = ByteWeight.pack(torch.zeros(4096, 4096, dtype=numbers), groups[0])
        launch_product(triton_linear.tiled(numbers_of_8_bits), None)
    tree = triton_tree.GrowingTree(triton_tree.TreeLimits(5, 4, -3.9, 0.4), zero)
    for count in (1, 4, 4, 4, 4):
        tree.add_level(torch.zeros(count, 16), torch.zeros(count, 16, dtype=torch.long))
    noise = DeviceNoise(torch.zeros(4, 2, dtype=torch.int32), groups[0, 0].double(), groups[0, 0].double(), zero)
    logits = torch.zeros(4, 151936, dtype=dtype)
    triton_sampling.sample_columns(noise, logits)
    triton_sampling.rank_columns(noise, logits, triton_sampling.MAX_COUNT)
    triton_sampling.rank_columns(noise, logits[:, :32000], triton_sampling.MAX_COUNT, torch.arange(32000))
    launch_sampling_rules(logits)
    launch_recurrences()


def launch_sampling_rules(logits: Tensor) -> None:
    """Choices among what top-k, top-p and min-p keep, of a target, and of a draft in a reduced vocabulary."""
    sampler, rows = Sampler(0.8, 40, 0.9, 0.05), LogitRows([1] * 4)
    triton_sampling.sample_by_rules(logits, sampler, rows)
    triton_sampling.rank_by_rules(logits, sampler, rows, None, triton_sampling.MAX_COUNT)
    rows = LogitRows([1] * 4, token_ids=torch.arange(32000))
    triton_sampling.rank_by_rules(logits[:, :32000], sampler, rows, None, triton_sampling.MAX_COUNT)


def launch_recurrences() -> None:
    """What a recurrent layer of Qwen3.5-9B launches, for a tree and for a prompt."""
    sizes, heads = DeltaNetSizes(16, 32, 128, 128, 4), torch.zeros(32)
    weight, norm = torch.zeros(4, sizes.channels, dtype=dtype), torch.zeros(128, dtype=dtype)
    net = GatedDeltaNet(sizes, torch.clone, torch.clone, False, weight, DeltaGates(heads, heads), norm, torch.clone)
    states = DeviceStates({0: net}, norm)
    for count, ancestors in ((4, torch.ones(4, dtype=torch.long)), (100, None)):
        columns, gates = torch.zeros(count, sizes.channels, dtype=dtype), torch.zeros(count, 64, dtype=dtype)
        inputs = MixerInputs(columns, gates, torch.zeros(count, 32, 128, dtype=dtype))
        DevicePass(states, ancestors, states.layers).mix(net, 0, inputs, 1e-6)
    states.apply([0])


def launch_product(
    weight: triton_linear.TiledWeight, bias: Tensor | None, counts: Sequence[int] = (4, 20, 64, 100)
) -> None:
    for count in counts:
        splits = 4 if count <= triton_linear.FEW_ROWS else 1
        tile = triton_linear.tile_for(count, dtype, capability >= 80)
        weight.product_of(torch.zeros(count, weight.inputs, dtype=dtype), bias, tile, splits)


def launch_blocks() -> None:
    """Layers of an 8B model in each type of blocks, and one whose inputs and outputs are no whole tiles.

    Few rows for all types, and all tiles for two of them: those with the least and the most operations.
    """
    for name, outputs, inputs in (*((name, 4096, 4096) for name in BLOCK_TYPES), ("Q5_1", 4100, 2880)):
        weight = BlockWeight.zeros(name, outputs, inputs, CPU)
        counts = (4, 20, 64, 100) if name in ("Q4_0", "Q5_K") else (4,)
        launch_product(triton_blocks.tiled_blocks(weight), torch.zeros(outputs, dtype=dtype), counts)


def launch_experts() -> None:
    """The experts of a layer of Qwen3-30B-A3B in each format, and those of gpt-oss with incomplete tiles."""
    cpu, outputs, inputs = torch.device("cpu"), 1536, 2048
    pairs = triton_experts.ExpertPairs.sort(torch.zeros(4, 8, dtype=torch.long))
    groups = torch.zeros(inputs // 128, outputs)
    weights = [triton_blocks.tiled_blocks(BlockWeight.zeros(each, outputs, inputs, cpu)) for each in BLOCK_TYPES]
    weights += [
        triton_blocks.tiled_blocks(BlockWeight.zeros("MXFP4", 2880, 2880, cpu)),
        triton_linear.tiled(
            Int4Weight.of_words(torch.zeros(8, outputs, 64, dtype=torch.int16), groups, groups.half(), 128, inputs)
        ),
        triton_linear.tiled(ByteWeight.pack(torch.zeros(outputs, inputs, dtype=torch.int8), groups[0])),
        triton_linear.tiled_floats(torch.zeros(outputs, inputs, dtype=dtype)),
    ]
    for weight in weights:
        tile, bias = triton_linear.tile_for(1, dtype, capability >= 80), torch.zeros(weight.outputs, dtype=dtype)
        for splits in (1, 4):
            weight.product_of(torch.zeros(4, weight.inputs, dtype=dtype), bias, tile, splits, pairs.tiles)
    pairs.weighted_sum(torch.zeros(32, inputs, dtype=dtype), groups[:4, :8])


JITFunction.run = compile_launch
{(): launch_all, ("blocks",): launch_blocks, ("experts",): launch_experts}[tuple(sys.argv[4:])]()
