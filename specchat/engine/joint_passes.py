"""Passes that texts share: beside the weights that every pass reads, the rows of one more text cost little.

A text that decodes is a member. Each member queues its tree, and the first whose turn comes when all have queued theirs
computes one pass for all. A member without a tree, whose events are on their way, is waited for a few turns; a text
alone never waits. Knows trees and caches; knows neither who gives the turns nor what a pass computes.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from specchat.engine.cache import KVCache
from specchat.engine.model import JoiningModel, Model, ModelOutput
from specchat.engine.pass_clock import pass_seconds
from specchat.engine.tree import DraftTree

MAX_TURNS = 8  # that a text waits for the others

log = logging.getLogger(__name__)


@dataclass(eq=False)
class QueuedPass:
    """The pass of a text over its tree."""

    tree: DraftTree
    cache: KVCache
    output: ModelOutput | None = None  # None: not computed yet, or only alone
    other_rows: int = 0  # of the other texts in the pass
    other_texts: int = 0
    seconds: float = 0.0  # of the whole pass
    is_elsewhere: bool = False  # computed in the turn of another text


class JointPasses:
    """The passes that the texts of one model compute next. For one thread."""

    def __init__(self) -> None:
        self._members = 0
        self._queued: list[QueuedPass] = []

    @contextmanager
    def member(self) -> Generator[None]:
        """While a text decodes."""
        self._members += 1
        try:
            yield
        finally:
            self._members -= 1

    def compute(self, model: Model, tree: DraftTree, cache: KVCache) -> Generator[None, None, QueuedPass]:
        """Compute a tree with those of other members, and yield for their turns; without output, it needs its own pass.

        Closed meanwhile, it leaves the others' passes as they are.
        """
        queued = QueuedPass(tree, cache)
        if self._members == 1 or not (isinstance(model, JoiningModel) and model.joins_texts):
            return queued
        self._queued.append(queued)
        try:
            for _turn in range(MAX_TURNS):
                if queued not in self._queued or len(self._queued) >= self._members:
                    break
                yield
            if queued in self._queued:
                self._compute_together(model, queued)
        finally:
            if queued in self._queued:
                self._queued.remove(queued)
        return queued

    def _compute_together(self, model: JoiningModel, first: QueuedPass) -> None:
        """One pass for this text and those others that have room in it, in their order."""
        together, rows = [first], len(first.tree)
        for each in self._queued:
            if each is not first and rows + len(each.tree) <= model.max_rows:
                together.append(each)
                rows += len(each.tree)
        if len(together) == 1:
            return
        self._queued = [each for each in self._queued if each not in together]
        started_at = pass_seconds()
        try:
            outputs = model.forward_texts([(each.tree, each.cache) for each in together])
        except Exception:  # such as no memory for so many rows: the text whose own pass fails is the one that ends
            log.exception("a pass of %d texts failed; each computes its own", len(together))
            return
        seconds = pass_seconds() - started_at
        for each, output in zip(together, outputs, strict=True):
            each.output, each.seconds, each.is_elsewhere = output, seconds, each is not first
            each.other_rows, each.other_texts = rows - len(each.tree), len(together) - 1
