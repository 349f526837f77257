"""A network of the Llama family as a GGUF file, so that llama.cpp multiplies with the same weights.

Only what a pass needs: the tokens have no text, since token ids go in and come out. Weights are written as they
are, in bfloat16, or in blocks of 32 bytes with one scale (Q8_0, as ggml rounds). The format is docs/gguf.md of ggml.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch
from torch import Tensor

from specchat.errors import ModelError
from specchat.models.llama_weights import tensor_files
from specchat.models.tensor_files import TensorFiles

GGML_TYPES: Mapping[str, int] = {"f32": 0, "q8_0": 8, "bf16": 30}  # ggml's numbers of how a tensor is stored
ARCHITECTURES = ("llama", "qwen2", "qwen3")
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # GGUF's numbers of how a value is stored
ALIGNMENT = 32
Q8_BLOCK_SIZE = 32  # weights of Q8_0 that share a scale
TOP_LEVEL_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


@dataclass(frozen=True)
class _TensorInfo:
    """A tensor as the file will hold it."""

    name: str  # in the folder
    ggml_type: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        count = int(numpy.prod(self.shape))
        return {0: 4 * count, 30: 2 * count, 8: count // Q8_BLOCK_SIZE * (Q8_BLOCK_SIZE + 2)}[self.ggml_type]


def write_gguf(folder: Path, path: Path, storage_type: str) -> None:
    """The network of a folder as one file, a tensor at a time; ModelError for a family that is spelled otherwise."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] not in ARCHITECTURES:
        raise ModelError(
            f"{folder}: {config['model_type']} is not written as GGUF; known are {', '.join(ARCHITECTURES)}"
        )
    files = tensor_files(folder, config)
    tensors = dict(_tensor_infos(files, config, GGML_TYPES[storage_type]))
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        values = [*_metadata(config)]
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)))
        for name, packed in values:
            file.write(_encode_string(name) + packed)
        offset = 0
        for name, stored in tensors.items():
            dimensions = stored.shape[::-1]
            file.write(_encode_string(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions))
            file.write(struct.pack("<IQ", stored.ggml_type, offset))
            offset += stored.bytes + -stored.bytes % ALIGNMENT
        _pad_to_alignment(file)
        for stored in tensors.values():
            file.write(
                _encode_tensor(_permute_for_rope(files.read_tensor(stored.name), stored.name, config), stored.ggml_type)
            )
            _pad_to_alignment(file)
    partial.replace(path)


def _tensor_infos(files: TensorFiles, config: Mapping[str, Any], kind: int) -> Iterator[tuple[str, _TensorInfo]]:
    """By the name that llama.cpp knows them under. Norms and biases are always float32."""
    for name, theirs in TOP_LEVEL_NAMES.items():
        if name in files:
            shape = files.shape(name)
            yield theirs, _TensorInfo(name, kind if len(shape) > 1 else GGML_TYPES["f32"], shape)
    for number in range(config["num_hidden_layers"]):
        for part, theirs in LAYER_NAMES.items():
            for end in ("weight", "bias"):
                name = f"model.layers.{number}.{part}.{end}"
                if name in files:
                    shape = files.shape(name)
                    stored = _TensorInfo(name, kind if len(shape) > 1 else GGML_TYPES["f32"], shape)
                    yield f"blk.{number}.{theirs}.{end}", stored


def _metadata(config: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """What llama.cpp wants to know of the network, packed."""
    family, heads = config["model_type"], config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10000.0
    yield "general.architecture", _encode_value(family)
    counts = {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads, "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head,
        "vocab_size": config["vocab_size"],
    }  # fmt: skip
    for name, count in counts.items():
        yield f"{family}.{name}", _encode_value(count)
    yield f"{family}.rope.freq_base", struct.pack("<If", FLOAT32, theta)
    yield f"{family}.attention.layer_norm_rms_epsilon", struct.pack("<If", FLOAT32, config["rms_norm_eps"])
    size = config["vocab_size"]
    yield "tokenizer.ggml.model", _encode_value("gpt2")
    yield "tokenizer.ggml.pre", _encode_value("default")
    names = b"".join(_encode_string(f"<{number}>") for number in range(size))
    yield "tokenizer.ggml.tokens", struct.pack("<IIQ", ARRAY, STRING, size) + names
    yield "tokenizer.ggml.token_type", struct.pack("<IIQ", ARRAY, INT32, size) + struct.pack("<i", 1) * size
    yield "tokenizer.ggml.merges", struct.pack("<IIQ", ARRAY, STRING, 1) + _encode_string("< 0")
    yield "tokenizer.ggml.eos_token_id", _encode_value(0)


def _permute_for_rope(tensor: Tensor, name: str, config: Mapping[str, Any]) -> Tensor:
    """Of the Llama family proper, llama.cpp turns pairs of neighbours and not halves: so its rows are put in order."""
    part = next((part for part in ("q", "k") if f".self_attn.{part}_proj." in name), None)
    if part is None or config["model_type"] != "llama":
        return tensor
    heads = config["num_attention_heads"]
    heads = heads if part == "q" else config.get("num_key_value_heads") or heads
    return tensor.view(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _encode_tensor(tensor: Tensor, ggml_type: int) -> bytes:
    if ggml_type == GGML_TYPES["f32"]:
        return tensor.float().numpy().tobytes()
    if ggml_type == GGML_TYPES["bf16"]:
        return tensor.to(torch.bfloat16).view(torch.int16).numpy().tobytes()
    blocks = tensor.float().view(-1, Q8_BLOCK_SIZE)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    whole = torch.where(scales > 0, blocks / scales, 0.0).round().to(torch.int8)
    halves = scales.to(torch.float16).view(torch.int8)
    return torch.cat((halves, whole), dim=1).numpy().tobytes()


def _encode_value(value: int | str) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _encode_string(value)
    return struct.pack("<II", UINT32, value)


def _encode_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _pad_to_alignment(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))
