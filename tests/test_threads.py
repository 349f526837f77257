"""The number of threads of a model, and when the watchdog reduces it."""

import os

import pytest

from specchat.threads import (
    FIRST_WAIT_SECONDS,
    MAX_WAIT_SECONDS,
    MIN_PASSES,
    SMALL_MODEL_BYTES,
    ThreadWatchdog,
    threads_for,
    use_passive_waiting,
)
from tests.each_row import each_row


@each_row("weights, threads", [(SMALL_MODEL_BYTES - 1, 1), (SMALL_MODEL_BYTES, 6)])
def test_a_small_model_gets_one_thread(weights, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert threads == threads_for(weights, default_threads=6)


def test_a_number_of_threads_that_the_user_sets_is_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")

    assert 4 == threads_for(1000, default_threads=4)


class Machine:
    """A simulated machine: the time of a pass depends on the number of threads; the clock is simulated."""

    def __init__(self, most: int = 4) -> None:
        self.seconds = dict.fromkeys(range(1, most + 1), 1.0)
        self.now, self.threads, self.changes = 0.0, most, []
        self.watchdog = ThreadWatchdog(most, lambda: self.threads, self.use, lambda: self.now)

    def use(self, threads: int) -> None:
        """Set the number of threads."""
        self.threads = threads
        self.changes.append(threads)

    def answer(self, passes: int = MIN_PASSES, kind: str = "plain") -> int:
        """Run one answer; returns the number of threads that computed it."""
        with self.watchdog.answering():
            threads = self.watchdog.threads
            for _ in range(passes):
                self.watchdog.record_pass(kind, self.seconds[threads])
        return threads

    def is_busy(self, **seconds: float) -> None:
        """Set the time of later passes, by threads: `four=3.0`."""
        self.seconds |= {{"one": 1, "two": 2, "four": 4}[name]: each for name, each in seconds.items()}


@pytest.fixture
def machine():
    machine = Machine()
    machine.answer()
    return machine


def test_the_wait_policy_is_set_unless_the_user_sets_it(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("GOMP_SPINCOUNT", "")
    monkeypatch.delenv("GOMP_SPINCOUNT")

    use_passive_waiting()

    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert 0 < int(os.environ["GOMP_SPINCOUNT"]) < 100_000


def test_an_idle_machine_keeps_all_threads(machine):
    assert [4, 4, 4] == [machine.answer() for _ in range(3)]
    assert not machine.changes


def test_slow_passes_halve_the_threads_of_the_next_answer(machine):
    machine.is_busy(four=3.0, two=1.4)

    assert [4, 2, 2] == [machine.answer() for _ in range(3)]
    assert [2] == machine.changes


def test_passes_that_stay_slow_halve_the_threads_again(machine):
    machine.is_busy(four=5.0, two=3.0, one=2.0)

    assert [4, 2, 1, 1] == [machine.answer() for _ in range(4)]


def test_threads_are_restored_after_a_wait(machine):
    machine.is_busy(four=3.0, two=1.4)
    machine.answer()
    machine.answer()
    machine.is_busy(four=1.0)
    machine.now += FIRST_WAIT_SECONDS

    assert [4, 4, 4] == [machine.answer() for _ in range(3)]
    assert [2, 4] == machine.changes


def test_fewer_threads_without_improvement_are_undone_at_once_and_not_tried_soon(machine):
    machine.is_busy(four=3.0, two=3.0)

    assert [4, 2, 4, 4, 4] == [machine.answer() for _ in range(5)]
    machine.now += 2 * FIRST_WAIT_SECONDS
    assert [2, 4] == [machine.answer() for _ in range(2)]


def test_failed_attempts_double_the_wait_up_to_a_limit(machine):
    machine.is_busy(four=3.0, two=1.4)
    waited = []
    for _ in range(7):
        while machine.watchdog.threads == 4:
            machine.answer()
        since = machine.now
        while machine.watchdog.threads == 2:
            machine.now += 1
            machine.answer()
        waited.append(machine.now - since)

    assert [FIRST_WAIT_SECONDS * 2**times for times in range(5)] + [MAX_WAIT_SECONDS] * 2 == waited


def test_an_idle_time_resets_the_wait(machine):
    for _ in range(2):
        machine.is_busy(four=3.0, two=1.4)
        machine.answer()
        machine.answer()
        machine.now += FIRST_WAIT_SECONDS  # would be too early, had the first wait been doubled and kept
        machine.is_busy(four=1.0)
        assert 4 == machine.answer()
        machine.answer()


def test_a_few_slow_passes_are_a_stall(machine):
    machine.is_busy(four=9.0)
    machine.answer(passes=MIN_PASSES - 1)
    machine.is_busy(four=1.0)

    assert [4, 4] == [machine.answer() for _ in range(2)]


def test_passes_are_compared_with_passes_of_their_kind(machine):
    machine.is_busy(four=9.0)

    assert [4, 4, 4] == [machine.answer(kind="over many rows") for _ in range(3)]


def test_threads_do_not_change_during_an_answer(machine):
    machine.is_busy(four=3.0, two=1.4)
    with machine.watchdog.answering():
        assert [4, 4, 4] == [machine.answer() for _ in range(3)]

    assert 2 == machine.answer()


def test_one_thread_is_the_minimum():
    machine = Machine(most=1)
    machine.answer()
    machine.is_busy(one=9.0)

    assert [1, 1, 1] == [machine.answer() for _ in range(3)]
    assert not machine.changes


def test_a_number_that_other_code_set_is_left_alone(machine):
    machine.threads = 1
    machine.is_busy(four=3.0)
    machine.answer()
    machine.answer()

    assert not machine.changes
