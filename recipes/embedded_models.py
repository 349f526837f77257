"""Reads and writes the folders of the embedded models and the checkpoints of their training stages."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from specchat_train.export_weights import TOKENIZER_FILES, write_json, write_weights
from specchat_train.load_trained import load_eagle1, load_eagle3, load_llama, load_medusa, load_mtp
from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat_train.trainable_llama import TrainableLlama


@dataclass(frozen=True)
class EmbeddedModels:
    """The target, its draft model and its heads; older folders have no EAGLE-1 head."""

    target: TrainableLlama
    draft: TrainableLlama
    eagle3: Eagle3
    mtp: MtpBlock
    medusa: Medusa
    eagle1: Eagle1 | None


def load_embedded_models(folder: Path) -> EmbeddedModels:
    target = load_llama(folder / "target")
    return EmbeddedModels(
        target=target,
        draft=load_llama(folder / "draft"),
        eagle3=load_eagle3(folder / "eagle3", target.shape),
        mtp=load_mtp(folder / "mtp", target.shape),
        medusa=load_medusa(folder / "medusa", target.shape),
        eagle1=load_eagle1(folder / "eagle", target.shape) if (folder / "eagle").is_dir() else None,
    )


def export_network(network: TrainableLlama, folder: Path, tokenizer: Path) -> None:
    """Write a folder for AutoModelForCausalLM and AutoTokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", network.shape.to_config())
    write_json(folder / "generation_config.json", {"eos_token_id": 0, "pad_token_id": 5, "do_sample": False})
    write_weights(folder / "model.safetensors", network.state_dict())
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, folder / name)


def load_weights(module: nn.Module, path: Path) -> None:
    """Load the weights of a stage's checkpoint."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    module.load_state_dict(content["student"])
