"""Several drafters as one."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from specchat.drafters.combined import MergedDrafter, SuffixAndRealign
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.accept import accept
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from tests.tiny import Chaos

TEXT = [4, 5]


class Says(Drafter):
    """Always drafts the same chains, and stores the outcomes."""

    def __init__(self, *chains: list[int], name: str = "says") -> None:
        self.chains, self.name, self.hidden_state_layers = chains, name, (len(chains),)
        self.observed: list[Outcome] = []
        self.length = -1

    def propose(self, context: DraftContext) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        for chain in self.chains:
            tree.add_chain(chain[: context.max_draft_tokens + 1 - len(tree)], source=self.name)
        return tree

    def observe(self, outcome: Outcome) -> None:
        self.observed.append(outcome)

    def forget(self, length: int) -> None:
        self.length = length


def paths(tree: DraftTree) -> list[list[int]]:
    return [tree.path_tokens(node) for node in range(1, len(tree))]


def judged(tree: DraftTree, wanted: list[int]) -> Outcome:
    """The target writes `wanted`; its logits at a node are the number of the node."""
    sampled = [wanted[depth] if depth < len(wanted) else 0 for depth in tree.depths]
    return Outcome(tree, accept(tree, sampled), sampled, 1, logits=torch.arange(len(tree)).float()[:, None])


def test_equal_draft_tokens_share_a_node():
    tree = MergedDrafter(Says([1, 2, 3]), Says([1, 2, 9])).propose(DraftContext(TEXT, Sampler(), 8))

    assert paths(tree) == [[1], [1, 2], [1, 2, 3], [1, 2, 9]]


def test_the_preferred_drafter_gets_half_of_a_small_budget():
    drafter = MergedDrafter(Says([1, 2, 3, 4, 5, 6]), Says([7, 8, 9, 10]), Says([11, 12]))

    tree = drafter.propose(DraftContext(TEXT, Sampler(), 6))

    assert paths(tree) == [[1], [1, 2], [1, 2, 3], [7], [7, 8], [11]]


def test_unused_rows_go_to_the_other_drafters():
    tree = MergedDrafter(Says([1, 2, 3, 4]), Says(), Says([7])).propose(DraftContext(TEXT, Sampler(), 5))

    assert paths(tree) == [[1], [1, 2], [1, 2, 3], [7], [1, 2, 3, 4]]


def test_each_drafter_observes_its_own_node_numbers():
    first, second = Says([1, 2, 3]), Says([6], [1, 2, 9])
    drafter = MergedDrafter(first, second)
    tree = drafter.propose(DraftContext(TEXT, Sampler(), 8))

    drafter.observe(judged(tree, [1, 2, 9, 8]))

    observed = second.observed[0]
    assert observed.tree.tokens == second.propose(DraftContext(TEXT, Sampler(), 8)).tokens
    assert observed.path == [0, 2, 3, 4]
    assert [tree.path_tokens(int(row)) for row in observed.logits[1:, 0]] == [[6], [1], [1, 2], [1, 2, 9]]


def test_accepted_tokens_of_other_drafters_follow_the_own_nodes():
    first, second = Says([1, 2, 3]), Says([6], [1, 2, 9])
    drafter = MergedDrafter(first, second)

    drafter.observe(judged(drafter.propose(DraftContext(TEXT, Sampler(), 8)), [1, 2, 9, 8]))

    observed = first.observed[0]
    assert paths(observed.tree) == [[1], [1, 2], [1, 2, 3], [1, 2, 9]]
    assert observed.path == [0, 1, 2, 4]
    assert observed.committed_tokens == [1, 2, 9, 8]


def test_the_tree_of_another_drafter_is_observed_unchanged():
    inner = Says([1])
    drafter = MergedDrafter(inner)
    drafter.propose(DraftContext(TEXT, Sampler(), 8))
    outcome = judged(DraftTree(5), [3])

    drafter.observe(outcome)

    assert inner.observed == [outcome]


def test_all_drafters_forget_and_all_hidden_state_layers_are_required():
    first, second = Says([1]), Says([2], [3])
    drafter = MergedDrafter(first, second)

    drafter.forget(7)

    assert (first.length, second.length) == (7, 7)
    assert drafter.hidden_state_layers == (1, 2)


@given(st.integers(0, 10**6), st.integers(0, 12), st.lists(st.integers(0, 5), max_size=6))
def test_every_drafter_observes_a_correct_outcome_of_any_tree(seed, budget, wanted):
    listeners = [Says([1, 2, 3], [1, 4]), Says([4])]
    drafter = MergedDrafter(Chaos(seed), *listeners, Chaos(seed + 1))
    tree = drafter.propose(DraftContext(TEXT, Sampler(), budget))
    outcome = judged(tree, wanted)

    drafter.observe(outcome)

    assert len(tree) <= budget + 1
    for listener in listeners:
        observed = listener.observed[0]
        rows = [int(row) for row in observed.logits[:, 0]]
        assert observed.committed_tokens == outcome.committed_tokens
        assert [observed.tree.path_tokens(node) for node in range(len(observed.tree))] == [
            tree.path_tokens(row) for row in rows
        ]
        assert observed.sampled_tokens == [outcome.sampled_tokens[row] for row in rows]


def drafted_after(drafter: Drafter, text: list[int], budget: int = 8) -> list[int]:
    tree = drafter.propose(DraftContext(text, Sampler(), budget))
    return tree.tokens[1:]


def test_without_an_original_it_drafts_like_suffix_decoding():
    text = [5, 6, 7, 8, 9, 5, 6]

    drafter = SuffixAndRealign(SuffixDecoding())

    assert ("suffix", True) == (drafter.name, drafter.is_instant)
    assert drafted_after(SuffixDecoding(), text) == drafted_after(drafter, text)


def test_a_rewritten_text_continues_behind_a_change_and_a_new_text_starts_again():
    original, text = list(range(10, 30)), [1, 2]
    drafter = SuffixAndRealign(SuffixDecoding())

    drafter.start_answer(AnswerTask(original_tokens=original, answer_start=len(text)))
    changed = [*text, 10, 11, 99, 13, 14]

    assert original[5:13] == drafted_after(drafter, changed)
    assert [] == drafted_after(SuffixAndRealign(SuffixDecoding()), changed)

    drafter.forget(2)
    drafter.start_answer(AnswerTask())

    assert [] == drafted_after(drafter, [1, 2, 10, 11])


def test_an_answer_that_lost_its_original_is_drafted_by_suffix_decoding():
    drafter, text = SuffixAndRealign(SuffixDecoding()), [1, 2]
    drafter.start_answer(AnswerTask(original_tokens=range(10, 40), answer_start=len(text)))
    loop = [*text, *[50, 51, 52, 53] * 10]

    drafted_after(drafter, loop)

    assert ([50, 51, 52, 53] * 2)[:8] == drafted_after(drafter, loop)
