"""A drafter of somebody else, held to what a drafter may do.

It gets a copy of the text and no cache, and only well-formed guesses come through, without chances: those it reports
would have to be believed, and the text would depend on it. One that raises has guessed for the last time in this
conversation; the answer goes on without it. Knows no plugin; it is told whom to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree


class PluginDrafterGuard(Drafter):
    """Asks another drafter. `vocabulary` is how many tokens there are, `failed` hears of its first fault."""

    def __init__(self, name: str, drafter: Drafter, vocab_size: int, on_failure: Callable[[Exception], None]) -> None:
        self.name, self.drafter, self.vocab_size, self.on_failure = name, drafter, vocab_size, on_failure
        self.is_instant = drafter.is_instant

    def propose(self, context: DraftContext) -> DraftTree:
        """Its guesses, at most `budget` of them, under the name by which it was chosen."""
        asked = replace(context, tokens=list(context.tokens), cache=None)
        tree = self._call_safely(lambda: self._validated_copy(self.drafter.propose(asked), context))
        return tree or DraftTree(context.tokens[-1])

    def observe(self, outcome: Outcome) -> None:
        """Pass on what became of the guesses."""
        self._call_safely(lambda: self.drafter.observe(outcome))

    def forget(self, length: int) -> None:
        """Pass on that the text was cut."""
        self._call_safely(lambda: self.drafter.forget(length))

    def _call_safely(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - code of others may fail in every way
            self.on_failure(error)
            self.drafter = Drafter()
            return None

    def _validated_copy(self, tree: object, context: DraftContext) -> DraftTree:
        """A copy of the tree; ValueError where it is none for this text."""
        if not isinstance(tree, DraftTree) or tree.tokens[ROOT] != context.tokens[-1]:
            raise ValueError("it returned no tree on the last token of the text")
        copy = DraftTree(context.tokens[-1])
        for token, parent in islice(zip(tree.tokens[1:], tree.parents[1:], strict=True), context.max_draft_tokens):
            if not (0 <= token < self.vocab_size and 0 <= parent < len(copy)):
                raise ValueError(f"it guessed token {token} after node {parent}, and one of them does not exist")
            copy.add(token, parent, self.name)
        return copy
