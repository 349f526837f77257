"""Rejection sampling: the text is not the same for a seed, but its distribution is exactly equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

import pytest
import torch
from torch import Tensor

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG
from specchat.engine.accept import accept, rejection_sampling_probabilities
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import ROOT, DraftSample, DraftTree
from tests.chooser.cost_tables import TableModel
from tests.tiny import answer, small, target, write
from tests.tiny_heads import drafter_of

VOCABULARY, CHAIN_LENGTH = 4, 3
TEXT = (2, 0)
CPU = torch.device("cpu")
Law = dict[tuple[int, ...], float]  # how likely each text is
SAMPLERS = {
    "T1": Sampler(1.0),
    "T0.6": Sampler(0.6),
    "k2": Sampler(1.0, top_k=2),
    "p0.7": Sampler(0.9, top_p=0.7),
    "min-p": Sampler(1.0, min_p=0.3),
    "penalty": Sampler(0.8, repetition_penalty=1.8),
    "all": Sampler(0.8, top_k=3, top_p=0.9, min_p=0.05, repetition_penalty=1.3),
}


@lru_cache(maxsize=4096)
def table_logits(who: int, text: tuple[int, ...]) -> Tensor:
    """Random logits of a model after a text, the same for the same arguments. [V]"""
    place = sum((token + 1) * 5**at for at, token in enumerate(text))
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(7919 * who + place)) * 1.5


def target_logits(text: tuple[int, ...]) -> Tensor:
    return table_logits(1, text)


def draft_logits(text: tuple[int, ...]) -> Tensor:
    return 0.5 * table_logits(1, text) + table_logits(2, text)


class SampledChains:
    """All chains that a drafter can sample, with their probabilities."""

    def __init__(self, sampler: Sampler, ids: list[int] | None = None) -> None:
        self.sampler, self.ids = sampler, ids

    def trees(self, text: tuple[int, ...], links: int) -> Iterator[tuple[float, DraftTree]]:
        """Every chain below a text."""
        for chance, draws in self._chains(text, (), links):
            tree, leaf = DraftTree(text[-1]), ROOT
            for draw in draws:
                leaf = tree.add_sample(draw, leaf, "draft")
            yield chance, tree

    def _chains(
        self, text: tuple[int, ...], path: tuple[int, ...], left: int
    ) -> Iterator[tuple[float, list[DraftSample]]]:
        if not left:
            yield 1.0, []
            return
        for draw in self.draws(text, path):
            chance = float(draw.probabilities[draw.token_ids == draw.token])
            for rest, draws in self._chains(text, (*path, draw.token), left - 1):
                yield chance * rest, [draw, *draws]

    def draws(self, text: tuple[int, ...], path: tuple[int, ...]) -> Iterator[DraftSample]:
        """The possible samples behind a path."""
        ids = torch.tensor(self.ids) if self.ids else None
        logits = draft_logits(text + path) if ids is None else draft_logits(text + path)[ids]
        sample = self.sampler.sample_draft(
            logits[None],
            LogitRows([len(text) - 1 + len(path)], [list(path)], ids),
            self.sampler.make_seen_tokens(list(text), VOCABULARY, CPU),
        )
        for token, chance in zip(sample.token_ids.tolist(), sample.probabilities.tolist(), strict=True):
            if chance > 0:
                yield DraftSample(token, sample.token_ids, sample.probabilities)


class PointMass(SampledChains):
    """Samples from a single token, which is a point mass: q = 1."""

    def draws(self, text: tuple[int, ...], path: tuple[int, ...]) -> Iterator[DraftSample]:
        token = int(draft_logits(text + path).argmax())
        yield DraftSample(token, torch.tensor([token]), torch.ones(1))


class ChangedTrees(SampledChains):
    """Changes every sampled tree."""

    def __init__(self, sampler: Sampler, change: Callable[[DraftTree], DraftTree]) -> None:
        super().__init__(sampler)
        self.change = change

    def trees(self, text: tuple[int, ...], links: int) -> Iterator[tuple[float, DraftTree]]:
        for chance, tree in super().trees(text, links):
            yield chance, self.change(tree)


def without_ones(tree: DraftTree) -> DraftTree:
    """Prune every node of token 1 and its descendants."""
    tokens = tree.tokens[1:]
    return tree.prune(list(range(1, tokens.index(1) + 1 if 1 in tokens else len(tree))))


def with_siblings(tree: DraftTree) -> DraftTree:
    """Add tokens of another drafter beside and behind the samples."""
    tree.add_chain([1, 3, 1], ROOT, "lookup")
    return tree


def without_samples(tree: DraftTree) -> DraftTree:
    """Drop all reported samples."""
    tree.samples = {}
    return tree


def without_samples_of_token_1(tree: DraftTree) -> DraftTree:
    """Wrong: drops a sample because its token is 1."""
    tree.samples = {node: draw for node, draw in tree.samples.items() if draw.token != 1}
    return tree.prune([]) if tree.tokens[1:2] == [1] else tree


def with_wrong_probabilities(tree: DraftTree) -> DraftTree:
    """Wrong: reports other probabilities than those it sampled from."""
    tree.samples = {
        node: DraftSample(draw.token, draw.token_ids, (draw.probabilities + 0.1) / (draw.probabilities + 0.1).sum())
        for node, draw in tree.samples.items()
    }
    return tree


def steps_of(sampler: Sampler, tree: DraftTree, text: tuple[int, ...]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every outcome of one step with its probability, by the engine's own rules and walk."""
    logits = torch.stack([target_logits((*text, *tree.path_tokens(node))) for node in range(len(tree))])
    rows, prefix = sampler.rows_of_tree(tree, len(text)), sampler.make_seen_tokens(list(text), VOCABULARY, CPU)
    scores, ids = sampler.process_logits(logits, rows, prefix)
    chances = scores.double().softmax(-1).tolist()
    columns = ids.expand(len(tree), -1).tolist()
    choices = [
        [(token, chance) for token, chance in zip(*row, strict=True) if chance > 0]
        for row in zip(columns, chances, strict=True)
    ]
    for outcome in product(*choices):
        sampled = [token for token, _chance in outcome]
        path = accept(tree, sampled)
        yield prod(chance for _token, chance in outcome), (*[tree.tokens[node] for node in path[1:]], sampled[path[-1]])


def law(sampler: Sampler, chains: SampledChains | None, text: tuple[int, ...], left: int) -> Law:
    """The probability of each continuation of `left` tokens, step by step as in the decoding loop."""
    if not left:
        return {(): 1.0}
    found: dict[tuple[int, ...], float] = defaultdict(float)
    trees = chains.trees(text, min(CHAIN_LENGTH, left - 1)) if chains else [(1.0, DraftTree(text[-1]))]
    steps: dict[tuple[int, ...], float] = defaultdict(float)
    for sample, tree in trees:
        for chance, tokens in steps_of(sampler, tree, text):
            steps[tokens[:left]] += sample * chance
    for tokens, chance in steps.items():
        for rest, likely in law(sampler, chains, text + tokens, left - len(tokens)).items():
            found[tokens + rest] += chance * likely
    return found


@lru_cache
def plain(sampler: Sampler, length: int) -> Law:
    return law(sampler, None, TEXT, length)


def distance(one: Law, other: Law) -> float:
    """The total variation distance."""
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in {*one, *other}) / 2


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_text_has_the_probability_of_plain_decoding(name):
    sampler = SAMPLERS[name]

    drafted = law(sampler, SampledChains(sampler), TEXT, CHAIN_LENGTH + 1)

    assert abs(sum(drafted.values()) - 1) < 1e-6
    assert distance(drafted, plain(sampler, CHAIN_LENGTH + 1)) < 1e-6


@pytest.mark.parametrize(
    "chains",
    [
        pytest.param(SampledChains(Sampler(1.7)), id="a drafter with rules of its own"),
        pytest.param(SampledChains(SAMPLERS["all"], ids=[3, 0, 2]), id="a reduced vocabulary"),
        pytest.param(PointMass(Sampler(1.0)), id="a point mass"),
        pytest.param(ChangedTrees(Sampler(1.0), without_ones), id="a tree pruned by its samples"),
        pytest.param(ChangedTrees(Sampler(1.0), with_siblings), id="tokens of another drafter beside it"),
        pytest.param(ChangedTrees(Sampler(1.0), without_samples), id="samples that are not reported"),
    ],
)
@pytest.mark.parametrize("name", ["T1", "all"])
def test_no_drafter_changes_the_distribution(name, chains):
    drafted = law(SAMPLERS[name], chains, TEXT, CHAIN_LENGTH)

    assert distance(drafted, plain(SAMPLERS[name], CHAIN_LENGTH)) < 1e-6


@pytest.mark.parametrize("wrong", [without_samples_of_token_1, with_wrong_probabilities])
def test_a_wrong_report_changes_the_distribution(wrong):
    drafted = law(SAMPLERS["T1"], ChangedTrees(Sampler(1.0), wrong), TEXT, CHAIN_LENGTH)

    assert distance(drafted, plain(SAMPLERS["T1"], CHAIN_LENGTH)) > 0.01


def test_the_sampled_token_over_all_draft_samples_follows_the_target():
    generator = torch.Generator().manual_seed(3)
    for _ in range(200):
        p, q = (torch.randn(6, generator=generator, dtype=torch.float64).mul(3).softmax(-1) for _ in range(2))
        p = torch.where(torch.rand(6, generator=generator) < 0.3, 0.0, p)
        p = p / p.sum()

        sampled = sum(q[token] * rejection_sampling_probabilities(p, q, torch.arange(6) == token) for token in range(6))

        assert (sampled - p).abs().max() < 1e-12


def test_a_draft_token_is_accepted_as_often_as_p_and_q_agree():
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.4, 0.0, 0.4])

    chances = [rejection_sampling_probabilities(p, q, torch.arange(4) == token) for token in range(4)]

    assert chances[0].tolist() == [1, 0, 0, 0]  # p is larger than q
    assert torch.allclose(chances[1], torch.tensor([0.15, 0.75, 0.1, 0.0]))  # the rest goes to 0 and 2, as 0.3 to 0.2
    assert torch.allclose(chances[3], torch.tensor([0.6, 0.0, 0.4, 0.0]))  # p is 0


def test_a_draft_model_that_equals_the_target_is_always_accepted():
    p = torch.tensor([0.1, 0.2, 0.7])

    for token in range(3):
        assert rejection_sampling_probabilities(p, p, torch.arange(3) == token)[token] == 1
    assert not rejection_sampling_probabilities(p, p * (1 + 1e-7), torch.arange(3) == 0).isnan().any()


def test_a_point_mass_does_not_change_the_sample():
    p = torch.tensor([0.5, 0.3, 0.2])

    assert torch.allclose(rejection_sampling_probabilities(p, torch.tensor([0.0, 1.0, 0.0]), torch.arange(3) == 1), p)


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
@pytest.mark.parametrize(
    "sampler",
    [Sampler(1.0, seed=1, uses_rejection_sampling=True), Sampler(0.7, top_k=4, seed=2, uses_rejection_sampling=True)],
    ids=["T1", "k4"],
)
def test_a_long_text_follows_the_target(sampler):
    chances = sampler.process_logits(TABLE, LogitRows(list(range(5))))
    laws = torch.zeros(5, 5).scatter(1, chances[1].expand(5, -1), chances[0].softmax(-1))

    tokens, steps = long_text(sampler, DraftModelDrafter(TableModel(DRAFT), chain_length=3), 4000)

    total, freedom = chi_square(tokens, laws)
    assert total < freedom + 3.3 * (2 * freedom) ** 0.5
    assert len(steps) < 3000


@pytest.mark.full
@pytest.mark.parametrize("kind", ["draft", "eagle3", "mtp", "mtp latent"])
def test_texts_of_networks_are_as_likely_as_by_plain_decoding(kind):
    model, prompt, count = target("dense-llama"), [7, 3, 9, 12, 40, 41], 1500
    drafter = DraftModelDrafter(small()) if kind == "draft" else drafter_of(kind, model, CHAIN_CONFIG)
    rules, writing = Sampler(1.5, top_k=4), Generation(model, (drafter,))
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        writing.replace_tokens(prompt)
        write(
            writing,
            GenerationConfig(
                drafter, replace(rules, seed=seed, uses_rejection_sampling=True), max_draft_tokens=4, max_new_tokens=2
            ),
        )
        found[tuple(writing.tokens[len(prompt) :])] += 1

    likely: Law = {}
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


@pytest.mark.full
def test_the_acceptance_rate_is_that_of_the_papers():
    sampler = Sampler(1.0, seed=3, uses_rejection_sampling=True)
    agreed = torch.minimum(TABLE.softmax(-1), DRAFT.softmax(-1)).sum(-1)

    _tokens, steps = long_text(sampler, DraftModelDrafter(TableModel(DRAFT), chain_length=1), 2000)

    drafted = [step for step in steps if step.drafted]
    wanted = float(torch.stack([agreed[step.tree.tokens[ROOT]] for step in drafted]).mean())
    assert abs(sum(step.accepted for step in drafted) / len(drafted) - wanted) < 0.04


def test_draft_samples_follow_the_reported_distribution_and_not_the_noise_of_the_target():
    sampler, logits, count = Sampler(1.0, seed=5, uses_rejection_sampling=True), torch.randn(1, 4), 3000

    sample = [sampler.sample_draft(logits, LogitRows([position])) for position in range(count)]

    sampled = sampler.sample(logits.expand(count, -1), LogitRows(list(range(count))))
    pairs = Counter(zip((draw.token for draw in sample), sampled, strict=True))
    chances = sample[0].probabilities
    expected = torch.outer(chances, chances) * count
    counts = torch.tensor([[float(pairs[draw, token]) for token in range(4)] for draw in range(4)])
    assert float(((counts - expected) ** 2 / expected).sum()) < 37.7  # 15 degrees of freedom, 1 in 1000


def test_every_step_has_its_own_noise_with_rejection_sampling_only():
    classic = Sampler(1.0, seed=5, uses_rejection_sampling=True)
    logits, rows = torch.zeros(1, 1000), LogitRows([50])

    assert classic.at_step(7) == classic.at_step(7)
    assert classic.at_step(7).sample(logits, rows) != classic.at_step(8).sample(logits, rows)
    for sampler in (Sampler(1.0, seed=5), Sampler(0.0, uses_rejection_sampling=True)):
        assert sampler.at_step(7) is sampler


def test_at_temperature_zero_both_rules_are_equal():
    prompt = [5, 6, 7, 8] * 4
    sampler = Sampler(0.0, uses_rejection_sampling=True)

    assert answer(target(), DraftModelDrafter(small()), prompt, sampler) == answer(
        target(), Drafter(), prompt, Sampler()
    )


def test_the_same_drafter_and_seed_give_the_same_text():
    texts = [
        long_text(Sampler(1.0, seed=seed, uses_rejection_sampling=True), DraftModelDrafter(TableModel(DRAFT)), 60)[0]
        for seed in (4, 4, 5)
    ]

    assert texts[0] == texts[1] != texts[2]
