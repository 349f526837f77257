"""The KV cache: commit, rollback, allocation and offloading."""

from contextlib import ExitStack

import pytest
import torch

from specchat.engine.cache import KVCache, KVLayout, KVPool, Slot
from specchat.engine.cache_sizes import bucket_of, slot_rows
from specchat.errors import CacheError
from tests.each_row import each_row

LAYOUT = KVLayout(((2, 3, 3), (2, 3, 5)), torch.float32, torch.device("cpu"))


def rows_of(values: list[float], size: int) -> torch.Tensor:
    return torch.tensor(values)[None, None, :, None].expand(1, 2, -1, size)


def put(cache: KVCache, values: list[float]) -> None:
    """Write one row per value in every layer, as a pass does."""
    for layer, (_heads, key, value) in enumerate(LAYOUT.shapes):
        cache.write(layer, rows_of(values, key), rows_of(values, value) + 100)


def committed_values(cache: KVCache) -> list[float]:
    """The values of the committed rows; all layers must agree."""
    keys = [layer[0][0, :, : cache.length, :] for layer in cache.require_slot().layers]
    values = [layer[1][0, :, : cache.length, :] - 100 for layer in cache.require_slot().layers]
    rows = [entry[0, :, 0].tolist() for entry in keys + values]
    assert all(row == rows[0] for row in rows)
    return rows[0]


@pytest.fixture
def pool() -> KVPool:
    return KVPool(LAYOUT, slots=2)


@pytest.fixture
def cache_of_five(pool):
    cache = pool.open()
    with pool.acquire_slot(cache, 100):
        put(cache, [0, 1, 2, 3, 4])
        cache.commit([0, 1, 2, 3, 4])
        yield cache


def test_commit_keeps_the_path_and_closes_the_gaps(cache_of_five):
    put(cache_of_five, [10, 11, 12])

    cache_of_five.commit([0, 2])

    assert committed_values(cache_of_five) == [0, 1, 2, 3, 4, 10, 12]
    assert cache_of_five.length == 7


def test_a_long_scattered_path_keeps_its_order(cache_of_five):
    put(cache_of_five, [float(10 + i) for i in range(8)])

    cache_of_five.commit([0, 1, 3, 4, 7])

    assert committed_values(cache_of_five)[5:] == [10, 11, 13, 14, 17]


def test_rollback_forgets_the_end_only(cache_of_five):
    cache_of_five.rollback(3)
    cache_of_five.rollback(9)

    assert committed_values(cache_of_five) == [0, 1, 2]


def test_a_pass_attends_to_committed_rows_and_its_own(cache_of_five):
    keys, _values = cache_of_five.write(0, rows_of([7, 8], 3), rows_of([7, 8], 3))

    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 7, 8]


@each_row("length, bucket", [(1, 1024), (1024, 1024), (1025, 2048), (5000, 8192)])
def test_buckets_are_powers_of_two(length, bucket):
    assert bucket_of(length) == bucket


@each_row("rows, slot", [(1, 1280), (1280, 1280), (1281, 2304), (8192 + 256, 8192 + 256)])
def test_a_slot_has_a_length_bucket_and_scratch_rows(rows, slot):
    assert slot_rows(rows) == slot


def test_a_row_costs_what_the_layout_says():
    assert Slot(LAYOUT, 10).bytes == 10 * (2 * 6 + 2 * 8) * 4
    assert sum(stack.numel() * 4 for stack in Slot(LAYOUT, 10).stacks.values()) == Slot(LAYOUT, 10).bytes


def test_growth_keeps_the_rows(pool, cache_of_five):
    pool._entries[cache_of_five].pins = 0  # the turn is over

    with pool.acquire_slot(cache_of_five, 3000):
        assert cache_of_five.require_slot().rows == 4096 + 256
        assert committed_values(cache_of_five) == [0, 1, 2, 3, 4]


def filled(pool: KVPool, value: float) -> KVCache:
    cache = pool.open()
    with pool.acquire_slot(cache, 10):
        put(cache, [value, value])
        cache.commit([0, 1])
    return cache


def test_caches_without_a_slot_are_offloaded_and_restored(pool):
    caches = [filled(pool, float(value)) for value in range(4)]

    assert [cache.slot is not None for cache in caches] == [False, False, True, True]
    assert pool.bytes == 2 * slot_rows(10) * LAYOUT.bytes_per_row + 2 * 2 * LAYOUT.bytes_per_row  # slots, offloaded
    for value, cache in enumerate(caches):
        with pool.acquire_slot(cache, 10):
            assert committed_values(cache) == [value, value]


def test_without_host_memory_the_oldest_cache_is_dropped():
    pool = KVPool(LAYOUT, slots=1, offload_bytes=0)
    first = filled(pool, 1.0)

    filled(pool, 2.0)

    assert first.length == 0


def test_the_cache_of_a_running_turn_is_never_offloaded(pool):
    running = [pool.open() for _ in range(5)]
    with ExitStack() as turns:
        for each in running:
            turns.enter_context(pool.acquire_slot(each, 10))

        filled(pool, 1.0)

        assert all(each.slot for each in running)
    assert sum(each.slot is not None for each in running) <= pool.slots


BOTH = 2 * slot_rows(10) * LAYOUT.bytes_per_row  # the memory of two turns


def test_a_turn_without_room_waits_for_the_end_of_another():
    pool = KVPool(LAYOUT, budget_bytes=BOTH)
    first, second, third = pool.open(), pool.open(), pool.open()
    with pool.acquire_slot(first, 10):
        with pool.acquire_slot(second, 10):
            waiting = pool.wait_for_room(third, 10)
            assert [next(waiting, "room") for _ in range(3)] == [None] * 3
        assert next(waiting, "room") == "room"
        with pool.acquire_slot(third, 10):
            assert second.slot is None
            assert pool.bytes <= BOTH


def test_a_short_turn_does_not_overtake_a_long_one_but_an_urgent_one_does():
    pool = KVPool(LAYOUT, budget_bytes=BOTH)
    running, long, short, urgent = (pool.open() for _ in range(4))
    with pool.acquire_slot(running, 10):
        waiting = pool.wait_for_room(long, 2000), pool.wait_for_room(short, 10)
        assert [next(each, "room") for each in waiting] == [None, None]
        assert next(pool.wait_for_room(urgent, 10, is_urgent=True), "room") == "room"
        waiting[0].close()  # cancelled
        assert next(waiting[1], "room") == "room"


def test_a_turn_that_no_other_one_hinders_does_not_wait_also_if_it_is_too_long():
    pool = KVPool(LAYOUT, budget_bytes=BOTH)
    filled(pool, 1.0)

    assert next(pool.wait_for_room(pool.open(), 10_000), "room") == "room"


def test_rows_beyond_the_budget_are_refused_with_the_numbers():
    pool = KVPool(LAYOUT, budget_bytes=2000 * LAYOUT.bytes_per_row)

    with pytest.raises(CacheError, match=r"limits\.context"), pool.acquire_slot(pool.open(), 3000):
        pass


def test_the_budget_offloads_before_it_refuses():
    pool = KVPool(LAYOUT, slots=4, budget_bytes=1280 * LAYOUT.bytes_per_row)
    first = filled(pool, 1.0)

    filled(pool, 2.0)

    assert first.slot is None
    assert pool.bytes <= 1280 * LAYOUT.bytes_per_row


def test_a_closed_cache_frees_its_rows(pool):
    cache = filled(pool, 1.0)

    pool.close(cache)

    assert pool.bytes == 0
