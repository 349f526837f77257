"""The products of every format of weights, and the sampler of CUDA graphs, as checks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from specchat.bench.gpu.gpu_bench import WEIGHT_STD, GpuBench
from specchat.bench.gpu.kernel_checks import KernelCheck, NamedCheck, product_check
from specchat.bench.gpu.own_kernels import int4_check
from specchat.bench.gpu.report import Line, attempt
from specchat.engine.sampling import DeviceNoise
from specchat.forward.cuda.cuda_graphs import MAX_VOCABULARY, noise_kind
from specchat.forward.linear.linear import FloatLinear, QuantLinear, WeightSource
from specchat.forward.linear.quant_linear import Fp8Linear, Nf4Linear, TwoPartInt8Linear, quant_linear

FORMATS = ("float", "nf4", "nf4-double", "int8", "fp8")


def product_checks(bench: GpuBench) -> Iterator[NamedCheck]:
    """The largest layers in each format, and the output matrix, which most formats leave in floats."""
    sizes = bench.sizes
    shapes = {"gate_up": (2 * sizes.inner, sizes.hidden), "down": (sizes.hidden, sizes.inner)}
    for layer, shape in shapes.items():
        for quant_format in FORMATS:
            yield f"{quant_format} {layer}", partial(_product_check, bench, quant_format, shape)
        yield f"W4A16 {layer}", partial(int4_check, bench, shape)
    yield "float lm_head", partial(_product_check, bench, "float", (sizes.vocabulary, sizes.hidden))


def _product_check(bench: GpuBench, quant_format: str, shape: tuple[int, int]) -> KernelCheck:
    def layer() -> QuantLinear:
        return quant_linear(WeightSource.from_tensor(bench.noise(*shape, std=WEIGHT_STD)), quant_format)

    first = layer()
    linears = [first, *(layer() for _ in range(bench.copies(first.bytes) - 1))]
    return product_check(bench, linears, shape[1], dequantizer(first))


def dequantizer(linear: QuantLinear) -> Callable[[], Tensor]:
    """What makes the weight of a layer, as its numbers stand for it; NotImplementedError for a layer unknown here."""
    match linear:
        case FloatLinear():
            return lambda: linear.weight
        case Nf4Linear():
            from bitsandbytes.functional import dequantize_4bit

            return lambda: dequantize_4bit(linear.weight, linear.quant_state)
        case TwoPartInt8Linear():
            return lambda: linear.weight.float() * (linear.absmax.float() / 127)[:, None]
        case Fp8Linear():
            return lambda: linear.weight.float() * linear.scales.T
        case _:
            raise NotImplementedError(f"{type(linear).__name__}: a format without a product of its own on this device")


@torch.inference_mode()
def sampler_lines(bench: GpuBench) -> Iterator[Line]:
    """Noise, temperature and choice over logits, as every graph has them; tokens are compared with those of the CPU."""
    logits = bench.noise(bench.sizes.most_rows, bench.sizes.sampler_vocabulary, std=3.0)
    for count in bench.sizes.rows:
        yield attempt(f"{count} rows", partial(_sampler_line, bench, logits[:count]))


def _sampler_line(bench: GpuBench, logits: Tensor) -> Line:
    keys = torch.arange(2 * len(logits), dtype=torch.int32).view(-1, 2) * 7919
    noise = [_noise(keys.to(device)) for device in (bench.device, torch.device("cpu"))]
    here, there = noise[0].rank(logits).token_ids.cpu(), noise[1].rank(logits.cpu()).token_ids

    def sample() -> Tensor:
        return noise[0].sample(logits)

    microseconds = bench.microseconds([sample])
    return {
        "tokens of the CPU": torch.equal(here, there), "kernels": bench.kernels_of(sample), "us": microseconds,
        "bandwidth": bench.bandwidth_share(logits.numel() * logits.element_size(), microseconds),
    }  # fmt: skip


def _noise(keys: Tensor) -> DeviceNoise:
    """Of temperature 0.8, for the whole vocabulary."""
    numbers = torch.tensor([0.8, 1.0], dtype=torch.float64).to(keys.device)
    vocab_size = torch.full((), MAX_VOCABULARY, dtype=torch.long, device=keys.device)
    return noise_kind(keys.device)(keys, numbers[0], numbers[1], vocab_size)
