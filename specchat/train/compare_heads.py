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

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.eagle import EagleDrafter, TreeConfig
from specchat.drafters.medusa import Medusa
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.heads.detect import inspect_head
from specchat.heads.networks import EagleHead, MedusaHead, load_head
from specchat.models.load import LoadOptions, load_model
from specchat.train.draft_models import is_draft_model
from specchat.train.frozen_target import FrozenTarget
from specchat.train.progress_bar import with_progress_bar

DRAFT_LENGTH = 4
BOOTSTRAP_RESAMPLES = 4000
CHAIN_GROWTH = TreeConfig(depth=DRAFT_LENGTH, width=1, max_draft_tokens=DRAFT_LENGTH, min_level_probability=0.0)

DrafterFactory = Callable[[], Drafter]  # a drafter belongs to one text


@dataclass(frozen=True)
class TurnAcceptance:
    """One held-out turn: passes of the target, and guesses that held."""

    target_passes: int
    accepted_tokens: int


@dataclass(frozen=True)
class HeadComparison:
    """Acceptance of both over the same turns, and what 95 of 100 resamples of the turns say of the difference."""

    baseline_acceptance: float
    new_acceptance: float
    interval_low: float
    interval_high: float
    turn_count: int

    @property
    def is_better(self) -> bool:
        """Whether the new head is certainly better."""
        return self.interval_low > 0.0

    def __str__(self) -> str:
        return (
            f"acceptance {self.baseline_acceptance:.3f} -> {self.new_acceptance:.3f} on {self.turn_count} held-out turns: "
            f"{self.new_acceptance - self.baseline_acceptance:+.3f} (95 %: {self.interval_low:+.3f} to {self.interval_high:+.3f})"
        )


def drafter_factory(target: FrozenTarget, head: Path | None) -> DrafterFactory:
    """Who drafts with the head or the small model of a folder; without one, who copies. The target shows what the head reads."""
    if head is None:
        target.model.set_hidden_state_layers(())
        return SuffixDecoding
    if is_draft_model(head):
        target.model.set_hidden_state_layers(())
        like = target.model.pool.layout
        dtype = str(like.dtype).removeprefix("torch.")
        return partial(DraftModelDrafter, load_model(head, LoadOptions(dtype, str(like.device))), DRAFT_LENGTH)
    loaded = load_head(inspect_head(head), target.model, None, target.device)
    target.model.set_hidden_state_layers(loaded.hidden_state_layers)
    match loaded:
        case MedusaHead():
            return lambda: Medusa(loaded, target.model)
        case EagleHead():
            return lambda: EagleDrafter(loaded, target.model, CHAIN_GROWTH)
        case _:
            raise ModelError(f"{head}: heads of this kind are not tried here")


def measure_acceptance(
    target: FrozenTarget, head: Path | None, prompts: Sequence[list[int]], max_tokens: int
) -> list[TurnAcceptance]:
    """What such a drafter brings for each of these prompts."""
    maker, stop = drafter_factory(target, head), target.tokenizer.stop_token_ids
    tried = list[TurnAcceptance]()
    for prompt in with_progress_bar(f"trial of {head.name if head else 'copying'}", prompts):
        steps = target.generate_with_plan(
            GenerationConfig(maker(), Sampler(), DRAFT_LENGTH, max_tokens, stop), prompt
        ).steps
        tried.append(TurnAcceptance(len(steps), sum(step.accepted for step in steps)))
    return tried


def compare_acceptance(before: Sequence[TurnAcceptance], after: Sequence[TurnAcceptance]) -> HeadComparison:
    """The difference, with an interval from drawing the turns again, in pairs, with replacement."""
    old, new = (
        numpy.array([(turn.accepted_tokens, DRAFT_LENGTH * turn.target_passes) for turn in turns], float)
        for turns in (before, after)
    )
    dice = numpy.random.default_rng(0)
    draws = dice.integers(0, len(old), size=(BOOTSTRAP_RESAMPLES, len(old)))
    differences = _acceptance_rate(new[draws]) - _acceptance_rate(old[draws])
    low, high = numpy.quantile(differences, (0.025, 0.975))
    return HeadComparison(float(_acceptance_rate(old)), float(_acceptance_rate(new)), float(low), float(high), len(old))


def _acceptance_rate(turns: numpy.ndarray) -> numpy.ndarray:
    """Guesses that held of those that might have. [..., turns, 2] -> [...]"""
    held, might = turns.sum(axis=-2)[..., 0], turns.sum(axis=-2)[..., 1]
    return held / numpy.maximum(might, 1.0)
