"""What the engine asks of a model: one pass over a tree of draft tokens.

Knows tensors and positions; knows no drafter and no text. The implementations are in `specchat.forward`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVPool
from specchat.engine.tree import DraftTree

FINAL_NORM = -1  # the tap after the final norm; tap k is the residual stream after k layers
MAX_PROMPT_HIDDEN_STATES = 2048  # features of so many last tokens of a prompt are kept


@dataclass(frozen=True)
class ModelOutput:
    """What the network says at every node."""

    logits: Tensor  # [N, V]
    hidden_states: Tensor | None  # [N, taps * D]: the tapped hidden states side by side


class Model(Protocol):
    """A causal language model that scores every node of a tree in one pass."""

    vocab_size: int  # columns of the logits
    context_window: int  # longest text it was made for, in tokens
    prefill_chunk: int  # tokens of a prompt that it reads in one pass
    max_rows: int  # most nodes in one pass
    supports_trees: bool  # else chains only
    pool: KVPool  # where its keys and values live
    bytes: int  # what its weights take
    hidden_state_layers: tuple[int, ...]  # the hidden states that outputs carry now, side by side

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """Score every node. Their keys and values stay in the cache, uncommitted."""
        ...

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """Take in at most `chunk` tokens of a prompt and commit them; logits of the last one only.

        Tokens that are still on the device are read there, and nobody waits for them.
        """
        ...

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        ...

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings as the first layer gets them, with the family's scaling if it has one. [n] -> [n, D]"""
        ...

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """The output matrix alone, for hidden states that have passed the final norm. [n, D] -> [n, V]"""
        ...


class EarlyExitModel(Model, Protocol):
    """A model whose first layers can speak for all of them (LayerSkip, arXiv 2404.16710)."""

    def forward_early_exit(self, tokens: list[int], cache: KVCache, exit_layer: int) -> Tensor:
        """Read tokens with the first `layers` layers, the final norm and the output matrix. Logits of the last [1, V]

        Their keys and values stay in the cache, uncommitted. Deeper layers have none, so that such rows are good for
        further exits at the same layer and for nothing else.
        """
        ...


def select_layers(hidden_states: Tensor, available_layers: tuple[int, ...], wanted_layers: tuple[int, ...]) -> Tensor:
    """Of hidden states tapped at `taps`, side by side, those at `wanted`. [n, taps * D] -> [n, wanted * D]"""
    if available_layers == wanted_layers:
        return hidden_states
    parts = hidden_states.chunk(len(available_layers), dim=-1)
    return torch.cat([parts[available_layers.index(tap)] for tap in wanted_layers], dim=-1)


def limit_context_window(requested: int | None, trained: int | None) -> int:
    """The window of a model, in tokens: what is wanted, but never more than it was made for."""
    return min(requested or 2**20, trained or 2**20)
