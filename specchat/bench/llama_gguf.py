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
from specchat.models.llama_weights import files_of
from specchat.models.tensor_files import TensorFiles

KINDS: Mapping[str, int] = {"f32": 0, "q8_0": 8, "bf16": 30}  # ggml's numbers of how a tensor is stored
FAMILIES = ("llama", "qwen2", "qwen3")
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # GGUF's numbers of how a value is stored
ALIGNMENT = 32
BLOCK = 32  # weights of Q8_0 that share a scale
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
INSIDE = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


@dataclass(frozen=True)
class _Stored:
    """A tensor as the file will hold it."""

    name: str  # in the folder
    kind: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        count = int(numpy.prod(self.shape))
        return {0: 4 * count, 30: 2 * count, 8: count // BLOCK * (BLOCK + 2)}[self.kind]


def write_gguf(folder: Path, path: Path, kind: str) -> None:
    """The network of a folder as one file, a tensor at a time; ModelError for a family that is spelled otherwise."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] not in FAMILIES:
        raise ModelError(f"{folder}: {config['model_type']} is not written as GGUF; known are {', '.join(FAMILIES)}")
    files = files_of(folder, config)
    tensors = dict(_tensors(files, config, KINDS[kind]))
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        values = [*_values(config)]
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)))
        for name, packed in values:
            file.write(_string(name) + packed)
        offset = 0
        for name, stored in tensors.items():
            dimensions = stored.shape[::-1]
            file.write(_string(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions))
            file.write(struct.pack("<IQ", stored.kind, offset))
            offset += stored.bytes + -stored.bytes % ALIGNMENT
        _align(file)
        for stored in tensors.values():
            file.write(_packed(_turned(files.read(stored.name), stored.name, config), stored.kind))
            _align(file)
    partial.replace(path)


def _tensors(files: TensorFiles, config: Mapping[str, Any], kind: int) -> Iterator[tuple[str, _Stored]]:
    """By the name that llama.cpp knows them under. Norms and biases are always float32."""
    for name, theirs in OUTSIDE.items():
        if name in files:
            shape = files.shape(name)
            yield theirs, _Stored(name, kind if len(shape) > 1 else KINDS["f32"], shape)
    for number in range(config["num_hidden_layers"]):
        for part, theirs in INSIDE.items():
            for end in ("weight", "bias"):
                name = f"model.layers.{number}.{part}.{end}"
                if name in files:
                    shape = files.shape(name)
                    stored = _Stored(name, kind if len(shape) > 1 else KINDS["f32"], shape)
                    yield f"blk.{number}.{theirs}.{end}", stored


def _values(config: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """What llama.cpp wants to know of the network, packed."""
    family, heads = config["model_type"], config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10000.0
    yield "general.architecture", _uint_or_text(family)
    counts = {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads, "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head,
        "vocab_size": config["vocab_size"],
    }  # fmt: skip
    for name, count in counts.items():
        yield f"{family}.{name}", _uint_or_text(count)
    yield f"{family}.rope.freq_base", struct.pack("<If", FLOAT32, theta)
    yield f"{family}.attention.layer_norm_rms_epsilon", struct.pack("<If", FLOAT32, config["rms_norm_eps"])
    size = config["vocab_size"]
    yield "tokenizer.ggml.model", _uint_or_text("gpt2")
    yield "tokenizer.ggml.pre", _uint_or_text("default")
    names = b"".join(_string(f"<{number}>") for number in range(size))
    yield "tokenizer.ggml.tokens", struct.pack("<IIQ", ARRAY, STRING, size) + names
    yield "tokenizer.ggml.token_type", struct.pack("<IIQ", ARRAY, INT32, size) + struct.pack("<i", 1) * size
    yield "tokenizer.ggml.merges", struct.pack("<IIQ", ARRAY, STRING, 1) + _string("< 0")
    yield "tokenizer.ggml.eos_token_id", _uint_or_text(0)


def _turned(tensor: Tensor, name: str, config: Mapping[str, Any]) -> Tensor:
    """Of the Llama family proper, llama.cpp turns pairs of neighbours and not halves: so its rows are put in order."""
    part = next((part for part in ("q", "k") if f".self_attn.{part}_proj." in name), None)
    if part is None or config["model_type"] != "llama":
        return tensor
    heads = config["num_attention_heads"]
    heads = heads if part == "q" else config.get("num_key_value_heads") or heads
    return tensor.view(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _packed(tensor: Tensor, kind: int) -> bytes:
    if kind == KINDS["f32"]:
        return tensor.float().numpy().tobytes()
    if kind == KINDS["bf16"]:
        return tensor.to(torch.bfloat16).view(torch.int16).numpy().tobytes()
    blocks = tensor.float().view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    whole = torch.where(scales > 0, blocks / scales, 0.0).round().to(torch.int8)
    halves = scales.to(torch.float16).view(torch.int8)
    return torch.cat((halves, whole), dim=1).numpy().tobytes()


def _uint_or_text(value: int | str) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    return struct.pack("<II", UINT32, value)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _align(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))
