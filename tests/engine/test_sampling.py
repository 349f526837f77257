"""The noise, the sampling rules and the walk."""

import math

import pytest
import torch

from specchat.engine.accept import accept
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Sampler, _hash_bits, _hash_on_cpu, gumbel_noise
from specchat.engine.tree import DraftTree
from tests.each_row import each_row

IDS = torch.arange(50)


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def throws(sampler: Sampler, logits: torch.Tensor, count: int) -> torch.Tensor:
    """Counts of the sampled tokens at `count` positions with the same logits."""
    sampled = sampler.sample(logits.expand(count, -1), LogitRows(list(range(count))))
    return torch.bincount(torch.tensor(sampled), minlength=logits.shape[-1])


@each_row("seed", [0, 1, 12345])
def test_samples_follow_the_softmax(seed):
    torch.manual_seed(3)
    logits, count = torch.randn(30), 30_000

    counts = throws(Sampler(1.0, seed=seed), logits, count)

    # 29 degrees of freedom: 58.3 is passed by chance once in a thousand
    assert chi_square(counts, logits.softmax(-1) * count) < 58.3


@each_row(
    "sampler, kept",
    [
        (Sampler(1.0, top_k=3, seed=5), 3),
        (Sampler(1.0, top_p=0.7, seed=6), None),
        (Sampler(0.5, min_p=0.2, seed=7), None),
        (Sampler(0.8, top_k=12, top_p=0.8, min_p=0.05, seed=8), None),
    ],
)
def test_truncated_samples_follow_transformers(sampler, kept):
    torch.manual_seed(4)
    logits, count = torch.randn(1, 20) * 2, 20_000

    chances = processed_by_transformers(sampler, logits)[0].softmax(-1)
    counts = throws(sampler, logits[0], count)

    alive = chances > 0
    assert kept is None or int(alive.sum()) == kept
    assert int(counts[~alive].sum()) == 0
    assert chi_square(counts[alive], chances[alive] * count) < 45.3  # at most 20 degrees of freedom, 1 in 1000


def processed_by_transformers(sampler: Sampler, logits: torch.Tensor) -> torch.Tensor:
    from transformers.generation import logits_process as hf

    steps = [hf.TemperatureLogitsWarper(sampler.temperature)]
    steps += [hf.TopKLogitsWarper(sampler.top_k)] if sampler.top_k else []
    steps += [hf.TopPLogitsWarper(sampler.top_p)] if sampler.top_p < 1 else []
    steps += [hf.MinPLogitsWarper(sampler.min_p)] if sampler.min_p else []
    for step in steps:
        logits = step(torch.zeros(1, 1, dtype=torch.long), logits)
    return logits


@pytest.mark.full
def test_the_nucleus_is_found_beyond_the_shortlist():
    sampler = Sampler(1.0, top_p=0.95, seed=1)
    flat = torch.zeros(1, 4000)  # 0.95 of the mass are 3800 tokens, the shortlist has 1024

    sampled = sampler.sample(flat.expand(1000, -1), LogitRows(list(range(1000))))

    assert len(set(sampled)) > 750  # 880 are expected; of the shortlist alone, 640


def test_neighbouring_positions_have_independent_noise():
    noise, other = (gumbel_noise(seed, list(range(400)), torch.arange(400)) for seed in (7, 8))

    by_position = torch.corrcoef(torch.stack([noise[:-1].flatten(), noise[1:].flatten()]))[0, 1]
    by_token = torch.corrcoef(torch.stack([noise[:, :-1].flatten(), noise[:, 1:].flatten()]))[0, 1]
    by_seed = torch.corrcoef(torch.stack([noise.flatten(), other.flatten()]))[0, 1]

    limit = 4 / math.sqrt(400 * 399)
    assert abs(by_position) < limit
    assert abs(by_token) < limit
    assert abs(by_seed) < limit


def test_the_noise_is_gumbel_distributed():
    noise = gumbel_noise(1, list(range(1000)), torch.arange(1000))

    assert abs(float(noise.mean()) - 0.5772) < 0.005
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.01
    assert torch.isfinite(noise).all()


def test_the_noise_of_a_seed_never_changes():
    """Stored seeds give the same answers with every version."""
    noise = gumbel_noise(3, [1, 2], torch.tensor([0, 5, 49151]))

    expected = torch.tensor(
        [
            [-0.8263658285140991, 2.35506010055542, 1.148667573928833],
            [-1.3625710010528564, 0.11407498270273209, 0.3278922736644745],
        ]
    )
    assert torch.equal(noise, expected)


def test_the_hash_is_the_same_on_every_device():
    ids, keys = torch.arange(3000)[None], torch.tensor([[-5, 2**31 - 1], [7, -(2**31)]], dtype=torch.int32)

    by_torch = _hash_bits(_hash_bits(ids.to(torch.int32) + keys[:, :1]) ^ keys[:, 1:]) & 0x7FFFFFFF

    assert torch.equal(torch.from_numpy(_hash_on_cpu(ids.numpy(), keys.numpy())), by_torch)


def test_a_reduced_vocabulary_has_the_same_noise():
    chosen = torch.tensor([40, 3, 17, 8])

    assert torch.equal(gumbel_noise(9, [4, 5], chosen), gumbel_noise(9, [4, 5], IDS)[:, chosen])


def test_a_draft_with_fewer_tokens_ranks_with_the_noise_of_the_target():
    torch.manual_seed(1)
    logits, chosen = torch.randn(1, 50), torch.tensor([40, 3, 17, 8])
    sampler = Sampler(1.0, seed=2)

    reduced = sampler.rank(logits[:, chosen], LogitRows([6], token_ids=chosen), count=4).token_ids[0].tolist()

    full = sampler.rank(logits, LogitRows([6]), count=50).token_ids[0].tolist()
    assert reduced == [token for token in full if token in chosen.tolist()]


def test_padding_tokens_are_never_sampled():
    logits = torch.zeros(500, 60)
    logits[:, 50:] = 100.0

    sampled = Sampler(1.0, seed=1, vocab_size=50).sample(logits, LogitRows(list(range(500))))

    assert max(sampled) < 50


def test_padding_does_not_change_the_noise():
    torch.manual_seed(2)
    logits = torch.randn(200, 50)
    padded = torch.cat([logits, torch.full((200, 14), 30.0)], dim=-1)

    plain = Sampler(1.0, seed=3, top_p=0.9).sample(logits, LogitRows(list(range(200))))

    assert Sampler(1.0, seed=3, top_p=0.9, vocab_size=50).sample(padded, LogitRows(list(range(200)))) == plain


def test_the_penalty_sees_the_text_and_the_path_of_each_node():
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    torch.manual_seed(5)
    logits, text, paths = torch.randn(3, 50), [4, 9, 4], [[], [7], [7, 11]]
    sampler = Sampler(repetition_penalty=1.7)
    penalise = RepetitionPenaltyLogitsProcessor(1.7)

    order = sampler.rank(logits, LogitRows([2, 3, 4], paths), SeenTokens(text, 50, logits.device), count=50)

    for row, path in enumerate(paths):
        expected = penalise(torch.tensor([text + path]), logits[row : row + 1])[0]
        assert torch.equal(expected.sort(descending=True).values, order.scores[row])


def test_frequency_and_presence_penalties_count_the_tokens_of_the_answer_alone():
    """As OpenAI documents them: the prompt does not count, and draft tokens count as if they were committed."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(5))
    sampler = Sampler(frequency_penalty=0.7, presence_penalty=-0.3)
    seen = SeenTokens([4, 9, 4], 50, logits.device)
    seen.extend([9, 7, 9])

    order = sampler.rank(logits, LogitRows([5, 6, 7], [[], [7], [7, 11]]), seen, count=50)

    for row, counts in enumerate([{9: 2, 7: 1}, {9: 2, 7: 2}, {9: 2, 7: 2, 11: 1}]):
        expected = logits[row].clone()
        for token, count in counts.items():
            expected[token] -= 0.7 * count - 0.3
        assert torch.allclose(expected.sort(descending=True).values, order.scores[row])


def test_penalties_of_a_reduced_vocabulary_are_those_of_its_tokens():
    seen, token_ids = SeenTokens([], 50, torch.device("cpu")), torch.tensor([3, 9, 30])
    seen.extend([9])

    order = Sampler(presence_penalty=2.0).rank(torch.tensor([[0.0, 1.0, 0.5]]), LogitRows([1], [[]], token_ids), seen)

    assert [[30]] == order.token_ids.tolist()


def test_a_bias_is_added_to_the_logit_of_its_token_in_every_row_and_in_a_reduced_vocabulary():
    """As OpenAI documents `logit_bias`: before the sampling, whether the text has the token or not."""
    biased, seen = Sampler(biases=((3, -100.0), (9, 2.0))), SeenTokens([], 50, torch.device("cpu"))
    logits, token_ids = torch.tensor([[9.0, 1.0, 2.5], [0.0, 0.0, 1.0]]), torch.tensor([3, 9, 30])

    assert [[9], [9]] == biased.rank(logits, LogitRows([1, 2], [[], []], token_ids), seen).token_ids.tolist()
    assert biased.has_penalties and biased.noise_inputs(LogitRows([1]), seen) is None  # no graph samples without it
    penalized = biased.penalize(torch.zeros(1, 50), LogitRows([1]), seen)[0]
    assert [-100.0, 2.0, 0.0] == penalized[[3, 9, 4]].tolist()


def test_a_row_is_ranked_alike_alone_and_among_others():
    torch.manual_seed(6)
    logits = torch.randn(16, 3000) * 3
    sampler = Sampler(0.8, top_k=50, top_p=0.9, seed=4)

    together = sampler.sample(logits, LogitRows(list(range(16))))

    assert together == [sampler.sample(logits[i : i + 1], LogitRows([i]))[0] for i in range(16)]


def test_the_walk_follows_draft_tokens_that_equal_the_samples():
    tree = DraftTree(1)
    tree.add_chain([5, 6, 7])
    tree.add_chain([5, 8])

    assert accept(tree, [5, 8, 0, 0, 3]) == [0, 1, 4]
    assert accept(tree, [9, 8, 0, 0, 3]) == [0]


@each_row("spread", [0.01, 1.0, 5.0, 40.0])
@each_row("count", [1, 6])
def test_tokens_that_cannot_win_are_skipped_without_an_effect(spread, count):
    """Without top-k, top-p and min-p, most tokens get no noise: the best are those of all tokens with noise."""
    logits = torch.randn(5, 5003, generator=torch.Generator().manual_seed(8)) * spread
    positions = [3, 4, 5, 6, 7]

    ranking = Sampler(0.7, seed=11).rank(logits, LogitRows(positions), count=count)

    scores, ids = (logits / 0.7 + gumbel_noise(11, positions, torch.arange(5003))).topk(count)
    assert torch.equal(ranking.token_ids, ids)
    assert torch.equal(ranking.scores, scores)


@each_row("sampler", [Sampler(0.7, top_p=0.9), Sampler(0.7, top_k=9), Sampler(0.7, min_p=0.02), Sampler(0.7)])
def test_samples_do_not_depend_on_the_number_of_threads(sampler):
    logits = torch.randn(3, 49152, generator=torch.Generator().manual_seed(9)) * 3
    threads = torch.get_num_threads()

    def scores(count: int) -> torch.Tensor:
        torch.set_num_threads(count)
        return sampler.rank(logits, LogitRows([1, 2, 3]), count=4).scores

    try:
        assert torch.equal(scores(1), scores(3))
    finally:
        torch.set_num_threads(threads)


@each_row("top_p", [0.1, 0.5, 0.9, 0.999])
def test_top_p_of_a_row_does_not_depend_on_the_other_rows(top_p):
    """Rows whose nucleus has one token, dozens, thousands, and nearly all tokens."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 5000, generator=generator) * torch.tensor([[30.0], [3.0], [1.0], [0.01]])
    sampler, positions = Sampler(1.0, top_p=top_p), [5, 6, 7, 8]
    together = sampler.rank(logits, LogitRows(positions), count=20)

    for row in range(4):
        alone = sampler.rank(logits[row : row + 1], LogitRows(positions[row : row + 1]), count=20)
        allowed = alone.scores[0].isfinite()
        assert torch.equal(alone.scores[0], together.scores[row])
        assert torch.equal(alone.token_ids[0][allowed], together.token_ids[row][allowed])


def test_top_p_keeps_the_tokens_of_a_complete_sort():
    logits = torch.randn(3, 3000, generator=torch.Generator().manual_seed(4)) * torch.tensor([[9.0], [2.0], [0.1]])
    kept, ids = Sampler(1.0, top_p=0.8).process_logits(logits, LogitRows([1, 2, 3]))

    for row in range(3):
        probabilities, order = logits[row].softmax(-1).sort(descending=True)
        expected = order[probabilities.cumsum(-1) - probabilities < 0.8]
        found = ids[row][kept[row].isfinite()]
        assert len(set(expected.tolist()) ^ set(found.tolist())) <= 1  # the last one, as sums are rounded differently
