"""A guard around the drafter of a plugin.

The drafter gets a copy of the text and no KV cache. Its tree is validated and copied without its samples, because the
text would depend on the probabilities that it reports. After an exception the drafter is switched off for the rest of
the conversation, and the answer continues without it. The guard knows no plugin; it reports errors to a callback.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from operator import index
from typing import Any

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree


class PluginDrafterGuard(Drafter):
    """Delegates to a plugin's drafter. `on_failure` gets its first exception."""

    def __init__(self, name: str, drafter: Drafter, vocab_size: int, on_failure: Callable[[Exception], None]) -> None:
        self.name, self.drafter, self.vocab_size, self.on_failure = name, drafter, vocab_size, on_failure
        self.is_instant = drafter.is_instant

    def propose(self, context: DraftContext) -> DraftTree:
        """The drafter's tree, at most `max_draft_tokens` nodes, with the registered name as source."""
        safe_context = replace(context, tokens=list(context.tokens), cache=None)
        tree = self._call_safely(lambda: self._validated_copy(self.drafter.propose(safe_context), context))
        return tree or DraftTree(context.tokens[-1])

    def observe(self, outcome: Outcome) -> None:
        self._call_safely(lambda: self.drafter.observe(outcome))

    def forget(self, length: int) -> None:
        self._call_safely(lambda: self.drafter.forget(length))

    def _call_safely(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            self.on_failure(error)
            self.drafter = Drafter()
            return None

    def _validated_copy(self, tree: object, context: DraftContext) -> DraftTree:
        """A copy of the tree; ValueError if it is no tree for this text."""
        if not isinstance(tree, DraftTree) or tree.tokens[ROOT] != context.tokens[-1]:
            raise ValueError("it returned no DraftTree whose root is the last token of the text")
        copy = DraftTree(context.tokens[-1])
        for token, parent in islice(zip(tree.tokens[1:], tree.parents[1:], strict=True), context.max_draft_tokens):
            if not (0 <= token < self.vocab_size and 0 <= parent < len(copy)):
                raise ValueError(f"it drafted token {token} after node {parent}, and one of them does not exist")
            copy.add(index(token), index(parent), self.name)  # numpy integers are not JSON
        return copy
