"""A small model with the target's tokens that learns to say what the target says: the oldest way to guess.

It reads tokens and no states, so it fits any target of the same tokens and outlives changes of the target's weights. A
new one begins with the target's embeddings, seen along their main directions.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from specchat.models.tokenizer import Tokenizer
from specchat.models.vocabulary import check_same_tokens
from specchat.train.export_weights import TOKENIZER_FILES, write_json, write_weights
from specchat.train.frozen_target import FrozenTarget
from specchat.train.trainable_llama import ModelShape, TrainableLlama

LAYERS, HEAD_WIDTH = 2, 64
COPIED_FILES = ("generation_config.json", "special_tokens_map.json", *TOKENIZER_FILES)


def new_draft_model(target: ModelShape, embedding: Tensor) -> TrainableLlama:
    """A new one: two layers of three quarters of the target's width. embedding [V, D]: the target's."""
    heads = max(1, 3 * target.hidden_size // 4 // HEAD_WIDTH)
    width = min(heads * HEAD_WIDTH, target.hidden_size)
    shape = replace(target, layers=LAYERS, width=width, heads=1 if width < HEAD_WIDTH else heads, inner=2 * width)
    network = TrainableLlama(replace(shape, head_width=width // shape.num_heads))
    table = embedding.float().cpu()
    _, directions = torch.linalg.eigh(table.T @ table)
    with torch.no_grad():
        network.model.embed_tokens.weight.copy_(table @ directions[:, -width:])
    return network


def check_draft_tokens(folder: Path, target: FrozenTarget) -> None:
    """ModelError for a model that has other tokens than the target."""
    check_same_tokens(target.tokenizer, Tokenizer(folder))


def export_draft_model(network: TrainableLlama, target: FrozenTarget, folder: Path) -> None:
    """A folder for AutoModelForCausalLM, with the target's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", network.shape.to_config())
    write_weights(folder / "model.safetensors", network.state_dict())
    for name in COPIED_FILES:
        if (target.folder / name).is_file():
            shutil.copy(target.folder / name, folder / name)


def is_draft_model(folder: Path) -> bool:
    """Whether a folder holds a whole model and not a head."""
    return (folder / "tokenizer.json").is_file()
