"""Loads a folder or a hub id as a model that the engine can call.

Decides what computes the forward passes. Knows files and devices, and neither drafters nor text.
"""

import json
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from specchat.devices import (
    FLOAT_FORMAT,
    GGUF_FORMAT,
    INT8_KV,
    check_available,
    default_device,
    has_cpu_bfloat16,
    kind_of,
    prepare,
    resolve_device,
)
from specchat.engine.model import Model
from specchat.errors import ModelError, first_line
from specchat.forward.batch import BatchLimits
from specchat.forward.linear.block_linear import MXFP4, block_matmul
from specchat.forward.linear.int4_linear import int4_matmul
from specchat.forward.linear.quant_linear import hardware_warning
from specchat.plugins.discovery import print_warning
from specchat.weights.gguf.gguf_conversion import safetensors_folder
from specchat.weights.gguf.gguf_preparation import Report, no_report
from specchat.weights.gguf.gguf_tensors import GgufTensorFiles
from specchat.weights.int4_checkpoints import Int4TensorFiles
from specchat.weights.kept_weights import kept_weights
from specchat.weights.llama_families import network_config
from specchat.weights.llama_manifest import known_tensors, read_dimensions
from specchat.weights.llama_weights import can_compute, config_dtype, load_llama, tensor_files
from specchat.weights.load_options import STORED_DTYPE, LoadOptions, resolve_dtype
from specchat.weights.mxfp4_checkpoints import Mxfp4TensorFiles

SMALL_FORMATS = ("nf4", "int8")  # suggested when the device is too small
FACTORS = {2: "twice", 4: "four times", 8: "eight times"}
UNKNOWN_ARCHITECTURE = "does not recognize this architecture"  # in the message of transformers


def load_model(folder: Path, options: LoadOptions, report: Report = no_report) -> Model:
    """Load a local folder onto the device: with `forward.llama.llama` where it supports the family, else transformers.

    transformers reads safetensors only, so a GGUF file is converted for it; `report` hears of that.
    """
    device = _resolve_device(options.device)
    prepare(device)
    dtype = _resolve_dtype(options.dtype, folder, device)
    shape = BatchLimits(prefill_chunk=kind_of(device).prefill_chunk, exact=options.exact)
    try:
        config = json.loads((folder / "config.json").read_text())
        if can_compute(config, folder, dtype, device):
            if config.get("quantization_config") and options.quant_format == FLOAT_FORMAT:
                _warn_of_dequantization(folder, config, dtype or config_dtype(config), device)
            load = partial(load_llama, folder, dtype, device, options.context_window, shape)
            with kept_weights(folder, options, dtype, device, report) as kept:
                return _load_llama_model(folder, options, partial(load, kept=kept), device)
        if options.kv_cache != FLOAT_FORMAT:
            raise ValueError(
                f"a KV cache in {options.kv_cache} is for models in our own passes only; use --kv-cache {FLOAT_FORMAT}"
            )
        if (options.cpu_layers or any(options.gpu_layers)) and kind_of(device).is_gpu:
            raise ValueError("layers on several devices are for models in our own passes only; use --place none")
        from specchat.weights.transformers_files import check_shapes, load_with_transformers  # our own start sooner

        is_gguf = options.quant_format == GGUF_FORMAT  # whose blocks of other families were dequantized
        quant_format = FLOAT_FORMAT if is_gguf else options.quant_format
        _check_format(folder, quant_format, device)
        readable = safetensors_folder(folder, report, partial(check_shapes, folder))
        return load_with_transformers(readable, device, dtype, options.context_window, shape, quant_format)
    except torch.OutOfMemoryError as error:
        smallest = next(each for each in SMALL_FORMATS if each in kind_of(device).weight_formats)
        remedy = "choose a smaller model" if options.quant_format == smallest else f"try --weights {smallest}"
        raise ModelError(f"{folder}: does not fit the memory of {device}; {remedy}") from error
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError, SafetensorError) as error:
        if UNKNOWN_ARCHITECTURE in str(error):
            raise _unknown_architecture(folder) from error
        raise ModelError(f"{folder}: cannot be loaded: {first_line(error)[:200]}") from error


def _unknown_architecture(folder: Path) -> ModelError:
    import transformers

    model_type = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    return ModelError(
        f"{folder}: transformers {transformers.__version__} does not know its architecture ({model_type}); a newer "
        "transformers may, and 'specchat models list' shows models that run here"
    )


def _load_llama_model(folder: Path, options: LoadOptions, load: Callable[..., Model], device: torch.device) -> Model:
    """Load with `forward.llama.llama`; with the embedding on the CPU where the device has no room for it."""
    _check_format(folder, options.quant_format, device)
    if (has_int8_kv := options.kv_cache == INT8_KV) and kind_of(device).is_gpu:
        raise ModelError(f"a KV cache in int8 is for CPUs, not for device {device}; use --kv-cache {FLOAT_FORMAT}")
    load = partial(load, has_int8_kv=has_int8_kv, cpu_layers=options.cpu_layers, gpu_layers=options.gpu_layers)
    cpu, embedding_device = torch.device("cpu"), options.embedding_device
    if embedding_device != "cpu":
        try:
            return load(quant_format=options.quant_format)
        except torch.OutOfMemoryError:
            if embedding_device == "device" or device == cpu:
                raise
        print_warning(
            f"{folder.name}: not enough memory on {device}: the embedding stays on the CPU, and passes are slower"
        )
    return load(quant_format=options.quant_format, embedding_device=cpu)


def _check_format(folder: Path, quant_format: str, device: torch.device) -> None:
    """Refuse a weight format that the device does not support. Warn when it has no fast kernel for it."""
    kind_of(device).check_format(quant_format)
    if warning := hardware_warning(quant_format, device):
        print_warning(f"{folder.name}: {warning}")


def _warn_of_dequantization(folder: Path, config: dict[str, Any], dtype: torch.dtype, device: torch.device) -> None:
    """Say once what the weights of this checkpoint become, unless they stay as they are."""
    files, bits = tensor_files(folder, config), 8 * dtype.itemsize
    if isinstance(files, GgufTensorFiles) or not files.has_scaled_weights:
        return
    if isinstance(files, Int4TensorFiles) and int4_matmul(device, dtype) is not None:
        return
    if isinstance(files, Mxfp4TensorFiles) and block_matmul(device, dtype, MXFP4) is not None:
        return
    has_4_bits = isinstance(files, Int4TensorFiles | Mxfp4TensorFiles)
    kind, stored_bits = kind_of(device), 4 if has_4_bits else 8
    keeps_4_bits = has_4_bits and "nf4" in kind.weight_formats
    quant_format = "nf4" if keeps_4_bits else "fp8" if kind.has_kernels and not has_4_bits else "int8"
    network = network_config(config)
    tensors = known_tensors(files, read_dimensions(network, files.source), network)
    mebibytes = dtype.itemsize * sum(prod(shape) for _name, shape in tensors) / 2**20
    size = f"{mebibytes:.1f} MiB" if mebibytes < 2**10 else f"{mebibytes / 2**10:.1f} GiB"
    print_warning(
        f"{folder.name}: {stored_bits}-bit weights are dequantized to {bits} bits, {FACTORS[bits // stored_bits]} the "
        f"memory ({size} in all); --weights {quant_format} keeps {4 if keeps_4_bits else 8} bits"
    )


def _resolve_device(name: str) -> torch.device:
    resolved = resolve_device(name, default=default_device())
    check_available(resolved)
    return torch.device(resolved)


def _resolve_dtype(name: str, folder: Path, device: torch.device) -> torch.dtype | None:
    """The dtype of the weights; None keeps the stored dtype."""
    dtype = resolve_dtype(name, folder, device.type, has_cpu_bf16=has_cpu_bfloat16())
    return None if dtype == STORED_DTYPE else getattr(torch, dtype)
