"""Tokens sampled in one call: those of the operations of torch, row by row, by every rule."""

import pytest
import torch

from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Sampler, pack_samples
from specchat.forward.native import native_sampling
from specchat.forward.native.native_ops import NativeBorderError, NativeKernels
from specchat.forward.native.native_sampling import can_sample, rank_rows, sample_rows
from tests.each_row import each_row

pytestmark = pytest.mark.usefixtures("native_library")

SAMPLERS = [
    Sampler(), Sampler(0.2, top_p=0.9), Sampler(1.0), Sampler(0.7, top_k=40), Sampler(0.6, min_p=0.1),
    Sampler(0.8, top_k=20, top_p=0.8, min_p=0.05), Sampler(1.5, top_p=0.97, min_p=0.02), Sampler(1.0, top_k=5000),
]  # fmt: skip
COUNT = 24


@pytest.fixture(autouse=True)
def _these_kernels(kernels: NativeKernels, monkeypatch):
    monkeypatch.setattr(native_sampling, "native_kernels", lambda: kernels)


def logits_of(columns: int, scale: float, seed: int = 1) -> torch.Tensor:
    return torch.randn(COUNT, columns, generator=torch.Generator().manual_seed(seed)) * scale


def by_torch(logits: torch.Tensor, sampler: Sampler, rows: LogitRows) -> torch.Tensor:
    return pack_samples(sampler.rank(logits, rows))


@each_row("sampler", SAMPLERS)
@each_row("columns", [30, 96, 1000, 5003])
@each_row("scale", [0.5, 3.0, 12.0])
def test_the_tokens_are_those_of_torch(sampler, columns, scale):
    logits, rows = logits_of(columns, scale), LogitRows(list(range(100, 100 + COUNT)))

    assert torch.equal(by_torch(logits, sampler, rows), sample_rows(logits, sampler, rows))


@each_row("sampler", SAMPLERS)
def test_padding_and_what_a_grammar_forbids_are_not_sampled(sampler):
    sampler = Sampler(**(vars(sampler) | {"vocab_size": 180}))
    logits = logits_of(200, 3.0)
    logits[:, 180:] = 100.0
    allowed = torch.rand(COUNT, 190, generator=torch.Generator().manual_seed(2)) < 0.2
    rows = LogitRows(list(range(COUNT)), allowed_mask=allowed)

    samples = sample_rows(logits, sampler, rows)

    assert torch.equal(by_torch(logits, sampler, rows), samples)
    assert bool(allowed.gather(1, samples[:, :1]).all())


@each_row("sampler", SAMPLERS)
@each_row("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_its_token_whatever_other_rows_there_are(sampler, dtype):
    logits = logits_of(4000, 4.0).to(dtype)  # bfloat16: many are equal
    together = sample_rows(logits, sampler, LogitRows(list(range(COUNT))))

    alone = [sample_rows(logits[row : row + 1], sampler, LogitRows([row])) for row in range(COUNT)]

    assert torch.equal(torch.cat(alone), together)


@each_row("sampler", SAMPLERS)
@each_row("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_reported(sampler, number):
    logits = logits_of(100, 1.0)
    logits[1] = number

    samples = sample_rows(logits, sampler, LogitRows(list(range(COUNT))))

    assert [1, 0, 1] == samples[:3, 1].tolist()


@pytest.mark.full
def test_the_rarest_noise_samples_improbable_tokens_too():
    """Each has 2.5e-8 of the probability, 262,143 together 0.7 %: among 1000 rows torch samples one of them in six."""
    logits, found = torch.full((20, 2**18), -17.5), list[torch.Tensor]()
    logits[:, 0] = 0
    for first in range(0, 1000, 20):
        found.append(sample_rows(logits, Sampler(1.0), LogitRows(list(range(first, first + 20))))[:, 0])
    tokens = torch.cat(found)
    rare = tokens.nonzero()[:, 0].tolist()

    assert len(rare) == 6
    assert tokens[rare].tolist() == [int(by_torch(logits[:1], Sampler(1.0), LogitRows([row]))[0, 0]) for row in rare]


def test_of_equal_logits_the_first_columns_are_kept():
    sampler = Sampler(1.0, top_k=7)

    samples = sample_rows(torch.zeros(200, 500), sampler, LogitRows(list(range(200))))

    assert set(range(7)) == set(samples[:, 0].tolist())


@each_row("dtype", [torch.float32, torch.bfloat16])
def test_a_greedy_token_is_the_first_of_equal_ones_before_the_padding(dtype):
    logits = torch.full((3, 5000), -1.0, dtype=dtype)
    logits[0, [1500, 1501, 3000, 4800]] = torch.tensor([2.0, 2.0, 2.0, 7.0], dtype=dtype)
    logits[1, [1500, 3000]] = torch.tensor([2.0, float("nan")], dtype=dtype)

    samples = sample_rows(logits, Sampler(vocab_size=4700), LogitRows([1, 2, 3]))

    assert [[1500, 1], [0, 0], [0, 1]] == samples.tolist()


def test_other_rules_are_left_to_torch():
    assert not can_sample(Sampler(0.5), LogitRows([1], token_ids=torch.arange(3)), torch.float32)
    assert can_sample(Sampler(0.5), LogitRows([1]), torch.float32)
    assert not can_sample(Sampler(0.5), LogitRows([1]), torch.float16)


def test_masks_and_positions_of_another_size_are_not_read():
    logits = logits_of(50, 1.0)
    for rows in (LogitRows([1]), LogitRows(list(range(COUNT)), allowed_mask=torch.ones(COUNT, 49, dtype=torch.bool))):
        with pytest.raises(NativeBorderError):
            sample_rows(logits, Sampler(), rows)


@each_row("temperature", [0.0, 0.8])
@each_row("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_choose_among_penalized_logits(temperature, dtype):
    sampler = Sampler(temperature, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.1, seed=2)
    logits, seen = logits_of(300, 2.0).to(dtype), SeenTokens(list(range(0, 300, 2)), 300, torch.device("cpu"))
    seen.extend([5, 8, 8])
    rows = LogitRows(list(range(COUNT)), [[row % 300, row % 7, row % 7] for row in range(COUNT)])

    assert can_sample(sampler, rows, dtype)
    assert sample_rows(logits, sampler, rows, seen)[:, 0].tolist() == sampler.sample(logits, rows, seen)
    ranked, expected = rank_rows(logits, sampler, rows, seen, 5), sampler.rank(logits, rows, seen, 5)
    assert torch.allclose(ranked.scores, expected.scores)  # of equal ones the order differs
