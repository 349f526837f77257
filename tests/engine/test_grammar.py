"""Constrained decoding: masks, pruned draft tokens, and the text of plain decoding."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.grammar import GRAMMAR_SOURCE, constrain_tree
from specchat.engine.sampling import Sampler
from specchat.engine.tree import ROOT, DraftTree
from tests.cover import matrix
from tests.each_row import each_row
from tests.tiny import VOCABULARY, Chaos, FirstOf, network, small, target, write
from tests.tiny_heads import drafter_of

PROMPT = [5, 9, 12, 33, 7, 5, 9, 12]
END = 0
SAMPLERS = {
    "greedy": Sampler(),
    "T1": Sampler(1.0, seed=3),
    "rules": Sampler(0.8, top_k=30, top_p=0.9, min_p=0.01, repetition_penalty=1.3, seed=5),
}


class Counting:
    """Ever larger tokens, each less than ten above the last; multiples of 7 are followed by their successor alone."""

    def __init__(self) -> None:
        self.read = [1]

    def may_follow(self) -> list[int]:
        last = self.read[-1]
        if last == END:
            return [END]
        if last and last % 7 == 0:
            return [last + 1]
        return [token for token in range(last + 1, last + 10) if token < VOCABULARY - 5] or [END]

    def allowed_mask(self) -> Tensor:
        mask = torch.zeros(VOCABULARY, dtype=torch.bool)
        mask[self.may_follow()] = True
        return mask

    def advance(self, token: int) -> bool:
        if token not in self.may_follow():
            return False
        self.read.append(token)
        return True

    def rollback(self, count: int) -> None:
        del self.read[-count:]

    def is_free(self, draft_tokens: list[int]) -> bool:
        return False

    def forced_tokens(self) -> list[int]:
        only = self.may_follow()
        return only if len(only) == 1 else []


DRAFTERS = {
    "chaos": lambda _model: Chaos(3),
    "draft": lambda _model: DraftModelDrafter(small()),
    "self": lambda _model: DraftModelDrafter(target("dense-llama")),
    "lookup-else-draft": lambda _model: FirstOf(PromptLookup(), DraftModelDrafter(small())),
    "suffix": lambda _model: SuffixDecoding(),
    **{head: lambda model, head=head: drafter_of(head, model) for head in ("eagle3", "mtp")},
}


def answer(drafter: str | None, sampler: str, exact: bool = False) -> list[int]:
    model = target("dense-llama", exact=exact)
    active_drafter = DRAFTERS[drafter](model) if drafter else Drafter()
    writing = Generation(model, (active_drafter,))
    writing.replace_tokens(PROMPT)
    write(
        writing,
        GenerationConfig(
            active_drafter,
            SAMPLERS[sampler],
            max_draft_tokens=8,
            max_new_tokens=40,
            stop_token_ids=frozenset({END}),
            grammar=Counting(),
        ),
    )
    return writing.tokens[len(PROMPT) :]


@lru_cache
def plainly(sampler: str) -> list[int]:
    return answer(None, sampler)


@pytest.mark.parametrize(
    ("drafter", "sampler"), matrix(list(DRAFTERS), [name for name in SAMPLERS if name != "classic"])
)
def test_no_drafter_can_change_the_text_under_a_grammar(drafter, sampler):
    assert answer(drafter, sampler) == plainly(sampler)


@each_row("drafter", ["chaos", "draft", "eagle3"], shares=3)
@each_row("sampler", SAMPLERS)
def test_every_text_matches_the_grammar(drafter, sampler):
    grammar = Counting()

    assert all(grammar.advance(token) for token in answer(drafter, sampler))
    assert grammar.read[-1] == END


@pytest.mark.full
@each_row("drafter", ["chaos", "suffix", "mtp"])
def test_in_exact_mode_too(drafter):
    assert answer(drafter, "T1", exact=True) == answer(None, "T1", exact=True)


def test_greedy_text_is_that_of_transformers_under_the_same_masks():
    def allowed(_batch: int, ids: Tensor) -> list[int]:
        grammar = Counting()
        for token in ids[len(PROMPT) :].tolist():
            grammar.advance(token)
        return grammar.may_follow()

    theirs = network("llama").generate(
        input_ids=torch.tensor([PROMPT]), max_new_tokens=40, do_sample=False, prefix_allowed_tokens_fn=allowed
    )

    assert plainly("greedy") == theirs[0, len(PROMPT) :].tolist()


@pytest.mark.full
def test_the_first_token_is_a_sample_of_the_masked_distribution():
    model, draft, count = target("dense-llama"), DraftModelDrafter(small()), 1500
    writing = Generation(model, (draft,))
    writing.replace_tokens(PROMPT)
    with model.pool.acquire_slot(writing.cache, 100):
        list(writing.prefill())
        logits = model.forward(DraftTree(PROMPT[-1]), writing.cache).logits[0]
    chances = logits.masked_fill(~Counting().allowed_mask(), float("-inf")).softmax(-1)
    seen = torch.zeros(VOCABULARY)
    for seed in range(count):
        writing.replace_tokens(PROMPT)
        plan = GenerationConfig(
            draft,
            Sampler(1.0, seed=seed),
            max_draft_tokens=2,
            max_new_tokens=2,
            grammar=Counting(),
        )
        seen[write(writing, plan)[0].committed_tokens[0]] += 1

    expected = chances * count
    common = expected >= 5
    distance = ((seen - expected)[common] ** 2 / expected[common]).sum()
    assert seen[~Counting().allowed_mask()].sum() == 0
    assert distance < 27.9  # chi-square of at most 8 degrees of freedom, one in two thousand


def test_forbidden_draft_tokens_are_pruned_and_each_node_has_its_mask():
    tree = DraftTree(12)
    right = tree.add(3, source="a")
    tree.add(90, source="a")  # too far
    below = tree.add(5, right, "a")
    tree.add(2, right, "a")  # smaller
    tree.add(6, below, "a")

    cut, masks = constrain_tree(tree, Counting(), max_draft_tokens=8)

    assert cut.tokens == [12, 3, 5, 6]
    assert masks.shape == (4, VOCABULARY)
    assert [mask.nonzero()[:, 0].tolist()[0] for mask in masks] == [2, 4, 6, 7]


def test_forced_tokens_precede_the_draft():
    grammar = Counting()
    grammar.read = [7]
    tree = DraftTree(7)
    tree.add_chain([8, 10], source="a")
    tree.add(9, source="a")

    led, masks = constrain_tree(tree, grammar, max_draft_tokens=8)

    assert led.tokens == [7, 8, 10]
    assert led.sources == ["text", GRAMMAR_SOURCE, "a"]
    assert masks[ROOT].nonzero().tolist() == [[8]]


def test_the_budget_limits_forced_and_draft_tokens():
    grammar = Counting()
    grammar.read = [7]
    tree = DraftTree(7)
    tree.add_chain([8, 10, 12, 13], source="a")

    led, _masks = constrain_tree(tree, grammar, max_draft_tokens=3)

    assert led.tokens == [7, 8, 10, 12]


def test_the_state_of_the_grammar_is_restored():
    grammar, tree = Counting(), DraftTree(12)
    tree.add_chain([3, 5, 6])

    constrain_tree(tree, grammar, max_draft_tokens=8)

    assert grammar.read == [1]


def test_forced_tokens_save_passes():
    model = target("dense-llama")
    steps = []
    for grammar in (Counting(), Unforced()):
        writing = Generation(model)
        writing.replace_tokens(PROMPT)
        plan = GenerationConfig(
            Drafter(),
            Sampler(),
            max_draft_tokens=8,
            max_new_tokens=40,
            stop_token_ids=frozenset({END}),
            grammar=grammar,
        )
        steps.append(len(write(writing, plan)))

    assert steps[0] < steps[1]


class Unforced(Counting):
    def forced_tokens(self) -> list[int]:
        return []


def test_a_drafter_does_not_see_the_grammar():
    contexts: list[DraftContext] = []

    class Curious(Drafter):
        def propose(self, context: DraftContext) -> DraftTree:
            contexts.append(context)
            return super().propose(context)

    writing = Generation(target("dense-llama"))
    writing.replace_tokens(PROMPT)
    write(writing, GenerationConfig(Curious(), Sampler(), max_draft_tokens=8, max_new_tokens=5, grammar=Counting()))

    assert contexts and not any(isinstance(value, Counting) for value in vars(contexts[0]).values())
