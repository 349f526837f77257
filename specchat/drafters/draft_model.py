"""A small model of the same family guesses ahead, with the dice that the target will meet.

Speculative decoding as in Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318), with shared dice
(arXiv 2408.07978); under the classic rule with dice of its own, and a report of what they were thrown over. It has a
cache of its own that lives through turns, and never sees a template: it is given the target's token ids.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from specchat.engine.cache import SCRATCH
from specchat.engine.drafter import Context, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Rows, Sampler
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import CacheError
from specchat.forward.llama import DenseModel


class DraftModel(Drafter):
    """A small model guesses a chain; at T > 0 each link has a second-best sibling.

    With shared dice the draft's second choice is often the target's first, so a sibling is worth its row; at T = 0
    a longer chain is. Under the classic rule each link is one draw.
    """

    name = "draft"

    def __init__(self, model: Model, guesses: int = 4) -> None:
        self.model, self.guesses = model, guesses
        self.cache = model.pool.open()

    def propose(self, context: Context) -> DraftTree:
        """A chain of `guesses` links, fewer when the budget is smaller or the text outgrows the draft's window."""
        tree = DraftTree(context.tokens[-1])
        children = 1 if context.sampler.temperature == 0 or context.sampler.wants_draws else 2
        links = min(self.guesses, context.budget // children, self.model.window - len(context.tokens))
        if links <= 0:
            return tree
        try:
            with self.model.pool.seated(self.cache, len(context.tokens) + SCRATCH):
                self._grow(tree, context, links, children)
        except CacheError:  # no room for the draft's keys and values: the answer goes on without guesses
            return DraftTree(context.tokens[-1])
        self.cache.rollback(len(context.tokens) - 1)  # the guesses may be wrong: only sure tokens stay
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.cache.rollback(length)

    def _grow(self, tree: DraftTree, context: Context, links: int, children: int) -> None:
        unread = self._known(context.tokens[self.cache.length :])
        while len(unread) > self.model.chunk:
            self.model.read(unread[: self.model.chunk], self.cache)
            unread = unread[self.model.chunk :]
        if context.sampler.wants_draws or context.sampler.looks_back:
            self._link_by_link(tree, context, links, children, unread)
        else:
            self._all_at_once(tree, context, links, children, unread)

    def _all_at_once(self, tree: DraftTree, context: Context, links: int, children: int, unread: list[int]) -> None:
        """Each link is read where it was picked, on the device; it is waited for once, when all are there."""
        best, reading = list[Tensor](), cast("list[int] | Tensor", unread)
        for link in range(links):
            logits = self.model.read(reading, self.cache).logits
            rows = Rows([len(context.tokens) - 1 + link])
            best.append(context.sampler.rank(logits, rows, count=children).ids)
            reading = best[-1][0, :1]
            if link == 0 and (others := self._walked(reading, links - 1, context.sampler)) is not None:
                best.append(others)
                break
        leaf = ROOT
        for choices in torch.cat(best).tolist():
            leaf = tree.add_choices(choices, leaf, self.name)

    def _walked(self, token: Tensor, links: int, sampler: Sampler) -> Tensor | None:
        """The other links at once, where the model has recordings and the likeliest token is all there is to pick."""
        if links == 0 or sampler.temperature > 0 or not isinstance(self.model, DenseModel):
            return None
        tokens = self.model.walk(
            token, links, self.cache, lambda logits: sampler.rank(logits, Rows([0])).ids[:, 0], sampler.vocabulary
        )
        return tokens[:, None] if tokens is not None else None

    def _link_by_link(self, tree: DraftTree, context: Context, links: int, children: int, unread: list[int]) -> None:
        """For rules that look back at the guesses themselves, and for draws, which are reported with each link."""
        leaf = ROOT
        for link in range(links):
            logits = self.model.read(unread, self.cache).logits
            if context.prefix is not None:  # lies where the target computes
                logits = logits.to(context.prefix.seen.device)
            rows = Rows([len(context.tokens) - 1 + link], [tree.path_to(leaf)])
            if context.sampler.wants_draws:
                leaf = tree.add_drawn(context.sampler.draw(logits, rows, context.prefix), leaf, self.name)
            else:
                best = context.sampler.rank(logits, rows, context.prefix, count=children).ids[0].tolist()
                leaf = tree.add_choices(best, leaf, self.name)
            unread = self._known([tree.tokens[leaf]])

    def _known(self, tokens: list[int]) -> list[int]:
        """A target may have control tokens that its draft has no row for; the draft reads its first token instead."""
        return [token if token < self.model.vocabulary else 0 for token in tokens]
