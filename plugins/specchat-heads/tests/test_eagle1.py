"""EAGLE-1: it drafts by the kernels and the algorithm of EAGLE-3, from one hidden state."""

from __future__ import annotations

import pytest

from specchat.drafters.eagle import eagle_drafter
from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG
from specchat.drafters.eagle.eagle_drafter import TorchTrees
from specchat.engine.decode import GenerationConfig
from tests.drafters.test_eagle import EAGER, SAMPLERS, made, same
from tests.tiny import write
from tests.tiny_heads import drafted, read


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_after_turns_and_truncations_it_drafts_like_a_new_one(sampler):
    writing, drafter = made("eagle")
    for cut in (30, 2):
        write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=8, max_new_tokens=14))
        _, fresh = made("eagle", text=writing.tokens)
        assert same(drafted(writing, drafter, SAMPLERS[sampler]), drafted(writing, fresh, SAMPLERS[sampler]))
        read(writing, [*writing.tokens[:cut], 5, 6, 8])


@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("growth", [EAGER, CHAIN_CONFIG], ids=["tree", "chain"])
def test_one_call_of_a_kernel_drafts_the_tree_of_the_operations(monkeypatch, growth):
    text, drawn = [token % 90 for token in range(3, 93)], []  # longer than the head's window
    for is_native in (True, False):
        if not is_native:
            monkeypatch.setattr(eagle_drafter, "NativeTrees", lambda head, _network, config: TorchTrees(head, config))
        writing, drafter = made("eagle", growth, text)
        drawn.append([drafted(writing, drafter, rules, budget) for rules in SAMPLERS.values() for budget in (12, 3)])

    assert len(drawn[0][0]) > 1
    assert all(same(one, other) for one, other in zip(*drawn, strict=True))
