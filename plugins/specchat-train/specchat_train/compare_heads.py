"""Compares the acceptance of two heads in the engine, on the same held-out questions, paired by turn.

A head drafts chains of DRAFT_LENGTH tokens. Its acceptance is the number of accepted tokens divided by DRAFT_LENGTH per
pass of the target, so a token that was not drafted counts as rejected. Without a previous head, a new one must beat
drafts that are copied from the text. All drafters give the same text and differ in the number of passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.eagle.dynamic_tree import TreeConfig
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.registry import DraftingResources
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.plugins.discovery import find_extensions
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_train.draft_models import is_draft_model
from specchat_train.frozen_target import FrozenTarget
from specchat_train.progress_bar import with_progress_bar

DRAFT_LENGTH = 4
BOOTSTRAP_RESAMPLES = 4000
CHAIN_GROWTH = TreeConfig(depth=DRAFT_LENGTH, width=1, max_draft_tokens=DRAFT_LENGTH, min_level_probability=0.0)

DrafterFactory = Callable[[], Drafter]  # each text needs a new drafter


@dataclass(frozen=True)
class TurnAcceptance:
    target_passes: int
    accepted_tokens: int


@dataclass(frozen=True)
class HeadComparison:
    """The acceptance of both heads over the same turns, and a 95 % interval of the difference."""

    baseline_acceptance: float
    new_acceptance: float
    interval_low: float
    interval_high: float
    turn_count: int

    @property
    def is_better(self) -> bool:
        return self.interval_low > 0.0

    def __str__(self) -> str:
        difference = self.new_acceptance - self.baseline_acceptance
        return (
            f"acceptance {self.baseline_acceptance:.3f} -> {self.new_acceptance:.3f} on {self.turn_count} held-out "
            f"turns: {difference:+.3f} (95 %: {self.interval_low:+.3f} to {self.interval_high:+.3f})"
        )


def drafter_factory(target: FrozenTarget, head: Path | None) -> DrafterFactory:
    """Drafters with the head or draft model of a folder; None: suffix decoding. Sets the target's hidden states."""
    if head is None:
        target.model.set_hidden_state_layers(())
        return SuffixDecoding
    if is_draft_model(head):
        target.model.set_hidden_state_layers(())
        layout = target.model.pool.layout
        options = LoadOptions(str(layout.dtype).removeprefix("torch."), str(layout.device))
        return partial(DraftModelDrafter, load_model(head, options), DRAFT_LENGTH)
    spec = inspect_head(head)
    network = load_head(spec, target.model, None, target.device)
    target.model.set_hidden_state_layers(network.hidden_state_layers)
    if isinstance(network, EagleHead):
        return lambda: EagleDrafter(network, target.model, CHAIN_GROWTH)
    extension = find_extensions("drafters").get(spec.kind)
    if extension is None:
        raise ModelError(f"{head}: heads of this kind cannot be compared")
    resources = DraftingResources(target.model, heads={spec.kind: network})
    return lambda: extension.call(resources)


def measure_acceptance(
    target: FrozenTarget, head: Path | None, prompts: Sequence[list[int]], max_tokens: int
) -> list[TurnAcceptance]:
    new_drafter, stop_ids = drafter_factory(target, head), target.tokenizer.stop_token_ids
    turns = list[TurnAcceptance]()
    for prompt in with_progress_bar(f"comparison: {head.name if head else 'suffix decoding'}", prompts):
        plan = GenerationConfig(new_drafter(), Sampler(), DRAFT_LENGTH, max_tokens, stop_ids)
        steps = target.generate_with_plan(plan, prompt).steps
        turns.append(TurnAcceptance(len(steps), sum(step.accepted for step in steps)))
    return turns


def compare_acceptance(before: Sequence[TurnAcceptance], after: Sequence[TurnAcceptance]) -> HeadComparison:
    """The difference of acceptance, with a paired bootstrap interval over turns."""
    old, new = (
        numpy.array([(turn.accepted_tokens, DRAFT_LENGTH * turn.target_passes) for turn in turns], float)
        for turns in (before, after)
    )
    resamples = numpy.random.default_rng(0).integers(0, len(old), size=(BOOTSTRAP_RESAMPLES, len(old)))
    differences = _acceptance_rate(new[resamples]) - _acceptance_rate(old[resamples])
    low, high = numpy.quantile(differences, (0.025, 0.975))
    return HeadComparison(float(_acceptance_rate(old)), float(_acceptance_rate(new)), float(low), float(high), len(old))


def _acceptance_rate(turns: numpy.ndarray) -> numpy.ndarray:
    """Accepted tokens divided by possible ones. [..., turns, 2] -> [...]"""
    sums = turns.sum(axis=-2)
    return sums[..., 0] / numpy.maximum(sums[..., 1], 1.0)
