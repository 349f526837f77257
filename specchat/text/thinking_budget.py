"""A limit for the tokens of a thought, as a grammar: a thought that reaches it is closed, and the answer follows.

The tokens that close the thought are forced at a place that the tokens before it decide, so the argument of
`engine/accept.py` holds: the text is that of plain decoding with the same limit. Knows bytes of tokens, and no model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import torch
from torch import Tensor

from specchat.text.tokenizer import Tokenizer


class Phase(Enum):
    """Where in the answer the next token is."""

    START = auto()  # the opening marker may still come
    THINKING = auto()
    CLOSING = auto()  # the limit was reached
    ANSWER = auto()


@dataclass(frozen=True)
class ThinkingMarkers:
    opening: bytes
    closing: bytes
    closing_tokens: tuple[int, ...]  # which end a thought at its limit


@dataclass(frozen=True)
class _State:
    phase: Phase
    text: bytes = b""  # at the start all of it, in a thought its end, which may be the beginning of the marker
    count: int = 0  # tokens of the thought, or forced tokens


class ThinkingBudget:
    """Allows every token, except where a thought of `max_tokens` must be closed. `is_open`: the prompt opened it."""

    def __init__(
        self,
        markers: ThinkingMarkers,
        max_tokens: int,
        token_bytes: Callable[[int], bytes],
        vocab_size: int,
        *,
        is_open: bool,
    ) -> None:
        self._markers, self._max_tokens = markers, max(1, max_tokens)
        self._token_bytes, self._every_token = token_bytes, torch.ones(vocab_size, dtype=torch.bool)
        self._states = [_State(Phase.THINKING if is_open else Phase.START)]

    @property
    def phase(self) -> Phase:
        return self._states[-1].phase

    def allowed_mask(self) -> Tensor:
        """Every token, or the one that closes the thought. bool [V]"""
        if forced := self.forced_tokens():
            mask = torch.zeros_like(self._every_token)
            mask[forced[0]] = True
            return mask
        return self._every_token

    def advance(self, token: int) -> bool:
        if (forced := self.forced_tokens()) and token != forced[0]:
            return False
        self._states.append(self._next_state(self._states[-1], token))
        return True

    def rollback(self, count: int) -> None:
        if count:
            del self._states[-count:]

    def forced_tokens(self) -> list[int]:
        state = self._states[-1]
        return list(self._markers.closing_tokens[state.count :]) if state.phase is Phase.CLOSING else []

    def is_free(self, draft_tokens: Sequence[int]) -> bool:
        """Whether any token may come next, and after it any, up to as many tokens from here."""
        state = self._states[-1]
        used = state.count if state.phase is Phase.THINKING else 0
        return state.phase is Phase.ANSWER or (
            state.phase is not Phase.CLOSING and used + len(draft_tokens) < self._max_tokens
        )

    def _next_state(self, state: _State, token: int) -> _State:
        match state.phase:
            case Phase.ANSWER:
                return state
            case Phase.CLOSING:
                is_closed = state.count + 1 == len(self._markers.closing_tokens)
                return _State(Phase.ANSWER) if is_closed else replace(state, count=state.count + 1)
            case Phase.START:
                return self._after_start(state.text + self._token_bytes(token))
            case Phase.THINKING:
                return self._after_thought(state, state.text + self._token_bytes(token))

    def _after_start(self, text: bytes) -> _State:
        beginning = text.lstrip()
        if beginning.startswith(self._markers.opening):
            return _State(Phase.THINKING)
        return _State(Phase.START if self._markers.opening.startswith(beginning) else Phase.ANSWER, text)

    def _after_thought(self, state: _State, text: bytes) -> _State:
        if self._markers.closing in text:
            return _State(Phase.ANSWER)
        if state.count + 1 >= self._max_tokens:
            return _State(Phase.CLOSING)
        return _State(Phase.THINKING, text[-len(self._markers.closing) + 1 :], state.count + 1)


def make_thinking_budget(
    tokenizer: Tokenizer, max_tokens: int, vocab_size: int, *, is_open: bool
) -> ThinkingBudget | None:
    """The limit for a thought of this model; None for a model that does not think."""
    if (thinking := tokenizer.chat.thinking) is None:
        return None
    closing_tokens = tuple(tokenizer.encode_continuation(thinking.forced_closing))
    markers = ThinkingMarkers(thinking.opening.encode(), thinking.closing.encode(), closing_tokens)
    return ThinkingBudget(markers, max_tokens, tokenizer.bytes_with_markers, vocab_size, is_open=is_open)
