"""Trained weights as folders that others can read: bf16 safetensors beside an ordinary config."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from specchat.train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat.train.trainable_llama import ModelShape, TrainableLlama

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def eagle3_hidden_state_layers(layers: int) -> tuple[int, int, int]:
    """Which places of the residual stream EAGLE-3 reads: before these layers."""
    return 2, layers // 2, layers - 3


def export_network(network: TrainableLlama, folder: Path, tokenizer: Path) -> None:
    """A folder for AutoModelForCausalLM and AutoTokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", network.shape.to_config())
    write_json(folder / "generation_config.json", {"eos_token_id": 0, "pad_token_id": 5, "do_sample": False})
    write_weights(folder / "model.safetensors", network.state_dict())
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, folder / name)


def export_eagle3(eagle: Eagle3, target: ModelShape, folder: Path) -> None:
    """The SafeAILab form: `midlayer.*`, offsets in `d2t`, membership in `t2d`; embeddings are the target's."""
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
    """The SafeAILab form of EAGLE-1 and EAGLE-2: `fc.weight` without bias, `layers.0.*`; the rest is the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", eagle.shape.to_config() | {"bias": False})
    write_weights(folder / "model.safetensors", eagle.state_dict())


def export_mtp(block: MtpBlock, target: ModelShape, folder: Path) -> None:
    """The DeepSeek-V3 form: `model.layers.{n}.{enorm,hnorm,eh_proj,shared_head.norm}` and a normal layer."""
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
    """Medusa's form with residual blocks only (`{k}.0.linear.*`): the output matrix is the target's."""
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
    """Floating tensors go to bf16; tables of ids stay as they are."""
    content = {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in state.items()
    }
    save_file(content, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors leaves it readable for its owner alone


def load_weights(module: nn.Module, path: Path) -> None:
    """The weights of a stage's checkpoint."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    module.load_state_dict(content["student"])
