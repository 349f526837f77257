"""What a drafter is: something that guesses, and that is told what became of its guesses.

The seam of the engine. The loop knows nothing of any drafter but this; a drafter knows nothing of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.sampling import Sampler, SeenTokens
from specchat.engine.tree import DraftTree


@dataclass(frozen=True)
class DraftContext:
    """All that a drafter may look at when it guesses."""

    tokens: list[int]  # the text so far; the last token is the root of the tree. Not to be changed
    sampler: Sampler
    max_draft_tokens: int  # most guesses worth verifying in one pass
    seen_tokens: SeenTokens | None = None  # what the sampler's rules remember of the text
    cache: KVCache | None = None  # the target's own, for who reads on from its rows; left as it was found


@dataclass(frozen=True)
class Outcome:
    """What the target made of a tree, whose sources say who guessed. A prompt is one too: a chain accepted whole."""

    tree: DraftTree
    path: list[int]  # nodes kept, root first
    sampled_tokens: list[int]  # the target's token after every node [N]; of a prompt, the text itself
    root_position: int  # of the root in the text
    hidden_states: Tensor | None = None  # tapped hidden states of the last nodes kept [<= len(path), taps * D]
    logits: Tensor | None = None  # at every node [N, V]; a prompt has none
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # the pass, the picks and what was kept of them; a prompt has none

    @property
    def committed_tokens(self) -> list[int]:
        """What became sure: the accepted guesses, then the target's own token."""
        return [self.tree.tokens[node] for node in self.path[1:]] + [self.sampled_tokens[self.path[-1]]]


class Drafter:
    """Guesses what comes next. It can make decoding faster, never different.

    Where the sampler wants draws (the classic rule), who can say how likely his guesses are lets the sampler draw them
    and reports them with `DraftTree.add_drawn`, whatever comes out; guesses of all others are judged as ever.

    This base class is plain decoding. `observe` reaches every drafter of a session, also those that were not asked,
    so it only stores; catching up happens in `propose`, where it is part of the price.
    """

    name = "plain"
    is_instant = False  # answers in microseconds, so that it is worth asking before anything is decided
    hidden_state_layers: tuple[
        int, ...
    ] = ()  # hidden states it wants: k is the residual stream after k layers, -1 the final norm

    def propose(self, context: DraftContext) -> DraftTree:
        """Guess what follows the text, at most `budget` nodes. Here: nothing."""
        return DraftTree(context.tokens[-1])

    def observe(self, outcome: Outcome) -> None:
        """The target has spoken; remember what will help."""

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
