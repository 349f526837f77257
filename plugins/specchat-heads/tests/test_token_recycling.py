"""Token recycling: drafts from earlier candidates of the target."""

from collections import Counter

import pytest
import torch

from specchat.engine.accept import accept
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat_heads.token_recycling import CANDIDATES_PER_TOKEN, MAX_PENDING_OUTCOMES, TokenRecycling, tree_template
from tests.tiny import VOCABULARY, target, write


def with_candidates(*followers: tuple[int, list[int]]) -> TokenRecycling:
    """A drafter with stored candidates for each token, best first."""
    drafter = TokenRecycling()
    for token, best in followers:
        logits = torch.full((1, VOCABULARY), -9.0)
        logits[0, best] = torch.arange(len(best), 0, -1).float()
        drafter.observe(Outcome(DraftTree(token), [0], best[:1], 0, logits=logits))
        drafter.propose(DraftContext([token], Sampler(), 1))
    return drafter


def test_only_the_latest_outcomes_are_kept_until_it_is_asked():
    """While it is not asked, it costs no time, and the logits of a few steps only."""
    drafter = TokenRecycling()
    for token in range(MAX_PENDING_OUTCOMES + 1):
        logits = torch.zeros(1, VOCABULARY)
        logits[0, 40] = 5.0
        drafter.observe(Outcome(DraftTree(token), [0], [40], 0, logits=logits))

    assert len(drafter.propose(DraftContext([0], Sampler(), 1))) == 1
    assert drafter.propose(DraftContext([1], Sampler(), 1)).tokens == [1, 40]


def test_the_most_probable_nodes_of_the_template_come_first():
    assert tree_template(3) == (((0, 1), (1, 3)), ((0, 2),), (), ())
    assert tree_template(0) == ((),)


def test_the_template_has_the_requested_number_of_nodes():
    for nodes in (1, 8, 33, 128):
        below = [node for ranks in tree_template(nodes) for _rank, node in ranks]
        assert sorted(below) == list(range(1, nodes + 1))


def test_candidates_are_followed_breadth_first():
    tree = with_candidates((5, [6, 7]), (6, [8, 9])).propose(DraftContext([1, 5], Sampler(), 3))

    assert [tree.path_tokens(node) for node in range(1, len(tree))] == [[6], [7], [6, 8]]


def test_the_latest_candidates_of_a_token_count():
    assert with_candidates((5, [6]), (5, [7])).propose(DraftContext([5], Sampler(), 1)).tokens == [5, 7]


def test_rejected_nodes_are_stored_too():
    drafter, tree = TokenRecycling(), DraftTree(1)
    tree.add(2)
    logits = torch.zeros(2, VOCABULARY)
    logits[1, 3] = 5.0
    drafter.observe(Outcome(tree, [0], [9, 3], 0, logits=logits))

    assert drafter.propose(DraftContext([9, 2], Sampler(), 1)).tokens == [2, 3]


def test_an_unseen_token_has_no_candidates():
    assert len(with_candidates((5, [6])).propose(DraftContext([6], Sampler(), 8))) == 1


@pytest.mark.parametrize("budget", [0, 1, 2, 7, 40])
def test_the_budget_is_kept(budget):
    drafter = with_candidates(*((token, list(range(CANDIDATES_PER_TOKEN))) for token in range(CANDIDATES_PER_TOKEN)))

    assert len(drafter.propose(DraftContext([0], Sampler(), budget))) == budget + 1


def test_padding_is_not_drafted():
    drafter = with_candidates((5, [VOCABULARY - 1, 7]))

    assert drafter.propose(DraftContext([5], Sampler(1.0, vocab_size=VOCABULARY - 1), 1)).tokens[1] != VOCABULARY - 1


def test_at_positive_temperature_candidates_are_ranked_with_the_noise_of_the_target():
    first = Counter[int]()
    for seed in range(60):
        sampler = Sampler(1.0, seed=seed)
        logits = torch.full((1, VOCABULARY), -9.0)
        logits[0, [6, 7]] = torch.tensor([1.0, 0.5])
        drafter = TokenRecycling()
        drafter.observe(Outcome(DraftTree(5), [0], [6], 0, logits=logits))
        drafted = drafter.propose(DraftContext([1, 5], sampler, 1)).tokens[1]
        first[drafted] += 1

        sampled = sampler.sample(logits, sampler.rows_of_tree(DraftTree(5), 2))[0]
        assert drafted == sampled or sampled not in (6, 7)
    assert min(first[6], first[7]) > 10


def test_a_penalty_is_applied():
    sampler, drafter = Sampler(repetition_penalty=3.0), with_candidates((5, [6, 7]))

    tree = drafter.propose(
        DraftContext([6, 5], sampler, 1, sampler.make_seen_tokens([6, 5], VOCABULARY, torch.device("cpu")))
    )

    assert tree.tokens[1] == 7


def test_a_target_that_depends_on_the_last_token_only_is_always_drafted():
    drafter = with_candidates(*((token, [(7 * token + 3) % 50]) for token in range(50)))

    tree = drafter.propose(DraftContext([5], Sampler(), 8))

    assert max(tree.depths) >= 3
    assert len(accept(tree, [(7 * token + 3) % 50 for token in tree.tokens])) == max(tree.depths) + 1


def test_a_random_network_accepts_some_tokens():
    drafter = TokenRecycling()
    writing = Generation(target(), (drafter,))
    writing.replace_tokens([7, 3, 9])

    steps = write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=60))

    assert sum(step.accepted for step in steps) > 10
