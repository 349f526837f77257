"""The shipped folders read back into the training classes, to measure what others will load."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from specchat.train.trainable_heads import Eagle, FirstEagle, Medusa, MultiToken
from specchat.train.trainable_llama import Network, Shape


@dataclass(frozen=True)
class Shipped:
    """The target with everybody who drafts for it; older folders have no first EAGLE."""

    target: Network
    draft: Network
    eagle: Eagle
    mtp: MultiToken
    medusa: Medusa
    first_eagle: FirstEagle | None


def read_shipped(folder: Path) -> Shipped:
    target = read_network(folder / "target")
    return Shipped(
        target=target,
        draft=read_network(folder / "draft"),
        eagle=read_eagle(folder / "eagle3", target.shape),
        mtp=read_mtp(folder / "mtp", target.shape),
        medusa=read_medusa(folder / "medusa", target.shape),
        first_eagle=read_first_eagle(folder / "eagle", target.shape) if (folder / "eagle").is_dir() else None,
    )


def read_shape(config: dict[str, Any]) -> Shape:
    return Shape(
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        head_width=config["head_dim"],
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        context=config["max_position_embeddings"],
        theta=config["rope_theta"],
        epsilon=config["rms_norm_eps"],
    )


def read_state(path: Path) -> dict[str, Tensor]:
    """Floating tensors in float32, tables as they are."""
    return {name: t.float() if t.is_floating_point() else t for name, t in load_file(path).items()}


def read_network(folder: Path) -> Network:
    network = Network(read_shape(json.loads((folder / "config.json").read_text())))
    network.load_state_dict(read_state(folder / "model.safetensors"))
    return network.eval()


def read_eagle(folder: Path, target: Shape) -> Eagle:
    state = read_state(folder / "model.safetensors")
    eagle = Eagle(target, state["d2t"] + torch.arange(len(state["d2t"])))
    eagle.load_state_dict(state)
    return eagle.eval()


def read_first_eagle(folder: Path, target: Shape) -> FirstEagle:
    eagle = FirstEagle(target)
    eagle.load_state_dict(read_state(folder / "model.safetensors"))
    return eagle.eval()


def read_mtp(folder: Path, target: Shape) -> MultiToken:
    prefix = f"model.layers.{target.layers}."
    own = ("enorm", "hnorm", "eh_proj", "norm")
    state = {
        name.removeprefix(prefix).replace("shared_head.", ""): tensor
        for name, tensor in read_state(folder / "model.safetensors").items()
    }
    block = MultiToken(target)
    block.load_state_dict({n if n.split(".")[0] in own else f"layer.{n}": tensor for n, tensor in state.items()})
    return block.eval()


def read_medusa(folder: Path, target: Shape) -> Medusa:
    state = read_state(folder / "medusa_lm_head.safetensors")
    medusa = Medusa(target.width, count=1 + max(int(name.split(".")[0]) for name in state))
    medusa.load_state_dict(state)
    return medusa.eval()
