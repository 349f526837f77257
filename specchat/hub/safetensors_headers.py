"""Reads the Architecture of a model or head from the headers of its safetensors or GGUF file.

A header is a few kilobytes of JSON with the name, dtype and shape of every tensor, so sizes are exact and no weights
are read. The kind of a tensor follows from its name. Imports no torch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import (
    EMBEDDING,
    EXPERT,
    FLOAT_FORMATS,
    IDLE,
    LINEAR,
    OTHER,
    OUTPUT,
    Architecture,
    KVLayers,
    Matrix,
)
from specchat.hub.config_architecture import (
    Config,
    architecture_from_config,
    head_architecture_from_config,
    kv_layers_from_config,
)
from specchat.hub.hub_cache import without_consolidated
from specchat.weights.gguf.gguf_file import is_gguf, read_gguf

TensorHeaders = Mapping[str, tuple[str, tuple[int, ...]]]
ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}  # others: one byte
MAX_HEADER_BYTES = 100 * 2**20  # the limit of the safetensors format
EMBEDDING_NAMES = ("embed_tokens", "wte", "tok_embeddings", "word_embeddings")
# Vectors that are looked up for every layer, and encoders of images and sound: they stay float.
IDLE_NAMES = ("embed_tokens_per_layer", "visual", "vision_tower", "vision_model", "audio_tower")
LM_HEAD_NAMES = ("lm_head", "output", "embed_out")


def read_architecture(source: Path) -> Architecture:
    """The architecture of a folder, config.json or weights file: from headers if all files exist, else the config."""
    if is_gguf(source):
        return _gguf_architecture(source)
    config = read_config(source)
    from_config = architecture_from_config(config, str(source)) if config else None
    files = weight_files(source)
    if not files:
        if from_config is None:
            raise ModelError(f"{source}: neither config.json nor *.safetensors found")
        return from_config
    return _architecture_from_headers(from_config, files, config)


def _gguf_architecture(source: Path) -> Architecture:
    """The architecture of a GGUF file after its conversion to bf16; `stored_bytes` are those of the file."""
    from specchat.weights.gguf.gguf_families import map_model

    file = read_gguf(source)
    architecture = architecture_from_config(map_model(file).config, str(source))
    return replace(architecture, stored_bytes=file.bytes)


def read_config(source: Path) -> Config:
    """The config.json of these weights; empty when there is none."""
    path = source if source.suffix == ".json" else (source if source.is_dir() else source.parent) / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, OSError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: cannot be read: not a JSON object")
    return content


def weight_files(source: Path) -> list[Path]:
    """The safetensors of a model; empty when there are none or some are missing."""
    if source.is_file():
        return [source] if source.suffix == ".safetensors" else []
    index = source / "model.safetensors.index.json"
    if index.is_file():
        paths = sorted({source / name for name in _weight_map(index).values()})
        return paths if all(path.is_file() for path in paths) else []
    names = without_consolidated([path.name for path in source.glob("*.safetensors")])
    return [path for name in sorted(names) if (path := source / name).is_file()]


def read_header(path: Path) -> TensorHeaders:
    """The tensors of a file: {name: (dtype, shape)}. ModelError for a truncated file or another format."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            content: Any = json.loads(file.read(length)) if 0 < length <= MAX_HEADER_BYTES else None
        content.pop("__metadata__", None)
        return {name: (str(each["dtype"]), tuple(map(int, each["shape"]))) for name, each in content.items()}
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise ModelError(f"{path}: truncated, or not safetensors") from error


def _weight_map(path: Path) -> Mapping[str, str]:
    try:
        weight_map: Any = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: cannot be read") from error


def _architecture_from_headers(from_config: Architecture | None, files: Sequence[Path], config: Config) -> Architecture:
    tensors = _read_headers(files)
    if _is_head(tensors):
        return _head_from_headers(tensors, from_config, config)
    if from_config is None:
        raise ModelError(f"{files[0].parent}: the size of its KV cache cannot be computed without config.json")
    own = {name: header for name, header in tensors.items() if not _is_mtp_tensor(name, from_config.layers)}
    if from_config.stored_format not in FLOAT_FORMATS:
        return replace(from_config, stored_bytes=_stored_bytes(own))  # packed tensors have other shapes
    matrices = tuple(_matrix_from_tensor(name, shape) for name, (_, shape) in own.items())
    return replace(from_config, matrices=matrices, stored_bytes=_stored_bytes(own), stored_format=_stored_format(own))


def _read_headers(files: Sequence[Path]) -> TensorHeaders:
    return {name: header for path in files for name, header in read_header(path).items()}


def _stored_bytes(tensors: TensorHeaders) -> int:
    return sum(math.prod(shape) * ITEM_BYTES.get(dtype, 1) for dtype, shape in tensors.values())


def _stored_format(tensors: TensorHeaders) -> str:
    return "float32" if {dtype for dtype, _ in tensors.values()} & {"F32", "F64"} else "bf16"


def is_whole_model(source: Path) -> bool:
    """Whether this is a language model and not a head, by its files or, without files, by its config."""
    if is_gguf(source):
        return True
    if files := weight_files(source):
        return not _is_head(_read_headers(files))
    config = read_config(source)
    return (
        source.is_dir()
        and "vocab_size" in config
        and head_architecture_from_config(config) is None
        and not any(source.glob("*.bin"))
    )


def _is_head(tensors: TensorHeaders) -> bool:
    """Whether these are the tensors of a head: a projection of features, or no embeddings."""
    words = {word for name in tensors for word in name.split(".")}
    return "fc" in words or not words & {*EMBEDDING_NAMES}


def _head_from_headers(tensors: TensorHeaders, from_config: Architecture | None, config: Config) -> Architecture:
    layer_pattern = re.compile(r"(?:^|\.)(?:layers\.\d+|midlayer)\.")
    layers = len({match[0] for name in tensors if (match := layer_pattern.search(name))})
    kv_layers: tuple[KVLayers, ...] = ()
    if layers and from_config:
        inner: Config = {**config, **(config.get("text_config") or config.get("transformer_layer_config") or {})}
        kv_layers = kv_layers_from_config(inner, ["full_attention"] * layers)
    matrices = tuple(_matrix_from_tensor(name, shape) for name, (_, shape) in tensors.items())
    return replace(
        from_config or Architecture("head", (), ()),
        matrices=matrices,
        kv_layers=kv_layers,
        stored_bytes=_stored_bytes(tensors),
        stored_format=_stored_format(tensors),
    )


def _matrix_from_tensor(name: str, shape: Sequence[int]) -> Matrix:
    words = name.split(".")
    if len(shape) < 2:
        return Matrix(OTHER, math.prod(shape))
    rows, columns = math.prod(shape[:-1]), shape[-1]
    if "experts" in words and "shared_experts" not in words:
        return Matrix(EXPERT, rows, columns)
    if any(word in IDLE_NAMES for word in words):
        return Matrix(IDLE, rows, columns)
    if any(word in EMBEDDING_NAMES for word in words):
        return Matrix(EMBEDDING, rows, columns)
    if any(word in LM_HEAD_NAMES for word in words[:2]):
        return Matrix(OUTPUT, rows, columns)
    is_router = words[-2:] == ["gate", "weight"]
    return Matrix(OTHER if len(shape) > 2 or is_router else LINEAR, rows, columns)


def _is_mtp_tensor(name: str, layers: int) -> bool:
    """Whether a tensor belongs to a multi-token prediction block: layers after the last one of the model."""
    words = name.split(".")
    indices = [int(after) for before, after in pairwise(words) if before == "layers" and after.isdigit()]
    return words[0] == "mtp" or any(index >= layers for index in indices)
