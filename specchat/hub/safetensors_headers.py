"""Files of weights become an `Anatomy`: safetensors begin with a few kilobytes of JSON that say every name and shape.

Exact to the byte, and nothing else of a file is read. Which tensor is for what follows from its name. Imports no torch.
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
from specchat.models.fetch import without_consolidated

TensorHeaders = Mapping[str, tuple[str, tuple[int, ...]]]
ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}  # one byte where not named
MAX_HEADER_BYTES = 100 * 2**20  # of a file of safetensors, by its own definition
EMBEDDING_NAMES = ("embed_tokens", "wte", "tok_embeddings", "word_embeddings")
LM_HEAD_NAMES = ("lm_head", "output", "embed_out")


def read_architecture(source: Path) -> Architecture:
    """Of a folder, a config.json or a file of weights: from headers where all files are there, else from the config."""
    config = read_config(source)
    from_config = architecture_from_config(config, str(source)) if config else None
    files = weight_files(source)
    if not files:
        if from_config is None:
            raise ModelError(f"{source}: neither config.json nor *.safetensors there")
        return from_config
    return _architecture_from_headers(from_config, files, config)


def read_config(source: Path) -> Config:
    """The config beside these weights; empty when there is none."""
    path = source if source.suffix == ".json" else (source if source.is_dir() else source.parent) / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, OSError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: cannot be read: not a table")
    return content


def weight_files(source: Path) -> list[Path]:
    """The files of safetensors that belong together; empty when there are none, or when some are still missing."""
    if source.is_file():
        return [source] if source.suffix == ".safetensors" else []
    index = source / "model.safetensors.index.json"
    if index.is_file():
        named = sorted({source / name for name in _weight_map(index).values()})
        return named if all(path.is_file() for path in named) else []
    return [
        source / name for name in sorted(without_consolidated([path.name for path in source.glob("*.safetensors")]))
    ]


def read_header(path: Path) -> TensorHeaders:
    """The tensors of a file: {name: (dtype, shape)}. ModelError for a file that is cut off or is something else."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            content: Any = json.loads(file.read(length)) if 0 < length <= MAX_HEADER_BYTES else None
        tensors = {
            name: (str(each["dtype"]), tuple(map(int, each["shape"])))
            for name, each in content.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise ModelError(f"{path}: not whole, or no safetensors") from error
    return tensors


def _weight_map(path: Path) -> Mapping[str, str]:
    try:
        places: Any = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in places.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: cannot be read") from error


def _architecture_from_headers(known: Architecture | None, files: Sequence[Path], config: Config) -> Architecture:
    """What the headers say, with what only a config can say."""
    tensors = {name: each for path in files for name, each in read_header(path).items()}
    if _is_head(tensors):
        return _head_from_headers(tensors, known, config)
    if known is None:
        raise ModelError(f"{files[0].parent}: what it keeps of a text cannot be computed without config.json")
    own = {name: each for name, each in tensors.items() if not _is_mtp_tensor(name, known.layers)}
    if known.stored_format not in FLOAT_FORMATS:
        return replace(known, stored_bytes=_stored_bytes(own))  # packed numbers have other shapes than the matrices
    matrices = tuple(_matrix_from_tensor(name, shape) for name, (_, shape) in own.items())
    return replace(known, matrices=matrices, stored_bytes=_stored_bytes(own), stored_as=_stored_format(own))


def _stored_bytes(tensors: TensorHeaders) -> int:
    return sum(math.prod(shape) * ITEM_BYTES.get(dtype, 1) for dtype, shape in tensors.values())


def _stored_format(tensors: TensorHeaders) -> str:
    return "float32" if {dtype for dtype, _ in tensors.values()} & {"F32", "F64"} else "bf16"


def is_whole_model(source: Path) -> bool:
    """Whether a whole language model lies there, and not a head; its files decide before its config does."""
    files = weight_files(source)
    if files:
        return not _is_head({name: each for path in files for name, each in read_header(path).items()})
    config = read_config(source)
    return (
        source.is_dir()
        and "vocab_size" in config
        and head_architecture_from_config(config) is None
        and not any(source.glob("*.bin"))
    )


def _is_head(tensors: TensorHeaders) -> bool:
    """Whether these are no whole model: a projection of features, residual blocks, or layers that guess ahead alone."""
    words = {word for name in tensors for word in name.split(".")}
    return "fc" in words or not words & {*EMBEDDING_NAMES}


def _head_from_headers(tensors: TensorHeaders, known: Architecture | None, config: Config) -> Architecture:
    numbered = re.compile(r"(?:^|\.)(?:layers\.\d+|midlayer)\.")
    layers = len({found[0] for name in tensors if (found := numbered.search(name))})
    kept: tuple[KVLayers, ...] = ()
    if layers and known:
        inner: Config = {**config, **(config.get("text_config") or config.get("transformer_layer_config") or {})}
        kept = kv_layers_from_config(inner, ["full_attention"] * layers)
    matrices = tuple(_matrix_from_tensor(name, shape) for name, (_, shape) in tensors.items())
    base = known or Architecture("head", (), ())
    stored = _stored_bytes(tensors)
    return replace(base, matrices=matrices, kept=kept, stored_bytes=stored, stored_as=_stored_format(tensors))


def _matrix_from_tensor(name: str, shape: Sequence[int]) -> Matrix:
    """Where a tensor belongs, by its name and shape."""
    words = name.split(".")
    if len(shape) < 2:
        return Matrix(OTHER, math.prod(shape))
    rows, columns = math.prod(shape[:-1]), shape[-1]
    if "experts" in words and "shared_experts" not in words:
        return Matrix(EXPERT, rows, columns)
    if any(word in EMBEDDING_NAMES for word in words):
        return Matrix(EMBEDDING, rows, columns)
    if any(word in LM_HEAD_NAMES for word in words[:2]):
        return Matrix(OUTPUT, rows, columns)
    is_router = words[-2:] == ["gate", "weight"]
    return Matrix(OTHER if len(shape) > 2 or is_router else LINEAR, rows, columns)


def _is_mtp_tensor(name: str, layers: int) -> bool:
    """Whether a tensor is none of the model's own: layers that guess ahead, which stand behind its last."""
    words = name.split(".")
    behind = any(
        int(after) >= layers for before, after in pairwise(words)
        if before == "layers" and after.isdigit()
    )  # fmt: skip
    return behind or words[0] == "mtp"
