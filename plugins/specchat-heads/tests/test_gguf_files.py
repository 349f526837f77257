"""A DFlash head that llama.cpp's converter wrote into a file of its own is the published one."""

from __future__ import annotations

from dataclasses import replace

import torch
from gguf import GGUFWriter
from plugin_heads import published

from specchat.drafters.heads.detect import inspect_head
from specchat.hub.find_models import find_model
from specchat.own_tables import own_tables
from specchat.weights.gguf import gguf_families
from tests.gguf_models import finished

SIZES = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "vocab_size": "vocab_size", "block_size": "block_size",
}  # fmt: skip


def write_dflash(path, golden):
    config, writer = golden.config, GGUFWriter(path, "dflash")
    for key, name in SIZES.items():
        writer.add_uint32(f"dflash.{key}", config[name])
    writer.add_float32("dflash.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    writer.add_float32("dflash.rope.freq_base", config["rope_parameters"]["rope_theta"])
    writer.add_array("dflash.target_layers", [each + 1 for each in config["dflash_config"]["target_layer_ids"]])
    writer.add_uint32("tokenizer.ggml.mask_token_id", config["dflash_config"]["mask_token_id"])
    head = own_tables(gguf_families.__file__)["heads"]["dflash"]
    parts, tables = ({name: part for part, name in head[key].items()} for key in ("layer", "names"))
    for name, tensor in golden.head.items():
        part = name.removesuffix(".weight")
        if part not in tables:
            _layers, number, inner = part.split(".", 2)
            tables[part] = f"blk.{number}.{parts[inner]}"
        writer.add_tensor(f"{tables[part]}.weight", tensor.float().numpy())
    return finished(writer, path)


def test_a_dflash_head_of_llama_cpp_is_the_published_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    golden = published("dflash")
    golden = replace(golden, head={name: each.bfloat16().float() for name, each in golden.head.items()})
    path = write_dflash(tmp_path / "head.gguf", golden)

    stored, expected = inspect_head(find_model(str(path), "head")), inspect_head(golden.save(tmp_path / "head"))

    for field in ("kind", "format", "hidden_state_layers", "dimensions", "block_config", "tokens_ahead", "rope"):
        assert getattr(stored, field) == getattr(expected, field), field
    assert stored.tensors.locations.keys() == expected.tensors.locations.keys()
    for name in expected.tensors.locations:
        assert torch.equal(stored.tensors.read_tensor(name).float(), expected.tensors.read_tensor(name)), name
