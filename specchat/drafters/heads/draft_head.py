"""The interface of a loaded head, and what its self-test gives it to predict from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.cache import KVPool
from specchat.engine.model import Model

TESTED_DEPTH = 3  # draft tokens of a self-test in a chain


@dataclass(frozen=True)
class TargetSample:
    """A text that the target sampled."""

    tokens: list[int]  # [L + 1]
    probabilities: Tensor  # of the next token [L, V]
    hidden_states: Tensor  # [L, layers * D]

    def tokens_after(self, depth: int) -> Tensor:
        """The sampled token `1 + depth` places behind every position; the last one where the text ends."""
        tokens = torch.tensor(self.tokens, device=self.hidden_states.device)
        return torch.cat((tokens[1 + depth :], tokens[-1:].expand(depth)))


class DraftHead(ABC):
    """The network of a trained head for one target. The drafters of all texts share it."""

    hidden_state_layers: tuple[int, ...]  # of the target, whose states it reads
    bytes: int  # of its weights

    @abstractmethod
    def predictions(self, sample: TargetSample) -> list[Tensor]:
        """Its best token after every position, as tokens of the target: [L] for each depth.

        The sampled tokens replace draft tokens, so that every depth is tested after correct predictions.
        """

    def kv_pools(self) -> tuple[KVPool, ...]:
        """Its KV caches."""
        return ()

    def capture_graphs(self, target: Model) -> None:  # noqa: B027 - most heads have none
        """Capture all CUDA graphs of its drafters, so that no turn has to; nothing without graphs."""


class CachingHead(DraftHead, ABC):
    """A head with a KV cache of its own for each text."""

    kind: str
    pool: KVPool
    context_window: int  # positions that it attends to

    def kv_pools(self) -> tuple[KVPool, ...]:
        return (self.pool,)
