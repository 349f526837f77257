"""A tiny network that counts, on disk as a hub would hold it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.random_models import random_model_folder

CONFIG = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
}  # fmt: skip
EXPERTS = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}


def config_file(folder: Path, family: str = "qwen2") -> Path:
    """The config.json of such a network."""
    path = folder / f"{family}.json"
    changes: dict[str, Any] = {
        "qwen2": {},
        "llama": {"architectures": ["LlamaForCausalLM"]},
        "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], **EXPERTS},
    }[family]
    path.write_text(json.dumps({**CONFIG, "model_type": family, **changes}))
    return path


def counting(folder: Path, family: str = "qwen2") -> Path:
    """The folder of such a network."""
    return random_model_folder(str(config_file(folder, family)), folder)
