"""The target's hidden states of the last tokens of the text, for drafters with a head.

It knows positions and tensors, and not which layers they come from.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.drafter import Outcome
from specchat.engine.model import MAX_PROMPT_HIDDEN_STATES, select_layers

CHUNK_TOKENS = 128  # of a prompt in one pass of a head


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes that these tensors keep in memory: a slice keeps all of the tensor that it was cut from."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class HiddenStateBuffer:
    """The hidden states of the last tokens of the text, without a gap."""

    def __init__(self, max_tokens: int = MAX_PROMPT_HIDDEN_STATES) -> None:
        self.max_tokens = max_tokens
        self.start = self.end = 0  # the tokens whose states are stored
        self._chunks: deque[Tensor] = deque()  # [n, layers * D] each, in the order of the text

    def add(self, position: int, hidden_states: Tensor) -> None:
        """Store the states of the tokens from `position` on; they replace older states there."""
        self.truncate(position)
        if position != self.end:
            self._chunks.clear()
            self.start = self.end = position
        self._chunks.append(hidden_states)
        self.end += len(hidden_states)
        while self.end - self.start - len(self._chunks[0]) >= self.max_tokens:
            self.start += len(self._chunks.popleft())

    def observe(self, outcome: Outcome, available_layers: tuple[int, ...], required_layers: tuple[int, ...]) -> None:
        """Store the states of the committed tokens at `required_layers`, if the target returns all of them."""
        if outcome.hidden_states is not None and all(layer in available_layers for layer in required_layers):
            position = outcome.root_position + len(outcome.path) - len(outcome.hidden_states)
            self.add(position, select_layers(outcome.hidden_states, available_layers, required_layers))

    def trim_cache(self, cache: KVCache, first_position: int, stored_tokens: int, window: int) -> int:
        """Drop the rows of a head's cache that are too old, or all rows if the stored states do not continue them.

        `first_position` is the position of row 0; returns its new value. States exist up to token `stored_tokens`.
        """
        next_position = first_position + cache.length
        if cache.length == 0 or next_position < self.start or stored_tokens - next_position > window:
            cache.rollback(0)
            return max(self.start, stored_tokens - window)
        if cache.length + stored_tokens - next_position > 2 * window:
            newest_rows = list(range(cache.length - window, cache.length))
            cache.rollback(0)
            cache.commit(newest_rows)
            return next_position - window
        return first_position

    def truncate(self, length: int) -> None:
        while self._chunks and self.end > length:
            last = self._chunks.pop()
            self.end -= len(last)
            if self.end < length:
                self._chunks.append(last[: length - self.end])
                self.end = length

    @property
    def bytes(self) -> int:
        return storage_bytes(self._chunks)

    def slice_from(self, position: int) -> Tensor:
        """The states of the tokens from `position` on. [n, layers * D]"""
        chunks, missing = list[Tensor](), self.end - position
        for chunk in reversed(self._chunks):
            if missing <= 0:
                break
            chunks.append(chunk[-missing:])
            missing -= len(chunk)
        return torch.cat(chunks[::-1]) if len(chunks) > 1 else chunks[0]

    def chunks_from(self, position: int) -> Sequence[Tensor]:
        """The same in parts that a head reads in one pass each. [n, layers * D]"""
        states = self.slice_from(position)
        return (states,) if len(states) <= CHUNK_TOKENS else states.split(CHUNK_TOKENS)
