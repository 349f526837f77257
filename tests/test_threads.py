"""How many threads a model is given."""

import pytest

from specchat.threads import SMALL_BYTES, threads_for


@pytest.mark.parametrize(("weights", "threads"), [(SMALL_BYTES - 1, 1), (SMALL_BYTES, 6)])
def test_a_small_model_is_given_one_thread(weights, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert threads == threads_for(weights, usual=6)


def test_who_says_how_many_is_obeyed(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")

    assert 4 == threads_for(1000, usual=4)
