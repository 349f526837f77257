"""However an answer ends, the caches of the target, of a draft and of a head hold what is sure, and nothing else."""

from __future__ import annotations

import pytest

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from tests.cover import matrix
from tests.tiny import VOCABULARY, small, target, write
from tests.tiny_heads import drafter_of, read

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
KINDS = ["draft", "eagle3", "mtp"]
LIMIT, BUDGET = 20, 6
SAMPLERS = {"greedy": Sampler(), "T1": Sampler(1.0, seed=4)}
ENDINGS = ["all held", "none held", "cancelled", "stopped"]


class Fated(Drafter):
    """Lets a drafter propose, and then drafts the coming tokens itself, or wrong ones."""

    name = "fated"

    def __init__(self, inner: Drafter, coming: list[int], is_right: bool) -> None:
        self.inner, self.coming, self.is_right, self.hidden_state_layers = (
            inner,
            coming,
            is_right,
            inner.hidden_state_layers,
        )

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain that holds as a whole, or not at all."""
        self.inner.propose(context)
        tree, known = DraftTree(context.tokens[-1]), len(context.tokens)
        draft_tokens = self.coming[known : known + context.max_draft_tokens]
        tree.add_chain(
            [token if self.is_right else (token + 1) % VOCABULARY for token in draft_tokens], source=self.name
        )
        return tree

    def observe(self, outcome: Outcome) -> None:
        """As the drafter inside."""
        self.inner.observe(outcome)

    def forget(self, length: int) -> None:
        """As the drafter inside."""
        self.inner.forget(length)


def made(kind: str, model: Model) -> Drafter:
    return DraftModelDrafter(small()) if kind == "draft" else drafter_of(kind, model)


def coming(sampler: Sampler) -> list[int]:
    """The text with what plain decoding adds to it, and some more."""
    writing = Generation(target("dense-llama"))
    writing.replace_tokens(TEXT)
    write(writing, GenerationConfig(Drafter(), sampler, max_draft_tokens=0, max_new_tokens=LIMIT + BUDGET))
    return writing.tokens


def drafted_after(writing: Generation, drafter: Drafter, sampler: Sampler) -> list[int]:
    prefix = sampler.make_seen_tokens(writing.tokens, VOCABULARY, writing.target.pool.layout.device)
    return drafter.propose(DraftContext(writing.tokens, sampler, 8, prefix, writing.cache)).tokens


@pytest.mark.dear
@pytest.mark.parametrize(("kind", "ending", "sampling"), matrix(KINDS, ENDINGS, list(SAMPLERS)))
def test_caches_hold_committed_tokens_after_every_step_and_any_ending(kind: str, ending: str, sampling: str) -> None:
    model, sampler = target("dense-llama"), SAMPLERS[sampling]
    text, drafter = coming(sampler), made(kind, model)
    writing = Generation(model, (fated := Fated(drafter, text, is_right=ending != "none held"),))
    stop = frozenset({text[len(TEXT) + 9]} if ending == "stopped" else ())
    read(writing, TEXT)

    with model.pool.acquire_slot(writing.cache, writing.rows_needed(LIMIT)):
        for number, step in enumerate(writing.decode(GenerationConfig(fated, sampler, BUDGET, LIMIT, stop))):
            assert writing.cache.length == len(writing.tokens) - 1
            assert step.accepted == 0 or ending != "none held"
            if (own := getattr(drafter, "cache", None)) is not None:
                assert own.length <= len(writing.tokens) - len(step.committed_tokens)
            if ending == "cancelled" and number == 1:
                break
        assert writing.tokens == text[: len(writing.tokens)]

        fresh, other = Generation(model, (again := made(kind, model),)), len(writing.tokens) + SCRATCH_ROWS
        read(fresh, writing.tokens)
        with model.pool.acquire_slot(fresh.cache, other):
            assert drafted_after(writing, drafter, sampler) == drafted_after(fresh, again, sampler)
