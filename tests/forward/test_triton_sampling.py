"""The sampling kernels choose the tokens of a CPU, bit by bit; on machines without a GPU, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import NO_NOISE, DeviceNoise, LogitRows, NoiseInputs, Sampler, pack_samples
from specchat.forward.cuda import triton_sampling
from specchat.forward.cuda.cuda_graphs import device_noise, noise_header, noise_keys
from specchat.forward.cuda.triton_sampling import (
    TritonNoise,
    chooses_as_torch,
    rank_by_rules,
    rank_columns,
    sample_by_rules,
    sample_columns,
)
from specchat.forward.cuda.triton_truncation import cut_rows
from specchat.forward.native.native_sampling import rank_rows, sample_rows
from tests.each_row import each_row
from tests.triton_interpreter import DEVICE, IS_INTERPRETED, interpreted_kernels

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TEMPERATURES = (0.0, 0.2, 0.8, 1.5)
CUTS = [
    Sampler(0.2, top_p=0.9), Sampler(0.7, top_k=40), Sampler(0.6, min_p=0.1), Sampler(0.8, 20, 0.8, 0.05),
    Sampler(1.5, top_p=0.97, min_p=0.02), Sampler(1.0, top_k=5000), Sampler(1.0, top_p=0.9999), Sampler(1.0, top_k=1),
    Sampler(1.0, top_p=1e-9), Sampler(1.3, top_k=300, top_p=0.5),
]  # fmt: skip
INFINITE, NAN = float("inf"), float("nan")
ODD_ROWS = {
    "ties": [1.0, 3.0, 3.0, 2.0], "zeros": [-1.0, -0.0, 0.0, -0.0], "masked": [-INFINITE, -INFINITE, -2.0, -1.0],
    "all masked": [-INFINITE] * 4, "NaN": [1.0, NAN, INFINITE, NAN], "infinite": [1.0, INFINITE, 2.0, INFINITE],
    "negative": [-4.0, -3.0, -3.0, -9.0],
}  # fmt: skip


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


def random_logits(count: int, vocab_size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return (4 * torch.randn(count, vocab_size, generator=torch.Generator().manual_seed(count))).to(dtype)


def noise_of(inputs: NoiseInputs, count: int, device: torch.device = DEVICE) -> DeviceNoise:
    """As a graph gets it; on a CPU, torch ranks."""
    header, keys = torch.tensor(noise_header(inputs)), torch.from_numpy(noise_keys(inputs, count))
    return device_noise(header.to(device), keys.to(device))


def assert_tokens_are_those_of_the_cpu(logits: Tensor, sampler: Sampler, positions: Sequence[int]) -> None:
    rows = LogitRows(list(positions))
    inputs = sampler.noise_inputs(rows)
    assert inputs is not None

    packed = sample_columns(noise_of(inputs, len(logits)), logits.to(DEVICE)).cpu()

    assert torch.equal(packed, pack_samples(sampler.rank(logits, rows)))


@each_row("temperature", TEMPERATURES)
@each_row("count, vocab_size", [(17, 7), (3, 1), (5, 1024)], shares=3)
def test_tokens_are_those_of_the_cpu(temperature, count, vocab_size):
    logits = random_logits(count, vocab_size)

    assert_tokens_are_those_of_the_cpu(logits, Sampler(temperature, seed=7), range(3, 3 + count))


@pytest.mark.full
@each_row("count, vocab_size", [(2, 8192), (64, 8192), (17, 8193), (1, 49152), (1, 151936)])
@each_row("temperature", TEMPERATURES[::2])
def test_tokens_of_many_rows_and_large_vocabularies_are_those_of_the_cpu(temperature, count, vocab_size):
    logits = random_logits(count, vocab_size)

    assert_tokens_are_those_of_the_cpu(logits, Sampler(temperature, seed=7), range(3, 3 + count))


@pytest.mark.full
@each_row("dtype", DTYPES)
@each_row("seed", [0, 2**31 - 1, 2**31, 2**63 - 1])
def test_seeds_and_positions_of_any_size_give_the_noise_of_the_cpu(seed, dtype):
    positions = (0, 2**31 - 1, 2**31, 2**32)

    assert_tokens_are_those_of_the_cpu(random_logits(4, 1500, dtype), Sampler(0.8, seed=seed), positions)


@pytest.mark.full
@each_row("name", ODD_ROWS)
@each_row("temperature", TEMPERATURES)
def test_ties_masks_and_broken_numbers_are_those_of_torch(temperature, name):
    logits = torch.full((2, 1030), -5.0)
    logits[1, :4] = logits[0, -4:] = torch.tensor(ODD_ROWS[name])
    logits[:, 4:-4] = -INFINITE

    inputs = Sampler(temperature, seed=1).noise_inputs(LogitRows([5, 6]))
    assert inputs is not None
    ours = sample_columns(noise_of(inputs, 2), logits.to(DEVICE))

    assert torch.equal(ours.cpu(), noise_of(inputs, 2, CPU).sample(logits))


@pytest.mark.full
@each_row("vocab_size", [1, 1000, 1024, 1025, 2000])
@each_row("temperature", [0.0, 0.8])
def test_padding_is_never_sampled(temperature, vocab_size):
    logits = random_logits(2, 2100)
    logits[:, vocab_size:] = 100

    assert_tokens_are_those_of_the_cpu(logits, Sampler(temperature, seed=3, vocab_size=vocab_size), (8, 9))


@pytest.mark.full
@each_row("count", [2, 16])
@each_row("temperature", [0.0, 0.8])
@each_row("is_reduced", [False, True])
def test_a_shortlist_has_the_tokens_and_scores_of_torch(is_reduced, temperature, count):
    logits = random_logits(3, 2500, torch.float32)
    ids = torch.arange(0, 5000, 2) if is_reduced else None
    inputs = NoiseInputs([(-5, 2**31 - 1)], temperature or 1.0, float(temperature > 0), 2400)

    ours = rank_columns(noise_of(inputs, 1), logits.to(DEVICE), count, None if ids is None else ids.to(DEVICE))
    expected = noise_of(inputs, 1, CPU).rank(logits, count, ids)

    assert torch.equal(ours.token_ids.cpu(), expected.token_ids)
    assert torch.allclose(ours.scores.cpu(), expected.scores, rtol=1e-6)
    assert torch.equal(ours.scores.cpu(), expected.scores) or not IS_INTERPRETED


def by_cpu(logits: Tensor, sampler: Sampler, count: int = 1, token_ids: Tensor | None = None) -> Tensor:
    """The tokens of the kernels in C++, which rows of this sampler get on a CPU [N, 2], or the best ones [N, count]."""
    rows = LogitRows(list(range(len(logits))), token_ids=token_ids)
    return sample_rows(logits, sampler, rows) if count == 1 else rank_rows(logits, sampler, rows, None, count).token_ids


@pytest.mark.usefixtures("native_library")
def test_what_top_k_top_p_and_min_p_keep_is_what_the_cpu_keeps():
    logits, sampler = random_logits(3, 1100), Sampler(0.9, 60, 0.9, 0.01, vocab_size=1090)

    ours = sample_by_rules(logits.to(DEVICE), sampler, LogitRows([0, 1, 2]))

    assert torch.equal(ours.cpu(), by_cpu(logits, sampler))


@pytest.mark.full
@pytest.mark.usefixtures("native_library")
@each_row("sampler", CUTS)
@each_row("size, spread", [(30, 1.0), (1000, 0.2), (5003, 1.0), (5003, 0.02)])
@each_row("dtype", [torch.float32, torch.bfloat16], shares=2)
def test_cuts_of_all_sizes_are_those_of_the_cpu(dtype, size, spread, sampler):
    """Of one column and of thousands, within equal logits too, which bfloat16 has many of."""
    logits = (random_logits(4, size, torch.float32) * spread).to(dtype)

    ours = sample_by_rules(logits.to(DEVICE), sampler, LogitRows([0, 1, 2, 3]))

    assert torch.equal(ours.cpu(), by_cpu(logits, sampler))


@pytest.mark.full
@each_row("sampler", CUTS)
@each_row("spread", [1.0, 0.1])
def test_a_cut_keeps_the_columns_of_a_complete_sort_alone_and_among_others(spread, sampler):
    logits = (random_logits(3, 2100, torch.float32) * spread).bfloat16()

    cuts = cut_rows(logits.to(DEVICE), sampler)

    ranked, order = logits.float().sort(dim=-1, descending=True, stable=True)
    ranked[:, sampler.top_k or 2100 :] = -INFINITE
    others = replace(sampler, top_k=0)  # by torch, top-k may choose any of equal logits
    kept, columns = others._truncate(ranked, 1) if others.is_truncating else (ranked, torch.arange(2100).repeat(3, 1))
    assert torch.equal(torch.cat([cut_rows(each[None].to(DEVICE), sampler) for each in logits]), cuts)
    for row in range(3):
        expected = order[row][columns[row][kept[row].isfinite()]]
        assert set(expected.tolist()) == set((ranks(logits[row]) >= cuts[row].item()).nonzero()[:, 0].tolist())


def ranks(logits: Tensor) -> Tensor:
    """`rank_of` of each column, on a CPU."""
    bits = logits.float().view(torch.int32).long()
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) << 32) | (0x7FFFFFFF - torch.arange(len(logits)))


@pytest.mark.full
@pytest.mark.usefixtures("native_library")
@each_row("sampler", [Sampler(0.8, 20, 0.8, 0.05), Sampler(1.5, top_p=0.97), Sampler(), Sampler(1.0)])
def test_drafts_in_a_reduced_vocabulary_are_ranked_as_on_a_cpu(sampler):
    logits, ids = random_logits(2, 1500, torch.float32), torch.arange(0, 3000, 2)

    ours = rank_by_rules(logits.to(DEVICE), sampler, LogitRows([0, 1], token_ids=ids.to(DEVICE)), None, 16)

    expected = by_cpu(logits, sampler, 16, ids)
    assert torch.equal(ours.token_ids.cpu()[ours.scores.cpu().isfinite()], expected[ours.scores.cpu().isfinite()])


@pytest.mark.full
@pytest.mark.usefixtures("native_library")
@each_row("temperature", [0.0, 0.8])
def test_penalties_and_a_grammar_come_before_the_cuts(temperature):
    logits, seen = random_logits(3, 1100), SeenTokens(list(range(0, 1000, 3)), 1100, CPU)
    sampler = Sampler(temperature, 50, 0.9, 0.01, 1.3, 0.4, 0.1, biases=((7, 3.0),), vocab_size=1090)
    allowed = torch.rand(3, 1100, generator=torch.Generator().manual_seed(2)) < 0.2
    rows = LogitRows([5, 6, 7], [[], [9], [9, 9]], allowed_mask=allowed)

    ours = sample_by_rules(logits.to(DEVICE), sampler, rows, seen if IS_INTERPRETED else seen_on_device())

    assert torch.equal(ours.cpu(), sample_rows(logits, sampler, rows, seen))
    assert bool(allowed.gather(1, ours.cpu()[:, :1]).all())


def seen_on_device() -> SeenTokens:
    return SeenTokens(list(range(0, 1000, 3)), 1100, DEVICE)


@pytest.mark.full
@each_row("number", [NAN, INFINITE, -INFINITE])
@each_row("sampler", CUTS)
def test_rows_of_broken_numbers_are_reported_and_others_are_not(sampler, number):
    logits = random_logits(3, 1100)
    logits[1] = number

    assert sample_by_rules(logits.to(DEVICE), sampler, LogitRows([1, 2, 3]))[:, 1].tolist() == [1, 0, 1]


def test_rows_that_are_not_side_by_side_are_read_where_they_are():
    wide = random_logits(4, 1100)
    for logits in (wide[::2, :1030], wide.T[:9]):
        packed = sample_columns(noise_of(NoiseInputs(), len(logits)), logits.to(DEVICE))
        assert torch.equal(packed[:, 0].cpu(), logits.argmax(-1))
        cuts = [cut_rows(each.to(DEVICE), Sampler(1.0, top_k=2)) for each in (logits, logits.contiguous())]
        assert torch.equal(*cuts)


def test_nothing_is_read_where_samples_are_not():
    logits = torch.full((2, 1030), NAN).to(DEVICE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", lambda *shape, **options: torch.full(shape, -7, **options))
        packed = sample_columns(noise_of(NO_NOISE, 2), logits)

    assert packed.tolist() == [[-7, -7]] * 2


def test_a_kernel_that_chooses_other_tokens_is_not_used(monkeypatch, caplog):
    chooses_as_torch.cache_clear()
    right = triton_sampling.sample_columns
    monkeypatch.setattr(triton_sampling, "sample_columns", lambda noise, logits: right(noise, logits) + 1)
    noise, logits = noise_of(NoiseInputs(), 2), random_logits(2, 1030).to(DEVICE)
    ours = TritonNoise(noise.keys, noise.temperature, noise.scale, noise.vocab_size)

    assert torch.equal(ours.sample(logits)[:, 0], logits.argmax(-1))
    assert torch.equal(ours.rank(logits, 4).token_ids, logits.float().topk(4).indices)
    assert "choose other tokens" in caplog.text
    chooses_as_torch.cache_clear()


@pytest.mark.full
@each_row("dtype", DTYPES)
def test_the_kernels_pass_their_own_test(dtype):
    assert chooses_as_torch.__wrapped__(dtype, DEVICE)
