"""Plain decoding of networks that continue a state with one token only (Mamba, Jamba, Zamba, RecurrentGemma, RWKV).

A prompt is read in one pass, and what is added to a text later token by token. Some of these networks make a cache of
their own class, and some keep a state in their modules instead, which is moved in and out for each text. Knows a
network of transformers and no drafter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from specchat.engine.model import ModelOutput
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.own_cache import OwnCacheModel, ReadText

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WHOLE_PROMPT = 2**20  # tokens of a prefill pass that must not be continued by another


@dataclass
class _Text(ReadText):
    module_states: list[Any] = field(default_factory=list[Any])  # of the modules that keep a state themselves


class TokenByToken(OwnCacheModel):
    """A network of transformers of which only the first pass over a text may have several tokens."""

    def __init__(
        self, network: PreTrainedModel, context_window: int | None = None, limits: BatchLimits | None = None
    ) -> None:
        super().__init__(network, context_window, limits)
        self.prefill_chunk = WHOLE_PROMPT
        self._state_modules, self._makes_cache = _observe_first_pass(network, self._cache_name)
        self._initial_states = self._take_states()

    def _new_text(self) -> ReadText:
        states = [each.clone() if isinstance(each, Tensor) else each for each in self._initial_states]
        return _Text(None if self._makes_cache else self._new_cache(), module_states=states)

    def _read(self, text: ReadText, tokens: list[int]) -> ModelOutput:
        assert isinstance(text, _Text)
        parts = [[token] for token in tokens] if text.tokens else [tokens]
        for (module, name), value in zip(self._state_modules, text.module_states, strict=True):
            setattr(module, name, value)
        outputs = [super(TokenByToken, self)._read(text, part) for part in parts]
        text.module_states = self._take_states()
        hidden_states = [each.hidden_states for each in outputs if each.hidden_states is not None]
        return ModelOutput(outputs[-1].logits, torch.cat(hidden_states) if hidden_states else None)

    def _take_states(self) -> list[Any]:
        return [getattr(module, name) for module, name in self._state_modules]


def _observe_first_pass(network: PreTrainedModel, cache_name: str) -> tuple[list[tuple[nn.Module, str]], bool]:
    """The attributes of modules that a pass changes, states outside the cache, and whether it makes a cache."""
    before = {(module, name): value for module, name, value in _plain_attributes(network)}
    with torch.inference_mode():
        out = network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.device), use_cache=True)
    changed = [
        (module, name)
        for module, name, value in _plain_attributes(network)
        if isinstance(value, Tensor) and value is not before.get((module, name))
    ]
    for module, name in changed:
        setattr(module, name, before.get((module, name)))
    return changed, getattr(out, cache_name, None) is not None


def _plain_attributes(network: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """Tensors, and attributes that are None until the first pass, that are neither weights nor buffers."""
    for module in network.modules():
        for name, value in vars(module).items():
            if value is None or isinstance(value, Tensor):
                yield module, name, value
