"""A Llama-like network as a GGUF file, so that llama.cpp computes with the same weights.

Holds only what a forward pass needs: token ids go in and come out, so the tokens have no text.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quant_shape_to_byte_shape
from gguf.quants import quantize
from torch import Tensor

from specchat.errors import ModelError
from specchat.weights.llama_weights import tensor_files

STORAGE_TYPES: Mapping[str, GGMLQuantizationType] = {
    "f32": GGMLQuantizationType.F32, "bf16": GGMLQuantizationType.BF16, "q8_0": GGMLQuantizationType.Q8_0,
}  # fmt: skip
ARCHITECTURES = {"llama": MODEL_ARCH.LLAMA, "qwen2": MODEL_ARCH.QWEN2, "qwen3": MODEL_ARCH.QWEN3}


def write_gguf(folder: Path, path: Path, storage_type: str) -> None:
    """Write the network of a folder as one file, one tensor at a time. ModelError for another architecture."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{folder}: {config['model_type']} cannot be written as GGUF; known are {known}")
    files, matrix_type = tensor_files(folder, config), STORAGE_TYPES[storage_type]
    partial = path.with_suffix(".part")
    writer = GGUFWriter(partial, config["model_type"])
    _add_metadata(writer, config)
    names = get_tensor_name_map(ARCHITECTURES[config["model_type"]], config["num_hidden_layers"])
    gguf_names = ((name, names.get_name(name, (".weight", ".bias"))) for name in files.locations)
    tensors = [(name, gguf_name) for name, gguf_name in gguf_names if gguf_name is not None]
    for name, gguf_name in tensors:
        shape = files.shape(name)
        stored_type = _type_of(shape, matrix_type)
        byte_shape = quant_shape_to_byte_shape(shape, stored_type) if stored_type != STORAGE_TYPES["f32"] else shape
        dtype = numpy.dtype(numpy.float32 if stored_type == STORAGE_TYPES["f32"] else numpy.uint8)
        size = int(numpy.prod(byte_shape)) * dtype.itemsize
        writer.add_tensor_info(gguf_name, byte_shape, dtype, size, raw_dtype=stored_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, _gguf_name in tensors:
        tensor = _permute_for_rope(files.read_tensor(name).float(), name, config)
        writer.write_tensor_data(quantize(tensor.numpy(), _type_of(tensor.shape, matrix_type)))
    writer.close()
    partial.replace(path)


def _type_of(shape: tuple[int, ...], matrix_type: GGMLQuantizationType) -> GGMLQuantizationType:
    """Norms and biases are always float32."""
    return matrix_type if len(shape) > 1 else STORAGE_TYPES["f32"]


def _add_metadata(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    """The hyperparameters and a vocabulary of nameless tokens."""
    heads, vocab_size = config["num_attention_heads"], config["vocab_size"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10000.0
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(theta)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"<{number}>" for number in range(vocab_size)])
    writer.add_token_types([1] * vocab_size)
    writer.add_token_merges(["< 0"])
    writer.add_eos_token_id(0)


def _permute_for_rope(tensor: Tensor, name: str, config: Mapping[str, Any]) -> Tensor:
    """In the architecture `llama`, llama.cpp rotates adjacent pairs, not halves: reorder the rows of Q and K."""
    part = next((part for part in ("q", "k") if f".self_attn.{part}_proj." in name), None)
    if part is None or config["model_type"] != "llama":
        return tensor
    heads = config["num_attention_heads"]
    heads = heads if part == "q" else config.get("num_key_value_heads") or heads
    return tensor.view(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
