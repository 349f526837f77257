"""Writes trained heads in their published formats: bf16 safetensors and config.json."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat_train.trainable_llama import ModelShape

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def eagle3_hidden_state_layers(layers: int) -> tuple[int, int, int]:
    """The hidden states that EAGLE-3 reads: those before these layers."""
    return 2, layers // 2, layers - 3


def export_eagle3(eagle: Eagle3, target: ModelShape, folder: Path) -> None:
    """SafeAILab's format: `midlayer.*`, offsets in `d2t`, membership in `t2d`; without the target's embeddings."""
    folder.mkdir(parents=True, exist_ok=True)
    config = eagle.shape.to_config() | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": len(eagle.d2t),
        "target_hidden_size": target.hidden_size,
        "tie_word_embeddings": False,
        "num_target_layers": target.layers,
    }
    write_json(folder / "config.json", config)
    state = eagle.state_dict()
    write_weights(folder / "model.safetensors", state | {"fc.weight": state["fc.weight"] * eagle.hidden_state_scale})


def export_eagle1(eagle: Eagle1, folder: Path) -> None:
    """SafeAILab's format of EAGLE-1 and EAGLE-2: `fc.weight` without bias, `layers.0.*`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", eagle.shape.to_config() | {"bias": False})
    write_weights(folder / "model.safetensors", eagle.state_dict())


def export_mtp(block: MtpBlock, target: ModelShape, folder: Path) -> None:
    """DeepSeek-V3's format: `model.layers.{n}.{enorm,hnorm,eh_proj,shared_head.norm}` and a decoder layer."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"model.layers.{target.layers}."
    names = {"norm.weight": "shared_head.norm.weight"}
    state = {
        prefix + names.get(name, name.removeprefix("layer.")): tensor for name, tensor in block.state_dict().items()
    }
    config = target.to_config() | {
        "architectures": ["LlamaForCausalLMMTP"],
        "num_nextn_predict_layers": 1,
        "mtp_hidden_states": "post_norm",
    }
    write_json(folder / "config.json", config)
    write_weights(folder / "model.safetensors", state)


def export_medusa(medusa: Medusa, target: ModelShape, folder: Path) -> None:
    """Medusa's format with residual blocks only (`{k}.0.linear.*`); the output matrix is the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "medusa_num_heads": len(medusa),
        "medusa_num_layers": 1,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "version": "2",
        "base_model_name_or_path": "../target",
    }
    write_json(folder / "config.json", config)
    write_weights(folder / "medusa_lm_head.safetensors", medusa.state_dict())


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_weights(path: Path, state: dict[str, Tensor]) -> None:
    """Save floats in bf16, and other tensors in their dtype."""
    content = {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in state.items()
    }
    save_file(content, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable for its owner only
