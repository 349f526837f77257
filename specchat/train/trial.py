"""Is a head better than what there is? Both draft for the same held-out questions, in the engine, and turns are paired.

A head is tried as a chain: of DEPTH guesses for every pass of the target, the share that held is its acceptance, so
that a guess that was not ventured counts as one that did not hold. Where there is no head yet, a new one must beat the
guesses that cost nothing, those that copy from the text. The text is the same whoever guesses; only passes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy

from specchat.drafters.draft_model import DraftModel
from specchat.drafters.eagle import FeatureDrafter, Growth
from specchat.drafters.medusa import Medusa
from specchat.drafters.suffix import Suffix
from specchat.engine.decode import Plan
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.heads.detect import inspect_head
from specchat.heads.networks import FeatureHead, MedusaHead, load_head
from specchat.models.load import Loading, load_model
from specchat.train.draft_models import is_draft
from specchat.train.frozen_target import Target
from specchat.train.progress_bar import each

DEPTH = 4
RESAMPLES = 4000
CHAIN = Growth(depth=DEPTH, width=1, nodes=DEPTH, worth=0.0)

Maker = Callable[[], Drafter]  # a drafter belongs to one text


@dataclass(frozen=True)
class Tried:
    """One held-out turn: passes of the target, and guesses that held."""

    passes: int
    held: int


@dataclass(frozen=True)
class Verdict:
    """Acceptance of both over the same turns, and what 95 of 100 resamples of the turns say of the difference."""

    before: float
    after: float
    low: float
    high: float
    turns: int

    @property
    def is_better(self) -> bool:
        """Whether the new head is certainly better."""
        return self.low > 0.0

    def __str__(self) -> str:
        return (
            f"acceptance {self.before:.3f} -> {self.after:.3f} on {self.turns} held-out turns: "
            f"{self.after - self.before:+.3f} (95 %: {self.low:+.3f} to {self.high:+.3f})"
        )


def drafter_of(target: Target, head: Path | None) -> Maker:
    """Who drafts with the head or the small model of a folder; without one, who copies. The target shows what the head reads."""
    if head is None:
        target.model.tap(())
        return Suffix
    if is_draft(head):
        target.model.tap(())
        like = target.model.pool.layout
        dtype = str(like.dtype).removeprefix("torch.")
        return partial(DraftModel, load_model(head, Loading(dtype, str(like.device))), DEPTH)
    loaded = load_head(inspect_head(head), target.model, None, target.device)
    target.model.tap(loaded.taps)
    match loaded:
        case MedusaHead():
            return lambda: Medusa(loaded, target.model)
        case FeatureHead():
            return lambda: FeatureDrafter(loaded, target.model, CHAIN)
        case _:
            raise ModelError(f"{head}: heads of this kind are not tried here")


def try_out(target: Target, head: Path | None, prompts: Sequence[list[int]], limit: int) -> list[Tried]:
    """What such a drafter brings for each of these prompts."""
    maker, stop = drafter_of(target, head), target.tokenizer.stop
    tried = list[Tried]()
    for prompt in each(f"trial of {head.name if head else 'copying'}", prompts):
        steps = target.write_as(Plan(maker(), Sampler(), DEPTH, limit, stop), prompt).steps
        tried.append(Tried(len(steps), sum(step.accepted for step in steps)))
    return tried


def judge(before: Sequence[Tried], after: Sequence[Tried]) -> Verdict:
    """The difference, with an interval from drawing the turns again, in pairs, with replacement."""
    old, new = (numpy.array([(turn.held, DEPTH * turn.passes) for turn in turns], float) for turns in (before, after))
    dice = numpy.random.default_rng(0)
    draws = dice.integers(0, len(old), size=(RESAMPLES, len(old)))
    differences = _share(new[draws]) - _share(old[draws])
    low, high = numpy.quantile(differences, (0.025, 0.975))
    return Verdict(float(_share(old)), float(_share(new)), float(low), float(high), len(old))


def _share(turns: numpy.ndarray) -> numpy.ndarray:
    """Guesses that held of those that might have. [..., turns, 2] -> [...]"""
    held, might = turns.sum(axis=-2)[..., 0], turns.sum(axis=-2)[..., 1]
    return held / numpy.maximum(might, 1.0)
