"""Loads exported heads and draft models into the training classes, to train them further."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat_train.trainable_llama import ModelShape, TrainableLlama


def read_shape(config: dict[str, Any]) -> ModelShape:
    return ModelShape(
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        head_dim=config["head_dim"],
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        max_positions=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        rms_norm_eps=config["rms_norm_eps"],
    )


def read_state(path: Path) -> dict[str, Tensor]:
    """Load floats in float32, and other tensors in their dtype."""
    return {name: t.float() if t.is_floating_point() else t for name, t in load_file(path).items()}


def load_llama(folder: Path) -> TrainableLlama:
    network = TrainableLlama(read_shape(json.loads((folder / "config.json").read_text())))
    network.load_state_dict(read_state(folder / "model.safetensors"))
    return network.eval()


def load_eagle3(folder: Path, target: ModelShape) -> Eagle3:
    state = read_state(folder / "model.safetensors")
    eagle = Eagle3(target, state["d2t"] + torch.arange(len(state["d2t"])))
    eagle.load_state_dict(state)
    return eagle.eval()


def load_eagle1(folder: Path, target: ModelShape) -> Eagle1:
    eagle = Eagle1(target)
    eagle.load_state_dict(read_state(folder / "model.safetensors"))
    return eagle.eval()


def load_mtp(folder: Path, target: ModelShape) -> MtpBlock:
    prefix = f"model.layers.{target.layers}."
    own = ("enorm", "hnorm", "eh_proj", "norm")
    state = {
        name.removeprefix(prefix).replace("shared_head.", ""): tensor
        for name, tensor in read_state(folder / "model.safetensors").items()
    }
    block = MtpBlock(target)
    block.load_state_dict({n if n.split(".")[0] in own else f"layer.{n}": tensor for n, tensor in state.items()})
    return block.eval()


def load_medusa(folder: Path, target: ModelShape) -> Medusa:
    state = read_state(folder / "medusa_lm_head.safetensors")
    medusa = Medusa(target.hidden_size, count=1 + max(int(name.split(".")[0]) for name in state))
    medusa.load_state_dict(state)
    return medusa.eval()
