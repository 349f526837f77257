"""The text of a seed is that of plain decoding, and over all seeds it has the distribution of the target."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows, Sampler
from tests.chooser.cost_tables import TableModel
from tests.tiny import small, target, write
from tests.tiny_heads import drafter_of

TABLE = torch.randn(5, 5, generator=torch.Generator().manual_seed(11))
DRAFT = TABLE * 0.5 + torch.randn(5, 5, generator=torch.Generator().manual_seed(12))


def long_text(sampler: Sampler, drafter: Drafter, tokens: int) -> tuple[list[int], list[Step]]:
    """A text of the real decoding loop, with table models."""
    writing = Generation(TableModel(TABLE), (drafter,))
    writing.replace_tokens([0])
    steps = write(writing, GenerationConfig(drafter, sampler, max_draft_tokens=4, max_new_tokens=tokens))
    return writing.tokens, steps


def chi_square(tokens: list[int], chances: Tensor) -> tuple[float, int]:
    """Chi-square of the token after two tokens, of which only the second should count; and degrees of freedom."""
    seen = Counter(zip(tokens, tokens[1:], tokens[2:], strict=False))
    total, freedom = 0.0, 0
    for before, last in product(range(5), range(5)):
        counts = torch.tensor([seen[before, last, token] for token in range(5)], dtype=torch.float)
        alive = chances[last] > 0
        assert counts[~alive].sum() == 0
        expected = chances[last][alive] * counts.sum()
        if counts.sum() > 0:
            total += float(((counts[alive] - expected) ** 2 / expected).sum())
            freedom += int(alive.sum()) - 1
    return total, freedom


@pytest.mark.full
@pytest.mark.parametrize("sampler", [Sampler(1.0, seed=1), Sampler(0.7, top_k=4, seed=2)], ids=["T1", "k4"])
def test_a_long_text_follows_the_target(sampler):
    chances = sampler.process_logits(TABLE, LogitRows(list(range(5))))
    laws = torch.zeros(5, 5).scatter(1, chances[1].expand(5, -1), chances[0].softmax(-1))

    tokens, steps = long_text(sampler, DraftModelDrafter(TableModel(DRAFT), chain_length=3), 4000)

    total, freedom = chi_square(tokens, laws)
    assert total < freedom + 3.3 * (2 * freedom) ** 0.5
    assert len(steps) < 3000


@pytest.mark.full
@pytest.mark.parametrize("kind", ["draft", "eagle3", "mtp"])
def test_texts_of_networks_are_as_likely_as_by_plain_decoding(kind):
    model, prompt, count = target("dense-llama"), [7, 3, 9, 12, 40, 41], 1500
    drafter = DraftModelDrafter(small()) if kind == "draft" else drafter_of(kind, model, CHAIN_CONFIG)
    rules, writing = Sampler(1.5, top_k=4), Generation(model, (drafter,))
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        writing.replace_tokens(prompt)
        write(
            writing,
            GenerationConfig(drafter, replace(rules, seed=seed), max_draft_tokens=4, max_new_tokens=2),
        )
        found[tuple(writing.tokens[len(prompt) :])] += 1

    likely: dict[tuple[int, ...], float] = {}
    for first, chance in next_tokens(model, rules, prompt):
        likely |= {(first, then): chance * other for then, other in next_tokens(model, rules, [*prompt, first])}
    assert found.keys() <= likely.keys()
    # 15 degrees of freedom: 37.7 is passed by chance once in a thousand
    assert sum((found[text] - chance * count) ** 2 / (chance * count) for text, chance in likely.items()) < 37.7


def next_tokens(model: Model, rules: Sampler, text: list[int]) -> list[tuple[int, float]]:
    """The possible next tokens of a text, with their probabilities."""
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64):
        logits, ids = rules.process_logits(model.prefill(text, cache).logits, LogitRows([len(text) - 1]))
    model.pool.close(cache)
    return list(zip(ids[0].tolist(), logits[0].softmax(-1).tolist(), strict=True))
