"""The KV arena: slots at one address for life, which move, park and refuse with numbers."""

from contextlib import suppress

import pytest
import torch

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.cache_sizes import SPARE_ROWS, arena_rows
from specchat.engine.kv_arena import KVArena
from specchat.errors import CacheError, ModelError
from tests.each_row import each_row
from tests.engine.test_cache import LAYOUT, committed_values, put


def arena_pool(rows: int = 2048, layout: KVLayout = LAYOUT) -> KVPool:
    return KVPool(layout, slots=3, arena=KVArena(layout, rows))


def filled(pool: KVPool, values: list[float], rows: int = 300) -> KVCache:
    cache = pool.open()
    with pool.acquire_slot(cache, rows):
        put(cache, values)
        cache.commit(list(range(len(values))))
    return cache


def first_rows(*caches: KVCache) -> list[int | None]:
    return [cache.slot.first_row if cache.slot else None for cache in caches]


def test_slots_are_ranges_of_the_arena_in_whole_steps():
    pool = arena_pool()
    one, other = filled(pool, [1, 2, 3]), filled(pool, [4, 5])

    assert first_rows(one, other) == [0, 512]
    assert pool.arena is not None
    assert pool.arena.layers[0][0][0, 0, :3, 0].tolist() == [1, 2, 3]
    assert pool.arena.layers[1][0][0, 0, 512:514, 0].tolist() == [4, 5]


def test_no_memory_is_allocated_beside_the_arena():
    pool = arena_pool()
    held = pool.bytes

    filled(pool, [1])

    assert held == pool.bytes == (2048 + SPARE_ROWS) * LAYOUT.bytes_per_row


def test_a_closed_slot_is_used_again_and_holds_zeros():
    pool = arena_pool(512)
    pool.close(filled(pool, [float("nan")] * 9))

    assert pool.arena is not None
    assert not any(stack.any() for stack in pool.arena.stacks.values())
    assert first_rows(filled(pool, [1])) == [0]


def test_a_gap_closes_when_a_slot_does_not_fit_behind_the_others():
    pool = arena_pool()
    one, other, last = (filled(pool, [value, value + 1]) for value in (10.0, 20.0, 30.0))
    pool.close(one)

    wide = filled(pool, [7.0], rows=1024)

    assert first_rows(other, last, wide) == [0, 512, 1024]
    assert [committed_values(each) for each in (other, last, wide)] == [[20, 21], [30, 31], [7]]


def test_the_slot_of_a_running_turn_moves_between_its_steps():
    pool = arena_pool(1536)
    one = filled(pool, [1])
    running = pool.open()
    with pool.acquire_slot(running, 512):
        put(running, [2, 3])
        running.commit([0, 1])
        pool.close(one)
        filled(pool, [4], rows=1024)

        assert first_rows(running) == [0]
        assert committed_values(running) == [2, 3]


def test_a_slot_grows_where_it_is():
    pool = arena_pool()
    first, last = filled(pool, [9]), filled(pool, [1, 2])

    with pool.acquire_slot(last, 1500):
        assert first_rows(first, last) == [0, 512]
        assert last.require_slot().rows == 1536
        assert committed_values(last) == [1, 2]


def test_a_slot_that_cannot_grow_where_it_is_goes_behind_the_others():
    pool = arena_pool()
    first, last = filled(pool, [1, 2]), filled(pool, [3])

    with pool.acquire_slot(first, 1500):
        assert first_rows(last, first) == [0, 512]
        assert [committed_values(each) for each in (first, last)] == [[1, 2], [3]]


def test_an_idle_slot_is_parked_where_the_arena_is_full():
    pool = arena_pool(1024)
    idle = filled(pool, [1, 2])

    long = filled(pool, [3], rows=1000)

    assert first_rows(idle, long) == [None, 0]
    with pool.acquire_slot(idle, 300):
        assert committed_values(idle) == [1, 2]
        assert first_rows(long) == [None]


def test_more_rows_than_the_arena_has_are_refused_with_the_numbers():
    pool = arena_pool(1024)

    with pytest.raises(CacheError, match=r"1500 rows takes .* MiB, more than .* MiB; lower limits\.context"):
        filled(pool, [1], rows=1500)


def test_rows_beside_a_running_turn_are_refused_with_the_numbers():
    pool = arena_pool(1024)
    running = pool.open()

    with pool.acquire_slot(running, 1000), pytest.raises(CacheError, match="more than is left"):
        filled(pool, [1])


def test_numbers_that_are_not_finite_reach_no_other_text():
    pool = arena_pool()
    broken = pool.open()
    with suppress(ModelError), pool.acquire_slot(broken, 300):
        put(broken, [float("nan")])
        raise ModelError("the model computes numbers that are not finite")

    assert pool.arena is not None
    assert not any(stack.isnan().any() for stack in pool.arena.stacks.values())
    assert broken.length == 0
    filled(pool, [1])


def test_an_arena_has_room_for_a_full_context_and_a_short_text_beside_it():
    pool = KVPool(LAYOUT, arena=KVArena(LAYOUT, arena_rows(3000)))

    full, short = filled(pool, [1], rows=3000 + 256), filled(pool, [2], rows=1024 + 256)

    assert None not in first_rows(full, short)


@each_row("rows", [1, 256, 257, 2048])
def test_a_slot_has_the_asked_rows_and_never_more_than_the_arena(rows):
    slot_rows = KVArena(KVLayout(((1, 1, 1),), torch.float32, torch.device("cpu")), 2048).slot_rows(rows)

    assert rows <= slot_rows <= 2048


def test_a_turn_waits_while_those_that_run_fill_the_arena():
    pool = arena_pool(2048)
    first, second, third = pool.open(), pool.open(), pool.open()
    with pool.acquire_slot(first, 1024):
        with pool.acquire_slot(second, 512):
            waiting = pool.wait_for_room(third, 1024)
            assert [next(waiting, "room") for _ in range(2)] == [None] * 2
        assert next(waiting, "room") == "room"
        with pool.acquire_slot(third, 1024):
            assert first_rows(first, third) == [0, 1024]
