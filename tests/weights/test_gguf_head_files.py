"""Heads that llama.cpp's converter wrote into files of their own are those of the published checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gguf import GGUFWriter

from specchat.drafters.heads.detect import inspect_head
from specchat.errors import ModelError
from specchat.hub.architecture import HEAD
from specchat.hub.find_models import find_model
from specchat.hub.safetensors_headers import read_architecture
from specchat.own_tables import own_tables
from specchat.weights.gguf import gguf_families
from tests.drafters.published import logits_of, published
from tests.gguf_models import finished

TABLES = {"fc": "fc", "norm": "output_norm", "lm_head": "output", "embed_tokens": "token_embd"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def golden():
    """A published head whose numbers a file in any float format holds exactly."""
    head = published("eagle3")
    exact = {key: each.bfloat16().float() if each.is_floating_point() else each for key, each in head.head.items()}
    return replace(head, head=exact)


def write_eagle3(path, golden, **extra):
    """Rows of Q and K are stored in pairs, and the draft vocabulary as ids of the target's tokens."""
    config, writer = golden.config, GGUFWriter(path, "eagle3")
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    sizes = {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
        "block_count": 1, "attention.head_count": heads["q"], "attention.head_count_kv": heads["k"],
        "attention.key_length": golden.head["midlayer.self_attn.q_proj.weight"].shape[0] // heads["q"],
        "vocab_size": config["vocab_size"],
    }  # fmt: skip
    for key, value in sizes.items():
        writer.add_uint32(f"eagle3.{key}", value)
    writer.add_float32("eagle3.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    writer.add_float32("eagle3.rope.freq_base", config.get("rope_theta", 10000.0))
    writer.add_array("eagle3.target_layers", [2, 3, 3])
    layer = own_tables(gguf_families.__file__)["heads"]["eagle3"]["layer"]
    names = {f"midlayer.{name}": f"blk.0.{part}" for part, name in layer.items()} | TABLES
    for name, tensor in (golden.head | extra).items():
        stored = tensor
        if name == "d2t":
            writer.add_tensor(name, (tensor.long() + torch.arange(len(tensor))).numpy())
        elif name != "t2d":
            if count := next((heads[each] for each in heads if f".{each}_proj." in name), 0):
                stored = tensor.reshape(count, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
            part = name.removesuffix(".weight")
            writer.add_tensor(f"{names.get(part, part)}.weight", stored.float().contiguous().numpy())
    return finished(writer, path)


def test_a_head_in_a_file_of_its_own_is_the_published_one(tmp_path, golden):
    path = write_eagle3(tmp_path / "head.gguf", golden)

    stored, expected = inspect_head(find_model(str(path), "head")), inspect_head(golden.save(tmp_path / "head"))

    assert ("eagle3", expected.target_vocab_size) == (stored.kind, stored.target_vocab_size)
    assert torch.equal(stored.draft_to_target_ids(), expected.draft_to_target_ids())
    stored = replace(stored, hidden_state_layers=expected.hidden_state_layers)
    assert all(map(torch.equal, logits_of(stored, golden), logits_of(expected, golden)))
    assert read_architecture(path).family == HEAD


def test_a_head_is_no_model_and_one_with_other_tensors_is_refused(tmp_path, golden):
    path = write_eagle3(tmp_path / "head.gguf", golden)
    other = write_eagle3(tmp_path / "other.gguf", golden, **{"midlayer.extra.weight": torch.zeros(4, 4)})

    with pytest.raises(ModelError, match=r"head\.gguf: not a model \(tokenizer\.json is missing\)"):
        find_model(str(path))
    with pytest.raises(ModelError, match=r"a head of eagle3 with the tensor midlayer\.extra\.weight is not supported"):
        find_model(str(other), "head")
