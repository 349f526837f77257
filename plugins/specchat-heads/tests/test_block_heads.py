"""DSpark and DFlash-2: the slots of a block are read one after the other."""

from __future__ import annotations

import plugin_heads  # noqa: F401 - adds the tiny heads
import pytest
import torch
from test_dflash import SAMPLERS, TEXT

from specchat.engine.decode import Generation
from specchat.engine.sampling import LogitRows, Sampler
from specchat_heads.block_chain import DraftedBlocks, SlotOutput
from specchat_heads.dflash import DFlashDrafter
from tests.tiny import VOCABULARY
from tests.tiny_heads import drafted, prefilled


def made(kind: str) -> tuple[Generation, DFlashDrafter]:
    return prefilled(DFlashDrafter, kind, TEXT)


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_position_depends_on_the_draft_token_before_it(sampler: str, kind: str):
    writing, drafter = made(kind)
    rules, fill = SAMPLERS[sampler], drafter.head.draft_block

    tree = drafted(writing, drafter, rules)

    block = fill([writing.tokens[-1]], [len(TEXT) - 1], drafter.cache)
    prefix = rules.make_seen_tokens(writing.tokens, VOCABULARY, torch.device("cpu"))
    assert len(tree) > 2
    for ahead in range(len(tree) - 1):
        paths = [tree.tokens[1 : 1 + ahead]] if rules.has_penalties else None
        logits = block.next_slot(tree.tokens[ahead : ahead + 1]).logits
        assert rules.sample(logits, LogitRows([len(TEXT) - 1 + ahead], paths), prefix) == [tree.tokens[1 + ahead]]


def test_the_confidence_head_of_dspark_shortens_the_chain_only():
    writing, drafter = made("dspark")
    sampler = Sampler(1.0, seed=3)
    fill = drafter.head.draft_block

    def with_confidences(*confidences: float):
        def draft_block(*asked) -> DraftedBlocks:
            block = fill(*asked)
            given, correct = iter(confidences), block.next_slot
            block.next_slot = lambda tokens: SlotOutput(correct(tokens).logits, torch.tensor([next(given)]).log())
            return block

        drafter.head.draft_block = draft_block  # type: ignore[method-assign]
        return drafted(writing, drafter, sampler).tokens

    whole = with_confidences(1, 1, 1, 1, 1, 1)
    assert len(whole) == 7
    assert with_confidences(0.9, 0.5, 0.01, 1, 1, 1) == whole[:3]
    assert with_confidences(0.01, 1, 1, 1, 1, 1) == whole[:1]
