"""A small model that guesses ahead."""

import pytest
import torch

from specchat.drafters.draft_model import DraftModel
from specchat.engine.drafter import Context, Drafter
from specchat.engine.sampling import Rows, Sampler
from tests.tiny import VOCABULARY, answer, network, small

TEXT = [5, 6, 7, 8, 9, 10] * 5  # longer than a chunk


def test_it_guesses_what_it_would_have_written_itself():
    tree = DraftModel(small(), guesses=4).propose(Context(TEXT, Sampler(), budget=8))

    assert tree.tokens[1:] == answer(small(), Drafter(), TEXT, Sampler(), limit=4)


def test_sampled_guesses_meet_the_dice_of_the_target():
    sampler = Sampler(1.0, seed=4)
    tree = DraftModel(small(), guesses=4).propose(Context(TEXT, sampler, budget=8))

    assert tree.first_chain(8).tokens[1:] == answer(small(), Drafter(), TEXT, sampler, limit=4)


def test_warm_links_have_a_second_child():
    tree = DraftModel(small(), guesses=3).propose(Context(TEXT, Sampler(1.0, seed=4), budget=8))

    assert sorted(tree.parents) == [-1, 0, 0, 1, 1, 3, 3]


def test_under_the_classic_rule_every_link_is_a_draw_that_is_reported():
    sampler = Sampler(0.8, top_k=20, repetition_penalty=1.3, seed=4, is_classic=True)
    prefix = sampler.prefix(TEXT, VOCABULARY, torch.device("cpu"))

    tree = DraftModel(small(), guesses=3).propose(Context(TEXT, sampler, budget=8, prefix=prefix))

    assert tree.is_chain
    assert list(tree.draws) == [0, 1, 2]
    for node, draw in tree.draws.items():
        rows, text = Rows([len(TEXT) - 1 + node], [tree.path_to(node)]), TEXT + tree.path_to(node)
        again = sampler.draw(logits_after(text), rows, prefix)
        assert draw.token == again.token == tree.tokens[node + 1]
        assert torch.equal(draw.ids, again.ids)
        assert torch.allclose(draw.chances, again.chances, atol=1e-5)
        assert len(draw.chances) == 20


def logits_after(text: list[int]) -> torch.Tensor:
    """What the small model says after a text, read at once."""
    with torch.inference_mode():
        return network("llama", layers=1, seed=2)(torch.tensor([text])).logits[0, -1:]


def test_only_sure_tokens_stay_in_its_cache():
    drafter = DraftModel(small(), guesses=4)

    drafter.propose(Context(TEXT, Sampler(), budget=8))

    assert drafter.cache.length == len(TEXT) - 1


def test_what_it_knows_is_not_read_twice():
    drafter, reads = DraftModel(small(), guesses=2), list[int]()
    drafter.propose(Context(TEXT, Sampler(), budget=8))
    read = drafter.model.read
    drafter.model.read = lambda tokens, cache: reads.append(len(tokens)) or read(tokens, cache)

    drafter.propose(Context([*TEXT, 11, 12], Sampler(), budget=8))

    assert reads == [3, 1]


@pytest.mark.parametrize("cut", [0, 3, 20])
def test_a_cut_text_is_read_again_from_the_cut(cut):
    drafter = DraftModel(small(), guesses=4)
    drafter.propose(Context(TEXT, Sampler(), budget=8))
    other = [*TEXT[:cut], 40, 41, 42]

    drafter.forget(cut)

    fresh = DraftModel(small(), guesses=4).propose(Context(other, Sampler(), budget=8))
    assert drafter.propose(Context(other, Sampler(), budget=8)).tokens == fresh.tokens


def test_beyond_its_window_it_is_silent():
    drafter = DraftModel(small(), guesses=4)
    drafter.model.window = len(TEXT) + 2

    assert len(drafter.propose(Context(TEXT, Sampler(), budget=8))) == 3
    assert len(drafter.propose(Context(TEXT + TEXT, Sampler(), budget=8))) == 1


def test_tokens_that_it_has_no_row_for_do_not_hurt():
    drafter = DraftModel(small(), guesses=4)

    assert len(drafter.propose(Context([*TEXT, VOCABULARY, VOCABULARY + 5], Sampler(), budget=8))) == 5


def test_without_room_for_its_keys_it_is_silent():
    drafter = DraftModel(small(), guesses=4)
    drafter.model.pool.budget_bytes = 10

    assert len(drafter.propose(Context(TEXT, Sampler(), budget=8))) == 1
