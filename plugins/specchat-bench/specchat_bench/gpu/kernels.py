"""Kernels for each number of rows, at the shapes of a model: our own, the products of each format, and the sampler.

Of each: its error against float64, whether a row has the bits of the row alone, microseconds, share of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.sampling import DeviceNoise
from specchat.engine.tree import DraftTree
from specchat.forward.attention import AttentionMask, attention
from specchat.forward.batch import CacheRows, ancestor_masks
from specchat.forward.cuda.cuda_graphs import MAX_VOCABULARY, noise_kind
from specchat.forward.fused_ops import QKVInputs, TorchOps
from specchat.forward.linear.block_linear import BLOCK_TYPES, NF4, BlockLinear, CodeForm, block_linear
from specchat.forward.linear.byte_linear import ByteLinear
from specchat.forward.linear.int4_linear import (
    NUMBERS_IN_WORD,
    Int4Linear,
    Int4Matmul,
    Int4Weight,
    int4_matmul,
    words_of_block,
)
from specchat.forward.linear.linear import FloatLinear, QuantLinear, WeightSource
from specchat.forward.linear.packed_linear import StoredBlocks
from specchat.forward.linear.quant_linear import DequantizedLinear, Nf4Linear, quant_linear, with_own_kernel
from specchat.weights.gguf.gguf_rows import SCALE_OFFSETS
from specchat_bench.gpu.gpu_bench import WEIGHT_STD, GpuBench, alike
from specchat_bench.gpu.report import Line, attempt, ranges

W4A16 = "W4A16"  # beside the formats of `--weights`: 4 bits as in AWQ and GPTQ checkpoints
FORMATS = ("float", "nf4", "nf4-double", "int8", "fp8")
BLOCKS = "Q4_K"  # the type of blocks of most GGUF files, in all shapes; the others in one
STEP_BYTE, STEP_EXPONENT = 0x08, 0x70  # the upper byte of a half float near 2**-13, and MXFP4's near 2**-15
GROUP_SIZE = 128  # of published AWQ and GPTQ checkpoints
SPARE_ROWS = 64
REFERENCE_OUTPUTS = 2048  # of a product that are compared with float64, evenly spaced
ATTENTION_ROWS = (0, 1, 2, 5, 15, 16, 40)  # whose bits are compared, and the last one


Results = Tensor | Sequence[Tensor]  # [n, .] each


@dataclass(frozen=True)
class KernelCheck:
    """Row i of a pass over n rows is always computed from the same numbers."""

    compute: Callable[[int, int, int], Results]  # first row, last row, which buffer
    exact: Callable[[], Results]  # the same for all rows, in float64
    moved_bytes: Callable[[int], int]  # that a pass of n rows must read and write
    copies: int = 1  # buffers that take turns
    alone: Callable[[int], Tensor] | None = None  # of row i in a pass of its own; None: that of a pass over it
    checked_rows: Sequence[int] | None = None  # whose bits are compared; None: all
    column_step: int = 1  # of those that `exact` has

    def rows(self, first: int, last: int) -> Tensor:
        return joined(self.compute(first, last, 0))


def joined(results: Results) -> Tensor:
    """All numbers of each row. [n, .]"""
    return torch.cat([each.flatten(1) for each in ((results,) if isinstance(results, Tensor) else results)], dim=1)


NamedCheck = tuple[str, Callable[[GpuBench], KernelCheck]]


@torch.inference_mode()
def check_lines(checks: Iterable[NamedCheck], bench: GpuBench) -> Iterator[Line]:
    """A line for each check: all that can be measured. Its buffers are made when it is its turn, and freed after it."""
    sizes = bench.sizes
    for name, make in checks:
        made = cache(partial(make, bench))
        times = [partial(_time, made, count, bench) for count in sizes.rows]
        yield attempt(name, partial(_error, made, sizes.most_rows), partial(_bits, made, sizes.row_counts), *times)


def _time(made: Callable[[], KernelCheck], count: int, bench: GpuBench) -> Line:
    check = made()
    calls = [partial(check.compute, 0, count, copy) for copy in range(check.copies)]
    return bench.timed(calls, check.moved_bytes(count), f" {count}")


def _error(made: Callable[[], KernelCheck], count: int) -> Line:
    """The norm of the difference by that of the exact numbers; NaN never passes."""
    check = made()
    exact = joined(check.exact()).double()
    difference = check.rows(0, count)[:, :: check.column_step].double() - exact
    return {"error": float(difference.norm() / exact.norm())}


def _bits(made: Callable[[], KernelCheck], counts: Sequence[int]) -> Line:
    """In which batches every row has the bits of the row alone, and which batches agree about the first row."""
    check = made()
    checked = range(max(counts)) if check.checked_rows is None else check.checked_rows
    alone = {row: check.alone(row) if check.alone else check.rows(row, row + 1)[0] for row in checked}
    own, first_rows = list[int](), list[tuple[int, Tensor]]()
    for count in counts:
        results = check.rows(0, count)
        own += [count] if all(torch.equal(results[row], alone[row]) for row in checked if row < count) else []
        first_rows.append((count, results[0].clone()))
    return {
        "own bits in batches of": "all" if len(own) == len(counts) else ranges(own),
        "batches alike": alike(first_rows),
    }


def own_kernels(bench: GpuBench) -> Iterator[NamedCheck]:
    sizes = bench.sizes
    hidden, inner = sizes.hidden, sizes.inner
    yield f"residual and norm of {hidden}", partial(_row_op, "add_rms_norm", (hidden, hidden), True, 8 * hidden)
    yield "q/k norm, RoPE, cache write", _rope
    yield f"SwiGLU of {inner}", partial(_row_op, "activate_and_mul", (2 * inner,), False, 6 * inner)
    for context in sizes.contexts:
        yield f"attention of a tree, context {context}", partial(_attention, context)
    for name, (outputs, inputs) in sizes.products.items():
        yield f"{W4A16} {name} {outputs} x {inputs}", partial(_product, W4A16, (outputs, inputs))


def block_kernels(bench: GpuBench) -> Iterator[NamedCheck]:
    """Each type of blocks has kernels of its own, which take 10 to 20 seconds to compile."""
    shapes = bench.sizes.products
    others = ((each, "down") for each in BLOCK_TYPES if each not in (BLOCKS, NF4))
    for weights, name in (*product((BLOCKS,), shapes), *others):
        outputs, inputs = shapes[name]
        if inputs % BLOCK_TYPES[weights].step == 0:  # not those of toys
            yield f"{weights} {name} {outputs} x {inputs}", partial(_product, weights, (outputs, inputs))


def products(bench: GpuBench) -> Iterator[NamedCheck]:
    """The largest layers in each format, and the output matrix, which most formats leave in floats."""
    for layer in ("gate_up", "down"):
        for weights in FORMATS:
            yield f"{weights} {layer}", partial(_product, weights, bench.sizes.products[layer])
    yield "float lm_head", partial(_product, "float", (bench.sizes.vocabulary, bench.sizes.hidden))


def _row_op(name: str, widths: Sequence[int], has_weight: bool, moved_bytes: int, bench: GpuBench) -> KernelCheck:
    """An operation over rows of these widths, as torch computes it in float64. `moved_bytes`: of a row."""
    from specchat.forward.cuda.triton_ops import TritonOps

    inputs = [bench.noise(bench.sizes.most_rows, width) for width in widths]
    weight = [bench.noise(widths[0])] if has_weight else []
    ours, exact = (getattr(kind(bench.sizes.attention), name) for kind in (TritonOps, TorchOps))
    return KernelCheck(
        lambda first, last, _copy: ours(*(each[first:last] for each in inputs), *weight),
        lambda: exact(*(each.double() for each in (*inputs, *weight))),
        lambda count: count * moved_bytes,
    )


def _rope(bench: GpuBench) -> KernelCheck:
    """Norms of queries and keys, RoPE, and the write to the KV cache, whose rows are a part of the result."""
    from specchat.forward.cuda import triton_rows

    sizes, attention, most = bench.sizes, bench.sizes.attention, bench.sizes.most_rows
    width = sizes.products["qkv"][0]
    qkv, angles, norms = (
        bench.noise(most, width),
        bench.noise(2, most, 1, sizes.head_size),
        bench.noise(2, sizes.head_size),
    )
    kv = torch.zeros(2, 1, sizes.kv_heads, 2 * SPARE_ROWS, sizes.head_size, dtype=bench.dtype, device=bench.device)
    zero = torch.zeros((), dtype=torch.long, device=bench.device)
    location = CacheRows(lambda _layer: (kv[0], kv[1]), zero, zero + 3, None, kv.shape[3])

    def compute(first: int, last: int, _copy: int) -> tuple[Tensor, Tensor]:
        inputs = QKVInputs(qkv[first:last], norms[0], norms[1], angles[0, first:last], angles[1, first:last])
        queries = triton_rows.qk_norm_rope(inputs, attention, location, 0)
        return queries, kv[:, 0, :, 3 : 3 + last - first].permute(2, 0, 1, 3)

    def exact() -> tuple[Tensor, ...]:
        (cos, sin), (q_norm, k_norm) = angles.double(), norms.double()
        inputs = QKVInputs(qkv.double(), q_norm, k_norm, cos, sin)
        found = TorchOps(attention).qk_norm_rope(inputs)
        return found.queries, found.keys, found.values

    return KernelCheck(compute, exact, lambda count: 4 * count * width)


def _attention(context: int, bench: GpuBench) -> KernelCheck:
    """Nodes of a binary tree behind texts of this length, at places of an arena that take turns."""
    from specchat.forward.cuda import triton_attention

    sizes, dimensions, most = bench.sizes, bench.sizes.attention, bench.sizes.most_rows
    place_rows, row_bytes = context + SPARE_ROWS, 2 * sizes.kv_heads * sizes.head_size * bench.dtype.itemsize
    places = bench.copies(context * row_bytes)
    kv_length = max(sizes.contexts) + SPARE_ROWS  # as in the arena of long texts: partial results for all splits
    kv = bench.noise(2, 1, sizes.kv_heads, places * place_rows, sizes.head_size)
    queries, mask = bench.noise(most, sizes.heads, sizes.head_size), binary_tree(most).attention_mask().to(bench.device)
    ancestors, zero = ancestor_masks(mask), torch.zeros((), dtype=torch.long, device=bench.device)
    first_rows = [zero + place * place_rows for place in range(places)]
    tree = CacheRows(lambda _layer: (kv[0], kv[1]), zero, zero + context, ancestors, kv_length)
    whole = torch.cat((torch.ones(most, context, dtype=torch.bool, device=bench.device), mask), dim=1)
    texts, seen = kv[:, :, :, : context + most], AttentionMask(whole, sizes.heads // sizes.kv_heads, queries.double())

    def attend(first: int, last: int, place: int) -> Tensor:
        location = replace(tree, first_row=first_rows[place], ancestors=ancestors[first:last])
        return triton_attention.attention(queries[first:last], location, 0, dimensions)

    def alone(node: int) -> Tensor:
        """The node with its path committed, as plain decoding reads it."""
        path = torch.cat((torch.arange(context, device=bench.device), context + mask[node].nonzero()[:, 0]))
        rows = kv.index_select(3, path)
        chain = CacheRows(lambda _layer: (rows[0], rows[1]), zero, zero + len(path) - 1, zero[None] + 1, place_rows)
        return triton_attention.attention(queries[node : node + 1], chain, 0, dimensions)[0]

    return KernelCheck(
        attend,
        lambda: attention(queries.double(), texts[0].double(), texts[1].double(), seen, dimensions.scores),
        lambda count: context * row_bytes + 4 * count * sizes.heads * sizes.head_size,
        places,
        alone,
        [row for row in (*ATTENTION_ROWS, most - 1) if row < most],
    )


def binary_tree(count: int) -> DraftTree:
    tree = DraftTree(0)
    for node in range(1, count):
        tree.add(node, (node - 1) // 2)
    return tree


def _product(weights: str, shape: tuple[int, int], bench: GpuBench) -> KernelCheck:
    """A linear layer of a format, as several that take turns with other memory."""
    rows, first_layer = bench.noise(bench.sizes.most_rows, shape[1]), linear_of_noise(weights, shape, bench)
    copies = bench.copies(first_layer.bytes)
    linears = [first_layer, *(linear_of_noise(weights, shape, bench) for _ in range(copies - 1))]
    step = max(shape[0] // REFERENCE_OUTPUTS, 1)
    return KernelCheck(
        lambda first, last, copy: linears[copy](rows[first:last]),
        lambda: functional.linear(rows.double(), dequantized(first_layer)[::step].double()),
        lambda count: first_layer.bytes + 2 * count * shape[1],
        copies,
        column_step=step,
    )


def linear_of_noise(weights: str, shape: tuple[int, int], bench: GpuBench) -> QuantLinear:
    if weights == W4A16:
        return Int4Linear(random_int4(bench, shape), None, required_int4_matmul(bench))
    if weights in BLOCK_TYPES:
        linear = block_linear([random_blocks(bench, weights, shape)], bench.dtype, bench.device)
        if linear is None:
            raise NotImplementedError(f"no kernel for blocks of {weights} here")
        return linear
    return with_own_kernel(quant_linear(WeightSource.from_tensor(bench.noise(*shape, std=WEIGHT_STD)), weights))


def dequantized(linear: QuantLinear) -> Tensor:
    """The weight of a layer, as its numbers stand for it; NotImplementedError for a layer unknown here."""
    match linear:
        case FloatLinear():
            return linear.weight
        case Int4Linear() | ByteLinear():
            return linear.weight.dequantized(torch.float32)
        case BlockLinear():
            return torch.cat([part.dequantized(torch.float32) for part in linear.parts])
        case Nf4Linear():
            from bitsandbytes.functional import dequantize_4bit

            return dequantize_4bit(linear.weight, linear.quant_state)
        case DequantizedLinear():
            return linear.weight.float() * linear.scales[:, None]
        case _:
            raise NotImplementedError(f"{type(linear).__name__}: a format without a product of its own on this device")


def required_int4_matmul(bench: GpuBench) -> Int4Matmul:
    """The W4A16 product on this device; NotImplementedError where there is none."""
    if (multiply := int4_matmul(bench.device, bench.dtype)) is None:
        raise NotImplementedError("no kernel for 4-bit weights here")
    return multiply


def random_int4(bench: GpuBench, shape: tuple[int, int]) -> Int4Weight:
    """A 4-bit weight of random words, packed as it is drawn: the order of its numbers does not matter."""
    (outputs, inputs), device = shape, bench.device
    size = min(GROUP_SIZE, inputs)
    word_count, groups = words_of_block(size, inputs), -(-inputs // size)
    blocks = -(-inputs // (NUMBERS_IN_WORD * word_count))
    words = torch.randint(-(2**15), 2**15, (blocks, outputs, word_count), dtype=torch.int16, device=device)
    zeros = torch.randint(0, 16, (groups, outputs), device=device)
    scales = bench.noise(groups, outputs).abs() * 0.004 + 0.001
    return Int4Weight.of_words(words, zeros, scales, size, inputs)


def random_blocks(bench: GpuBench, type_name: str, shape: tuple[int, int]) -> StoredBlocks:
    """Blocks of a GGUF file with random bytes, but for the steps. Rows are drawn when they are read."""
    kind, inputs = BLOCK_TYPES[type_name], shape[1]

    def read_rows(first: int, last: int) -> Tensor:
        size = (last - first, inputs // kind.step, kind.bytes)
        blocks = torch.randint(0, 256, size, dtype=torch.uint8, device=bench.device)
        for offset in SCALE_OFFSETS.get(type_name, ()):
            blocks[..., offset + 1] = STEP_BYTE
        if kind.form is CodeForm.E2M1:
            blocks[..., 0] = STEP_EXPONENT
        return blocks.flatten(1)

    return StoredBlocks(type_name, shape, read_rows)


@torch.inference_mode()
def sampler_lines(bench: GpuBench) -> Iterator[Line]:
    """Noise, temperature and choice over logits, as every graph has them; tokens are compared with those of the CPU."""
    logits = bench.noise(bench.sizes.most_rows, bench.sizes.sampler_vocabulary, std=3.0)
    for count in bench.sizes.rows:
        yield attempt(f"{count} rows", partial(_sampler_line, bench, logits[:count]))


def _sampler_line(bench: GpuBench, logits: Tensor) -> Line:
    keys = torch.arange(2 * len(logits), dtype=torch.int32).view(-1, 2) * 7919
    noise, on_cpu = _noise(keys.to(bench.device)), _noise(keys)
    is_alike = torch.equal(noise.rank(logits).token_ids.cpu(), on_cpu.rank(logits.cpu()).token_ids)
    kernels = bench.kernels_of(lambda: noise.sample(logits))
    times = bench.timed([lambda: noise.sample(logits)], logits.numel() * logits.element_size())
    return {"tokens of the CPU": is_alike, "kernels": kernels, **times}


def _noise(keys: Tensor) -> DeviceNoise:
    """Of temperature 0.8, for the whole vocabulary."""
    numbers = torch.tensor([0.8, 1.0], dtype=torch.float64).to(keys.device)
    vocab_size = torch.full((), MAX_VOCABULARY, dtype=torch.long, device=keys.device)
    return noise_kind(keys.device)(keys, numbers[0], numbers[1], vocab_size)
