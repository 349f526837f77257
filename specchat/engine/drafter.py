"""The interface of a drafter: it proposes draft tokens and observes which of them the target accepted.

The decoding loop and the conversation know drafters only through this interface. A drafter knows nothing about them.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree


@dataclass(frozen=True)
class DraftContext:
    tokens: list[int]  # the text so far; the last token is the root of the tree. Read-only
    sampler: Sampler
    max_draft_tokens: int  # in one pass
    seen_tokens: SeenTokens | None = None  # for the sampler's penalties
    cache: KVCache | None = None  # the target's own, for drafters of the engine's thread, which leave it unchanged

    def with_budget(self, max_draft_tokens: int) -> "DraftContext":
        """The same text, with so many draft tokens. Made in each step: `replace` takes three times as long."""
        return DraftContext(self.tokens, self.sampler, max_draft_tokens, self.seen_tokens, self.cache)


@dataclass(frozen=True)
class Outcome:
    """The result of verifying a tree. A prefilled prompt is reported the same way: a chain accepted as a whole."""

    tree: DraftTree  # its sources name the drafter of each node
    path: list[int]  # accepted nodes, root first
    sampled_tokens: list[int]  # the target's token after every node [N]; in a prompt, the text itself
    root_position: int  # in the text
    hidden_states: Tensor | None = None  # of the last accepted nodes [<= len(path), layers * D]
    logits: Tensor | None = None  # at every node [N, V]; None for a prompt
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # forward pass, sampling and commit; 0 for a prompt
    other_rows: int = 0  # of other texts in the pass that verified it
    other_texts: int = 0
    is_repeated: bool = False  # the text repeats itself word for word: what is drafted now says nothing about the rest

    @cached_property
    def committed_tokens(self) -> list[int]:
        return [self.tree.tokens[node] for node in self.path[1:]] + [self.sampled_tokens[self.path[-1]]]


@dataclass(frozen=True)
class AnswerTask:
    """What is known of an answer before its prompt is prefilled."""

    kind: str = ""  # of the question: "chat", "code", "edit"
    drafter_order: tuple[str, ...] = ()  # the drafters that suit it, best first; those after "plain" rarely do
    is_selected: bool = True  # whether this drafter may propose
    is_private: bool = True  # nothing that it teaches is stored


class Drafter:
    """Proposes draft tokens. A drafter can change the speed of decoding, never the text.

    This base class is plain decoding. `observe` is called on every drafter of a session, also on those that did not
    propose, so it only stores data. Expensive work belongs in `propose`, where the chooser measures it.
    """

    name = "plain"
    is_instant = False  # `propose` takes microseconds, so the chooser calls it before it decides
    drafts_with_models = False  # it computes with the loaded models, whose passes belong to the engine's thread
    hidden_state_layers: tuple[
        int, ...
    ] = ()  # required from the target; k: residual stream after k layers, -1: final norm

    def start_answer(self, task: AnswerTask) -> None:
        """Prepare for the next answer. The text of the answer before may be truncated after this."""

    def propose(self, context: DraftContext) -> DraftTree:
        """Propose at most `max_draft_tokens` nodes behind the text. This base class proposes none."""
        return DraftTree(context.tokens[-1])

    def observe(self, outcome: Outcome) -> None:
        """Store what helps later proposals."""

    def forget(self, length: int) -> None:
        """Follow a truncation of the text to its first `length` tokens."""

    def limit_width(self, width: int) -> None:
        """Grow trees of at most `width` nodes at each depth from now on, where that makes drafting cheaper."""

    def close(self) -> None:
        """End threads and the like with the conversation. It is not called again."""

    def memory_bytes(self) -> int:
        """The bytes that it keeps for this text: tensors and indexes, beside KV caches, which the pool counts."""
        return 0
