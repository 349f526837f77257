"""The interface of a target or draft model: one forward pass over a draft tree, and prefill.

It knows tensors and positions, no drafter and no text. The implementations are in `specchat.forward`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVPool
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import DraftTree

FINAL_NORM = -1  # the hidden state after the final norm; layer k is the residual stream after k layers
MAX_PROMPT_HIDDEN_STATES = 2048  # last tokens of a prompt whose hidden states are stored
TextStates = Mapping[int, Mapping[str, Tensor]]  # states of recurrent layers, by the number of tokens that they follow


CaptureProgress = Callable[[int, int], None]  # CUDA graphs captured so far, of all


@dataclass(frozen=True)
class ModelOutput:
    logits: Tensor  # [N, V]
    hidden_states: Tensor | None  # [N, layers * D]: the states of the selected layers, concatenated


class Model(Protocol):
    """A causal language model that computes every node of a tree in one pass.

    A caller that needs more than plain passes asks what a model can do, and never for its class.
    """

    vocab_size: int  # columns of the logits
    context_window: int  # longest supported text, in tokens
    prefill_chunk: int  # most tokens in one prefill pass
    max_rows: int  # most nodes in one pass
    supports_trees: bool  # else chains only
    supports_self_drafting: bool  # by `forward_early_exit`, with passes over its first layers that leave no trace
    is_exact: bool  # verifies with the numbers of plain decoding; else low precision may decide a near tie differently
    pool: KVPool  # of its KV caches
    bytes: int  # of its weights
    hidden_state_layers: tuple[int, ...]  # the layers whose states an output contains
    layer_count: int  # decoder layers

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """Compute every node. Their keys and values stay in the cache, uncommitted."""
        ...

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """Compute at most `prefill_chunk` tokens and commit them; returns logits of the last token only.

        A tensor of tokens stays on its device, without synchronization.
        """
        ...

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        """Select the layers whose states all later outputs contain."""
        ...

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings of the first layer, with the model family's scaling. [n] -> [n, D]"""
        ...

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Apply the output matrix to hidden states after the final norm. [n, D] -> [n, V]"""
        ...

    @property
    def has_graphs(self) -> bool:
        """Whether passes over few nodes are CUDA graphs."""
        ...

    @property
    def graph_widths(self) -> tuple[int, ...]:
        """Rows that passes over few nodes are padded to, the next ones of these; none where no graph has fewer rows."""
        ...

    @property
    def lm_head(self) -> Callable[[Tensor], Tensor]:
        """The same as a linear layer where it is one, for heads that share it."""
        ...

    @property
    def embedding_table(self) -> Tensor | None:
        """The input embeddings as layers read them [V, D]; None where they are no such tensor."""
        ...

    @property
    def attention_windows(self) -> tuple[int | None, ...] | None:
        """The sliding window of each layer; None where other networks cannot read the rows of its KV cache."""
        ...

    def capture_graphs(self, progress: CaptureProgress) -> None:
        """Capture all CUDA graphs, so that no turn has to; nothing without graphs."""
        ...


@dataclass(frozen=True)
class SampledOutput:
    output: ModelOutput
    samples: Tensor  # as `sampling.pack_samples` [N, 2]


@runtime_checkable
class SamplingModel(Protocol):
    """A model that can sample on the device, together with its pass."""

    def forward_and_sample(
        self,
        tree: DraftTree,
        cache: KVCache,
        sampler: Sampler,
        rows: LogitRows,
        seen_tokens: SeenTokens | None = None,
        computed: ModelOutput | None = None,
    ) -> SampledOutput | None:
        """As `Model.forward`, and the token after every node; None if this pass cannot do both, and did nothing.

        `rows` are those of the tree. What `forward_texts` has `computed` of it is not computed again.
        """
        ...


@runtime_checkable
class JoiningModel(Protocol):
    """A model that computes rows of several texts in one pass, each with the bits of a pass of its own."""

    joins_texts: bool  # whether it does, on this machine
    max_rows: int

    def forward_texts(self, trees: Sequence[tuple[DraftTree, KVCache]]) -> list[ModelOutput]:
        """As `Model.forward` of each tree."""
        ...


@runtime_checkable
class StatefulModel(Protocol):
    """A model that keeps states of a text beside the rows of its KV cache."""

    state_forms: frozenset[tuple[Any, ...]]  # those of the states after a token, by `forms_of`

    def copy_states(self, cache: KVCache, length: int) -> TextStates:
        """The last few states after at most so many of the committed tokens, in host memory."""
        ...

    def restore_states(self, cache: KVCache, states: TextStates) -> None:
        """Give these states to a cache whose rows were restored; the last of them follows its last row."""
        ...


def select_layers(hidden_states: Tensor, available_layers: tuple[int, ...], required_layers: tuple[int, ...]) -> Tensor:
    """Select the states of some layers from concatenated states. [n, available * D] -> [n, required * D]"""
    if available_layers == required_layers:
        return hidden_states
    parts = hidden_states.chunk(len(available_layers), dim=-1)
    return torch.cat([parts[available_layers.index(layer)] for layer in required_layers], dim=-1)


def limit_context_window(requested: int | None, trained: int | None) -> int:
    """The context window in tokens: the requested one, but never more than the model was trained for."""
    return min(requested or 2**20, trained or 2**20)
