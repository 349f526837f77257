"""A folder or a hub id becomes a model that the engine can call.

The one place that decides how passes are run. It knows files and devices; it knows no drafter and no text.
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
from specchat.forward.batch import PassShape
from specchat.forward.linear import shortfall
from specchat.forward.recurrent import RecurrentModel, is_recurrent
from specchat.forward.transformers_model import TransformersModel
from specchat.models.fetch import from_hub
from specchat.models.llama_weights import files_of, is_dense, load_dense, meant_dtype
from specchat.plugins.discovery import complain, offers
from specchat.profile import OWN, SERVERS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EMBEDDED = Path(__file__).parents[1] / "embedded"
FLOAT, SMALLEST = "float", "nf4"  # ways to hold weights: as they are, and what a card that is too small is told of
HALF = 2  # bytes of a number


@dataclass(frozen=True)
class Loading:
    """How a model is to be loaded. `auto` is decided by the device and by what the weights were saved in."""

    dtype: str = "auto"
    device: str = "auto"
    window: int | None = None  # longest text, in tokens
    exact: bool = False
    backend: str = OWN  # who runs the passes
    weights: str = FLOAT  # how those that are multiplied with are held
    embedding: str = "auto"  # where the table of input embeddings lies: beside the rest, or on the CPU


def find_model(source: str, role: str = "target") -> Path:
    """The folder of a model: `embedded`, a local folder, or a hub id that is fetched or found in the cache."""
    if source == "embedded":
        return _checked(EMBEDDED / role, source)
    folder = Path(source).expanduser()
    if folder.exists():
        return _checked(folder, source)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise ModelError(f"{source}: no such folder; give a model's folder, a hub id like org/name, or 'embedded'")
    return _checked(from_hub(source), source)


def load_model(folder: Path, loading: Loading) -> Model:
    """Weights of a local folder, on the device, ready for a pass: our own passes where they know the family."""
    if loading.backend != OWN:
        return _from_plugin(folder, loading)
    device = _device(loading.device)
    dtype = _dtype(loading.dtype, folder, device)
    shape = PassShape(chunk=512 if device.type == "cuda" else 128, exact=loading.exact)
    try:
        config = json.loads((folder / "config.json").read_text())
        if is_dense(config):
            is_small = bool(config.get("quantization_config"))
            if is_small and loading.weights == FLOAT and files_of(folder, config).has_scales:
                complain(f"{folder.name}: {_widened(dtype or meant_dtype(config), device)}")
            return _dense(folder, loading, partial(load_dense, folder, dtype, device, loading.window, shape), device)
        if loading.weights != FLOAT:
            raise ValueError(f"{loading.weights} is for Llama, Mistral, Qwen2 and Qwen3; use --weights {FLOAT}")
        return _adapted(_load_network(folder, device, dtype), loading.window, shape)
    except torch.OutOfMemoryError as error:
        remedy = "take a smaller model" if loading.weights == SMALLEST else f"try --weights {SMALLEST}"
        raise ModelError(f"{folder}: does not fit the memory of {device}; {remedy}") from error
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        raise ModelError(f"{folder}: cannot be loaded: {_first_line(error)}") from error


def _dense(folder: Path, loading: Loading, load: Callable[..., Model], device: torch.device) -> Model:
    """Our own passes. What this machine lacks for them is said once, and they work without it."""
    if lack := shortfall(loading.weights, device):
        complain(f"{folder.name}: {lack}")
    cpu, wanted = torch.device("cpu"), loading.embedding
    if wanted != "cpu":
        try:
            return load(weights=loading.weights)
        except torch.OutOfMemoryError:
            if wanted == "device" or device == cpu:
                raise
        complain(f"{folder.name}: {device} is short of memory: the embedding stays on the CPU, and passes are slower")
    return load(weights=loading.weights, embedding=cpu)


def _widened(dtype: torch.dtype, device: torch.device) -> str:
    """What is said of weights in eight bits that are to be held as floats."""
    times = "twice" if dtype.itemsize == HALF else "four times"
    small = "int8" if device.type == "cpu" else "fp8"
    return f"its 8-bit weights become floats of {8 * dtype.itemsize}, {times} as large; --weights {small} keeps 8"


def _from_plugin(folder: Path, loading: Loading) -> Model:
    offer = offers("backends", (OWN, *SERVERS)).get(loading.backend)
    if offer is None:
        raise ModelError(f"backend {loading.backend!r}: no plugin offers it; 'specchat plugins' lists what there is")
    model = offer.call(folder, loading)
    if not (hasattr(model, "forward") and hasattr(model, "read") and hasattr(model, "pool")):
        raise offer.failure(f"made a {type(model).__name__}, which is no Model")
    return model


def _adapted(network: PreTrainedModel, window: int | None, shape: PassShape) -> Model:
    """The adapter that fits what the network remembers."""
    if not is_recurrent(network):
        return TransformersModel(network, window, shape)
    if shape.exact:
        raise ValueError("it has recurrent layers, which round a pass over one token otherwise: leave exact mode out")
    return RecurrentModel(network, window, shape)


def _load_network(folder: Path, device: torch.device, dtype: torch.dtype | None) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # stdout and stderr belong to the answer and to our own talk
    logging.set_verbosity_error()
    network: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype or "auto", local_files_only=True, use_safetensors=True, trust_remote_code=False
    )
    return network.to(device)


def _checked(folder: Path, source: str) -> Path:
    if not folder.is_dir():
        raise ModelError(f"{source}: not a folder; a model is a folder with config.json and *.safetensors")
    for needed in ("config.json", "tokenizer.json"):
        if not (folder / needed).is_file():
            raise ModelError(f"{source}: no model there ({needed} is missing)")
    return folder


def _device(wanted: str) -> torch.device:
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"device {wanted}: torch finds no CUDA device here; use --device cpu")
    return torch.device(wanted)


def _dtype(wanted: str, folder: Path, device: torch.device) -> torch.dtype | None:
    """The dtype of the weights; None keeps the one they were saved in."""
    if wanted != "auto":
        return getattr(torch, wanted)
    if device.type == "cpu" and folder.is_relative_to(EMBEDDED):
        return torch.float32  # the embedded models are small: exact text is worth more than memory
    if device.type == "cpu" and not torch.cpu._is_avx512_bf16_supported():  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return torch.float32  # bf16 without hardware for it is slower than float32
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
