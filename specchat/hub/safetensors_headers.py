"""Reads the Architecture of a model or head from the headers of its safetensors or GGUF file.

A header is a few kilobytes of JSON with the name, dtype and shape of every tensor, so sizes are exact and no weights
are read. The kind of a tensor follows from its name. Imports no torch, unless only a config.json is there.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import FLOAT_FORMATS, HEAD, LINEAR, Architecture, Matrix
from specchat.hub.config_architecture import (
    EMBEDDING_NAMES,
    Config,
    architecture_from_config,
    dimensions_from_config,
    head_kv_layers,
    matrix_of,
    merged,
)
from specchat.hub.needed_files import PICKLE_PATTERNS, without_consolidated
from specchat.paths import hub_snapshot, is_hub_id, read_text_config
from specchat.weights.gguf.gguf_file import MULTIPLIED_TYPES, is_gguf, read_gguf
from specchat.weights.gguf.gguf_manifest import GgufManifest, MappedTensor

TensorHeaders = Mapping[str, tuple[str, tuple[int, ...]]]
ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}  # others: one byte
PACKED_BITS = {"I32": 32, "U8": 8}  # of an element that holds several numbers of a quantized checkpoint
SCALE_WORDS = ("scale", "zero", "g_idx", "absmax", "quant_map", "quant_state")  # beside them; formats count these
BLOCK_LAYOUT = 1.03  # of Q4_K, which most bytes of most files are: scales of 6 bits take 8
MAX_HEADER_BYTES = 100 * 2**20  # the limit of the safetensors format


def read_architecture(source: Path) -> Architecture:
    """The architecture of a folder, config.json or weights file: from headers if all files exist, else the config."""
    if is_gguf(source):
        return _gguf_architecture(source)
    config, files = read_config(source), weight_files(source)
    if files:
        tensors = _read_headers(files)
        return _head(tensors, config, source) if _is_head(tensors) else _model(tensors, config, source)
    if pickles := _pickles(source):
        halves = sum(path.stat().st_size for path in pickles) // 2  # a head in bf16 or float16
        return Architecture(HEAD, (Matrix(LINEAR, halves),), (), stored_bytes=2 * halves)
    if not config:
        raise ModelError(f"{source}: neither config.json nor *.safetensors found")
    return architecture_from_config(config, str(source))


def _gguf_architecture(source: Path) -> Architecture:
    """The architecture of a GGUF file after its conversion to bf16; `stored_bytes` are those of the file."""
    from specchat.weights.gguf.gguf_families import map_head, map_model

    file = read_gguf(source)
    if (head := map_head(file)) is not None:
        matrices = merged(matrix_of(each.name, each.source.shape) for each in head.tensors)
        layers = head.config["num_hidden_layers"]
        kv_layers = head_kv_layers(head.config, layers, str(source))
        return Architecture(HEAD, matrices, kv_layers, layers=layers, stored_bytes=file.bytes)
    model = map_model(file)
    known = dimensions_from_config(model.config, str(source))
    own = [each for each in model.tensors if not _is_mtp_tensor(each.name, known.layers)]
    matrices = merged(matrix_of(each.name, each.source.shape) for each in own)
    return replace(known, matrices=matrices, stored_bytes=file.bytes, block_bytes=_block_bytes(own))


def _block_bytes(tensors: Iterable[MappedTensor]) -> int:
    """On a GPU: those without a kernel become bf16, and the layout of others takes at most BLOCK_LAYOUT of theirs."""
    stored = [each.source for each in tensors]
    packed = sum(each.bytes for each in stored if each.type_name in MULTIPLIED_TYPES)
    return round(BLOCK_LAYOUT * packed) + sum(
        2 * math.prod(each.shape) for each in stored if each.type_name not in MULTIPLIED_TYPES
    )


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


def cached_model_folder(source: str, *, is_draft: bool = False) -> Path | None:
    """The folder of a hub id when the cache holds all its weights, else None. Uses no network."""
    if not is_hub_id(source):
        raise ModelError(f"{source}: neither a folder nor a hub id like org/name")
    folder = hub_snapshot(source)
    has_files = folder is not None and (weight_files(folder) or (is_draft and _pickles(folder, is_head=True)))
    return folder if has_files else None


def has_weights(source: Path) -> bool:
    """Whether all weights of a model or head are on this disk."""
    return is_gguf(source) or bool(weight_files(source) or _pickles(source))


def _pickles(folder: Path, *, is_head: bool = False) -> list[Path]:
    """The weights of a head without safetensors; as on the hub, a folder with a tokenizer is a model."""
    is_head = is_head or not (folder / "tokenizer.json").is_file()
    return [path for pattern in PICKLE_PATTERNS if is_head for path in folder.glob(pattern)]


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


def _model(tensors: TensorHeaders, config: Config, source: Path) -> Architecture:
    if not config:
        raise ModelError(f"{source}: the size of its KV cache cannot be computed without config.json")
    known = dimensions_from_config(config, str(source))
    own = {name: header for name, header in tensors.items() if not _is_mtp_tensor(name, known.layers)}
    if known.stored_format in FLOAT_FORMATS:
        matrices = merged(matrix_of(name, shape) for name, (_, shape) in own.items())
        known = replace(known, stored_format=_stored_format(own))
    else:
        matrices = merged(_unpacked(own, config, known.hidden_size))
    return replace(known, matrices=matrices, stored_bytes=_stored_bytes(own))


def _unpacked(tensors: TensorHeaders, config: Config, width: int) -> Sequence[Matrix]:
    """The matrices of a quantized checkpoint, whose packed tensors have other shapes; without scales."""
    bits, matrices = int(config["quantization_config"].get("bits") or 4), list[Matrix]()
    for name, (dtype, shape) in tensors.items():
        if any(word in name.rpartition(".")[2] for word in SCALE_WORDS) or ".absmax" in name:
            continue
        matrix = matrix_of(name, shape)
        if len(shape) > 1 and dtype in PACKED_BITS:
            matrix = replace(matrix, rows=matrix.parameters * PACKED_BITS[dtype] // bits // width, columns=width)
        matrices.append(matrix)
    return matrices


def _head(tensors: TensorHeaders, config: Config, source: Path) -> Architecture:
    """A head; without its config, nothing is known of its KV cache."""
    layers = len({layer for name in tensors if (layer := _layer_of(name))})
    kv_layers = head_kv_layers(config, layers, str(source)) if layers and config else ()
    matrices = merged(matrix_of(name, shape) for name, (_, shape) in tensors.items())
    return Architecture(
        HEAD, matrices, kv_layers, layers=layers, stored_bytes=_stored_bytes(tensors),
        stored_format=_stored_format(tensors),
    )  # fmt: skip


def _layer_of(name: str) -> str:
    """The layer of a tensor of a head: "layers.0", "midlayer"; "" for one of none."""
    words = name.split(".")
    numbered = [f"{before}.{after}" for before, after in pairwise(words) if before == "layers" and after.isdigit()]
    return numbered[0] if numbered else "midlayer" if "midlayer" in words[:-1] else ""


def _is_head(tensors: TensorHeaders) -> bool:
    """Whether these are the tensors of a head: a projection of features, or no embeddings."""
    words = {word for name in tensors for word in name.split(".")}
    return "fc" in words or not words & {*EMBEDDING_NAMES}


def _is_mtp_tensor(name: str, layers: int) -> bool:
    """Whether a tensor belongs to a multi-token prediction block: layers after the last one of the model."""
    words = name.split(".")
    indices = [int(after) for before, after in pairwise(words) if before == "layers" and after.isdigit()]
    return words[0] == "mtp" or any(index >= layers for index in indices)


def own_head_bytes(source: Path) -> int:
    """The bytes of the layers for multi-token prediction in the files of a model, and of a head in a GGUF file."""
    if (manifest := GgufManifest.from_folder(source)) is not None:
        layers = read_text_config(source).get("num_hidden_layers", 0)
        drafting = [each for each in manifest.tensors if _is_mtp_tensor(each.name, layers)]
        return sum(each.source.bytes for each in drafting or manifest.tensors)
    layers = dimensions_from_config(read_config(source), str(source)).layers
    tensors = _read_headers(weight_files(source))
    return _stored_bytes({name: each for name, each in tensors.items() if _is_mtp_tensor(name, layers)})


def _read_headers(files: Sequence[Path]) -> TensorHeaders:
    return {name: header for path in files for name, header in read_header(path).items()}


def _stored_bytes(tensors: TensorHeaders) -> int:
    return sum(math.prod(shape) * ITEM_BYTES.get(dtype, 1) for dtype, shape in tensors.values())


def _stored_format(tensors: TensorHeaders) -> str:
    return "float32" if {dtype for dtype, _ in tensors.values()} & {"F32", "F64"} else "bf16"
