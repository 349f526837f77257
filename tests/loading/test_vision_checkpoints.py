"""Published checkpoints of models that also read images: the text part answers, and drafts change nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.chat.request import Request
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from tests.each_row import each_row
from tests.engine_answers import measure_answer
from tests.tiny import SPEAKING, speaking

pytestmark = pytest.mark.full

WIDTH, HEADS, HEAD_SIZE, HIDDEN = 64, 4, 32, 96
TEXT = {
    "vocab_size": SPEAKING, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": 4,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": HEAD_SIZE, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 0,
}  # fmt: skip
VISION = {
    "depth": 1, "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2,
    "num_attention_heads": 2, "out_hidden_size": WIDTH,
}  # fmt: skip
GATED_DELTA_NET = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
GLOBAL_KEYS = {
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}  # fmt: skip


def published(folder, family: str, extra: dict):
    """A random checkpoint with the class, the names and the files of a published one."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(0)
    default = AutoConfig.for_model(family)
    parts = {"text_config": type(default.get_text_config())(**(TEXT | extra)).to_dict()}
    if getattr(default, "vision_config", None) is not None:
        parts["vision_config"] = type(default.vision_config)(**VISION).to_dict()
    shutil.copytree(speaking(2), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    AutoModelForImageTextToText.from_config(AutoConfig.for_model(family, **parts)).float().save_pretrained(folder)
    return folder


def add_mtp_layer(folder) -> None:
    """The tensors of a layer for multi-token prediction, as Qwen3.5 stores them beside its own."""
    path, generator, layer = folder / "model.safetensors", torch.Generator().manual_seed(3), "mtp.layers.0."
    norms = {f"mtp.{name}": WIDTH for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    norms |= {f"{layer}{name}": WIDTH for name in ("input_layernorm", "post_attention_layernorm")}
    norms |= {f"{layer}self_attn.{name}": HEAD_SIZE for name in ("q_norm", "k_norm")}
    queries, keys = HEADS * HEAD_SIZE, 2 * HEAD_SIZE
    matrices = {
        "mtp.fc": (WIDTH, 2 * WIDTH), f"{layer}self_attn.q_proj": (2 * queries, WIDTH),
        f"{layer}self_attn.k_proj": (keys, WIDTH), f"{layer}self_attn.v_proj": (keys, WIDTH),
        f"{layer}self_attn.o_proj": (WIDTH, queries), f"{layer}mlp.gate_proj": (HIDDEN, WIDTH),
        f"{layer}mlp.up_proj": (HIDDEN, WIDTH), f"{layer}mlp.down_proj": (WIDTH, HIDDEN),
    }  # fmt: skip
    tensors = {f"{name}.weight": torch.zeros(size) for name, size in norms.items()}
    tensors |= {f"{name}.weight": 0.1 * torch.randn(*shape, generator=generator) for name, shape in matrices.items()}
    save_file(load_file(path) | tensors, path, {"format": "pt"})


@each_row(
    "family, extra, drafter",
    [("qwen3_5", GATED_DELTA_NET, "mtp"), ("gemma4_unified", GLOBAL_KEYS, "suffix")],
)
def test_the_text_part_answers_and_its_drafts_change_nothing(tmp_path, family, extra, drafter):
    folder = published(tmp_path / "model", family, extra)
    if drafter == "mtp":
        add_mtp_layer(folder)
    models = {"models.target": str(folder), "models.draft": "", "models.dtype": "float32"}
    models["models.heads"] = [str(folder)] if drafter == "mtp" else []
    engine = load_engine(Profile().override(models))

    for temperature in (0.0, 0.9):
        request = Request("why why why why", max_tokens=24, seed=3, temperature=temperature)
        plain, drafted = (measure_answer(engine, replace(request, variant=each)) for each in ("plain", drafter))
        assert plain.text
        assert plain.text == drafted.text
