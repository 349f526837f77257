"""A row in 8 bits is near its numbers, and does not depend on the rows beside it."""

import torch

from specchat.engine.cache import KVLayout, KVPool
from specchat.engine.cache_sizes import SCALE_BYTES
from specchat.engine.int8_rows import dequantize_rows, quantize_rows

ROWS = torch.randn(2, 3, 5, 12, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 3, 5)[:, None]


def test_a_number_is_at_most_half_a_step_away():
    steps = ROWS.abs().amax(-1, keepdim=True) / 127

    assert ((dequantize_rows(quantize_rows(ROWS), ROWS.dtype) - ROWS).abs() <= 0.501 * steps).all()


def test_a_row_has_the_same_bits_in_every_batch():
    stored = quantize_rows(ROWS)

    assert torch.equal(stored[:, :, 3:4], quantize_rows(ROWS[:, :, 3:4]))
    assert torch.equal(dequantize_rows(stored, ROWS.dtype)[:, :, 3:4], dequantize_rows(stored[:, :, 3:4], ROWS.dtype))


def test_a_row_of_zeros_stays_zero_and_a_number_that_is_not_finite_stays_noticed():
    rows = torch.zeros(3, 4)
    rows[1, 2], rows[2, 2] = float("inf"), float("nan")

    zeros, *others = dequantize_rows(quantize_rows(rows), torch.float32)

    assert not zeros.any()
    assert not any(each.isfinite().all() for each in others)


def test_a_cache_in_8_bits_commits_offloads_and_restores_the_bits_of_its_rows():
    layout = KVLayout(((3, 12, 12),), torch.float32, torch.device("cpu"), is_int8=True)
    pool, keys, values = KVPool(layout, slots=1), ROWS[:1], ROWS[1:]
    cache, other = pool.open(), pool.open()
    with pool.acquire_slot(cache, 10):
        seen, _values = cache.write(0, keys, values)
        cache.commit([0, 2, 4])
    with pool.acquire_slot(other, 10):
        assert cache.slot is None
    with pool.acquire_slot(cache, 10):
        [stored] = cache.require_slot().stacks.values()

        assert torch.equal(stored[0, :, :3], quantize_rows(keys[0, :, [0, 2, 4]]))
        assert torch.equal(seen, dequantize_rows(quantize_rows(keys), torch.float32))
        assert layout.bytes_per_row == 3 * 2 * (12 + SCALE_BYTES)
