"""A small draft model with the target's tokenizer that learns the target's distribution.

It reads tokens and no hidden states, so it fits any target with the same tokenizer. The embeddings of a new one are
the principal components of the target's.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from specchat.text.tokenizer import Tokenizer, check_same_tokens
from specchat_train.export_weights import TOKENIZER_FILES, write_json, write_weights
from specchat_train.frozen_target import FrozenTarget
from specchat_train.trainable_llama import ModelShape, TrainableLlama

LAYERS, HEAD_DIM = 2, 64
COPIED_FILES = ("generation_config.json", "special_tokens_map.json", *TOKENIZER_FILES)


def new_draft_model(target: ModelShape, embedding: Tensor) -> TrainableLlama:
    """A new draft model of two layers and three quarters of the target's width. embedding [V, D]: the target's."""
    heads = max(1, 3 * target.hidden_size // 4 // HEAD_DIM)
    width = min(heads * HEAD_DIM, target.hidden_size)
    shape = replace(
        target, layers=LAYERS, hidden_size=width, num_heads=heads, head_dim=width // heads, intermediate_size=2 * width
    )
    network = TrainableLlama(shape)
    embedding = embedding.float().cpu()
    _, components = torch.linalg.eigh(embedding.T @ embedding)
    with torch.no_grad():
        network.model.embed_tokens.weight.copy_(embedding @ components[:, -width:])
    return network


def check_draft_tokens(folder: Path, target: FrozenTarget) -> None:
    """ModelError for a model with another tokenizer than the target."""
    check_same_tokens(target.tokenizer, Tokenizer(folder))


def export_draft_model(network: TrainableLlama, target: FrozenTarget, folder: Path) -> None:
    """Write a folder for AutoModelForCausalLM, with the target's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", network.shape.to_config())
    write_weights(folder / "model.safetensors", network.state_dict())
    for name in COPIED_FILES:
        if (target.folder / name).is_file():
            shutil.copy(target.folder / name, folder / name)


def is_draft_model(folder: Path) -> bool:
    """Whether a folder contains a language model and not a head."""
    return (folder / "tokenizer.json").is_file()
