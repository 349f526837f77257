"""The guard around the drafter of a plugin."""

from __future__ import annotations

import numpy
import pytest
import torch

from specchat.drafters.plugin_guard import PluginDrafterGuard
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftSample, DraftTree

TEXT = [5, 6, 7]


class Theirs(Drafter):
    """Calls a function to propose, and stores its calls."""

    name = "theirs"
    is_instant = True

    def __init__(self, propose_function) -> None:
        self.propose_function, self.calls = propose_function, []

    def propose(self, context):
        self.calls.append(context)
        return self.propose_function(context)

    def observe(self, outcome):
        self.calls.append(outcome)

    def forget(self, length):
        self.calls.append(length)


def chain(*tokens: int, root: int = TEXT[-1]):
    def propose_function(_context):
        tree = DraftTree(root)
        tree.add_chain(list(tokens), source="another")
        return tree

    return propose_function


def guarded(propose_function, errors=None) -> PluginDrafterGuard:
    return PluginDrafterGuard("counting", Theirs(propose_function), 100, (errors if errors is not None else []).append)


def asked(drafter: Drafter, budget: int = 4) -> DraftTree:
    return drafter.propose(DraftContext(list(TEXT), Sampler(), budget))


def test_draft_tokens_have_the_registered_name_as_source():
    tree = asked(guarded(chain(8, 9)))

    assert [7, 8, 9] == tree.tokens
    assert ["text", "counting", "counting"] == tree.sources
    assert guarded(chain()).is_instant


def test_the_budget_is_enforced():
    assert [7, 1, 1, 1] == asked(guarded(chain(*[1] * 50)), budget=3).tokens


def test_a_branching_tree_keeps_its_shape():
    def fork(_context):
        tree = DraftTree(7)
        tree.add(1), tree.add(2), tree.add(3, parent=1)
        return tree

    assert [-1, 0, 0, 1] == asked(guarded(fork)).parents


def test_reported_samples_are_dropped():
    def drawn(_context):
        tree = DraftTree(7)
        tree.add_sample(DraftSample(8, torch.tensor([8]), torch.tensor([1.0])), 0, "theirs")
        return tree

    assert {} == asked(guarded(drawn)).samples


def test_it_can_change_neither_the_text_nor_the_cache():
    drafter, text = guarded(chain(8)), list(TEXT)
    drafter.propose(DraftContext(text, Sampler(), 4, cache="the target's own"))

    [context] = drafter.drafter.calls
    context.tokens.clear()
    assert TEXT == text
    assert context.cache is None


@pytest.mark.parametrize(
    "propose_function",
    [chain(100), chain(-1), chain(8, root=1), lambda _context: [8], lambda _context: None, lambda _context: 1 / 0],
    ids=["beyond", "negative", "other root", "list", "nothing", "raises"],
)
def test_after_an_error_it_is_switched_off_and_reported_once(propose_function):
    errors = []
    drafter = guarded(propose_function, errors)

    assert [[7], [7]] == [asked(drafter).tokens, asked(drafter).tokens]
    drafter.observe(Outcome(DraftTree(7), [0], [8], 2))
    drafter.forget(1)
    assert 1 == len(errors)


def test_outcomes_and_truncations_are_passed_on():
    drafter, outcome = guarded(chain()), Outcome(DraftTree(7), [0], [8], 2)

    drafter.observe(outcome)
    drafter.forget(1)
    assert [outcome, 1] == drafter.drafter.calls


def test_tokens_of_numpy_become_plain_integers():
    tree = asked(guarded(chain(numpy.int64(8), numpy.int64(9))))

    assert [int, int] == [type(token) for token in tree.tokens[1:]]
