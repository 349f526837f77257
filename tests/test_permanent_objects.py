"""Objects that the garbage collector does not look through."""

import gc

import pytest

from specchat.permanent_objects import collect_all, permanent_objects


class Cycle:
    freed = 0

    def __init__(self):
        self.itself = self

    def __del__(self):
        Cycle.freed += 1


@pytest.fixture(autouse=True)
def _as_before(thawing_collector: None):
    Cycle.freed = 0


def test_what_is_alive_at_the_end_of_the_block_is_not_looked_through_until_all_is():
    with permanent_objects():
        assert not gc.isenabled()
        kept = Cycle()
    del kept

    gc.collect()
    assert gc.isenabled()
    assert Cycle.freed == 0

    collect_all()
    assert Cycle.freed == 1
    assert gc.get_freeze_count() > 0


def test_a_failure_in_the_block_enables_collections_again():
    with pytest.raises(RuntimeError), permanent_objects():
        raise RuntimeError

    assert gc.isenabled()
