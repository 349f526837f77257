"""The sampling kernels choose the tokens of a CPU, bit by bit; on machines without a GPU, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.engine.sampling import NO_NOISE, DeviceNoise, LogitRows, NoiseInputs, Sampler, pack_samples
from specchat.forward.cuda import triton_sampling
from specchat.forward.cuda.cuda_graphs import device_noise, noise_header, noise_keys
from specchat.forward.cuda.triton_sampling import TritonNoise, chooses_as_torch, rank_columns, sample_columns
from tests.each_row import each_row
from tests.triton_interpreter import DEVICE, IS_INTERPRETED, interpreted_kernels

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TEMPERATURES = (0.0, 0.2, 0.8, 1.5)
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


def test_rows_that_are_not_side_by_side_are_read_where_they_are():
    wide = random_logits(4, 1100)
    for logits in (wide[::2, :1030], wide.T[:9]):
        packed = sample_columns(noise_of(NoiseInputs(), len(logits)), logits.to(DEVICE))
        assert torch.equal(packed[:, 0].cpu(), logits.argmax(-1))


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
