"""Loads a folder or a hub id as a model that the engine can call.

Decides what computes the forward passes. Knows files and devices, and neither drafters nor text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from specchat.engine.model import Model
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.quant_linear import hardware_warning
from specchat.forward.recurrent import RecurrentModel, has_recurrent_layers
from specchat.forward.transformers_model import TransformersModel
from specchat.models.fetch import fetch_from_hub
from specchat.models.llama_weights import config_dtype, is_llama_like, load_llama, tensor_files
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.profile import BUILTIN_BACKEND, SERVER_BACKENDS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EMBEDDED = Path(__file__).parents[1] / "embedded"
FLOAT_FORMAT = "float"
SMALLEST_FORMAT = "nf4"  # suggested when the device is too small
HALF_PRECISION_BYTES = 2


@dataclass(frozen=True)
class LoadOptions:
    """How to load a model. `auto` depends on the device and on the dtype of the stored weights."""

    dtype: str = "auto"
    device: str = "auto"
    context_window: int | None = None  # maximum length, in tokens
    exact: bool = False
    backend: str = BUILTIN_BACKEND  # what computes the forward passes
    quant_format: str = FLOAT_FORMAT  # of the linear layers
    embedding_device: str = "auto"  # of the input embeddings: auto, device or cpu


def find_model(source: str, role: str = "target") -> Path:
    """The folder of a model: `embedded`, a local folder, or a hub id, which is downloaded unless it is cached."""
    if source == "embedded":
        return _checked_folder(EMBEDDED / role, source)
    folder = Path(source).expanduser()
    if folder.exists():
        return _checked_folder(folder, source)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise ModelError(f"{source}: no such folder; give a model's folder, a hub id like org/name, or 'embedded'")
    return _checked_folder(fetch_from_hub(source), source)


def load_model(folder: Path, options: LoadOptions) -> Model:
    """Load a local folder onto the device: with `forward.llama` where it supports the family, else transformers."""
    if options.backend != BUILTIN_BACKEND:
        return _load_from_plugin(folder, options)
    device = _resolve_device(options.device)
    dtype = _resolve_dtype(options.dtype, folder, device)
    shape = BatchLimits(prefill_chunk=512 if device.type == "cuda" else 128, exact=options.exact)
    try:
        config = json.loads((folder / "config.json").read_text())
        if is_llama_like(config):
            is_quantized = bool(config.get("quantization_config"))
            if (
                is_quantized
                and options.quant_format == FLOAT_FORMAT
                and tensor_files(folder, config).has_scaled_weights
            ):
                print_warning(f"{folder.name}: {_dequantization_warning(dtype or config_dtype(config), device)}")
            return _load_llama_model(
                folder, options, partial(load_llama, folder, dtype, device, options.context_window, shape), device
            )
        if options.quant_format != FLOAT_FORMAT:
            raise ValueError(
                f"{options.quant_format} supports Llama, Mistral, Qwen2 and Qwen3 only; use --weights {FLOAT_FORMAT}"
            )
        return _wrap_network(_load_network(folder, device, dtype), options.context_window, shape)
    except torch.OutOfMemoryError as error:
        remedy = (
            "choose a smaller model" if options.quant_format == SMALLEST_FORMAT else f"try --weights {SMALLEST_FORMAT}"
        )
        raise ModelError(f"{folder}: does not fit the memory of {device}; {remedy}") from error
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        raise ModelError(f"{folder}: cannot be loaded: {_first_line(error)}") from error


def _load_llama_model(folder: Path, options: LoadOptions, load: Callable[..., Model], device: torch.device) -> Model:
    """Load with `forward.llama`. Warn when the hardware has no fast kernel for the weight format."""
    if warning := hardware_warning(options.quant_format, device):
        print_warning(f"{folder.name}: {warning}")
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


def _dequantization_warning(dtype: torch.dtype, device: torch.device) -> str:
    """The warning about an FP8 checkpoint that is loaded as floats."""
    factor = "twice" if dtype.itemsize == HALF_PRECISION_BYTES else "four times"
    quant_format = "int8" if device.type == "cpu" else "fp8"
    bits = 8 * dtype.itemsize
    return f"8-bit weights are dequantized to {bits} bits, {factor} the memory; --weights {quant_format} keeps 8 bits"


def _load_from_plugin(folder: Path, options: LoadOptions) -> Model:
    offer = find_extensions("backends", (BUILTIN_BACKEND, *SERVER_BACKENDS)).get(options.backend)
    if offer is None:
        raise ModelError(f"backend {options.backend!r}: no plugin provides it; 'specchat plugins' lists the plugins")
    model = offer.call(folder, options)
    if not (hasattr(model, "forward") and hasattr(model, "prefill") and hasattr(model, "pool")):
        raise offer.plugin_error(f"returned a {type(model).__name__}, which is not a Model")
    return model


def _wrap_network(network: PreTrainedModel, context_window: int | None, limits: BatchLimits) -> Model:
    """Wrap a transformers network in the adapter for its kind of cache."""
    if not has_recurrent_layers(network):
        return TransformersModel(network, context_window, limits)
    if limits.exact:
        raise ValueError("its recurrent layers round a pass over one token differently: turn exact mode off")
    return RecurrentModel(network, context_window, limits)


def _load_network(folder: Path, device: torch.device, dtype: torch.dtype | None) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # stdout is for the answer, stderr for our messages
    logging.set_verbosity_error()
    network: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype or "auto", local_files_only=True, use_safetensors=True, trust_remote_code=False
    )
    return network.to(device)


def _checked_folder(folder: Path, source: str) -> Path:
    if not folder.is_dir():
        raise ModelError(f"{source}: not a folder; a model is a folder with config.json and *.safetensors")
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ModelError(f"{source}: not a model ({name} is missing)")
    return folder


def _resolve_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"device {name}: torch finds no CUDA device; use --device cpu")
    return torch.device(name)


def _resolve_dtype(name: str, folder: Path, device: torch.device) -> torch.dtype | None:
    """The dtype of the weights; None keeps the stored dtype."""
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cpu" and folder.is_relative_to(EMBEDDED):
        return torch.float32  # small enough for float32, which is exact
    if device.type == "cpu" and not torch.cpu._is_avx512_bf16_supported():  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return torch.float32  # bf16 without hardware support is slower than float32
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
