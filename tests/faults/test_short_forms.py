"""Each run of tools/fault_runs with a few tries, on the embedded model or the fake engine.

Those of acp, lsp and http need plugins, whose tests have them (`test_generated_input.py`).
"""

from __future__ import annotations

from functools import cache

import pytest

from specchat.host import spawn
from tests.each_row import each_row
from tests.host.conftest import FAKE_HOST
from tests.host.test_kills import LONG_ANSWER
from tools import fault_runs

SEED = 20
TRIES = {"cancels": 1, "memory": 1, "weights": 8, "turns": 4, "kills": 1, "model_kills": 1, "host": 150, "behind": 1}
OF_PLUGINS = ("acp", "lsp", "http")
CLIENTS = 8
LOAD = ("load", 0, CLIENTS)  # of no seconds: each client makes its one request


@pytest.fixture(scope="module")
def short_runs():
    """The runs with one engine in this process, and with fake ones in others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_runs, "load_engine", cache(fault_runs.load_engine))
        patch.setattr(fault_runs, "STORY", LONG_ANSWER)
        patch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)
        yield fault_runs.RUNS


def test_each_run_has_a_short_form():
    assert {*TRIES, *OF_PLUGINS, LOAD[0]} == set(fault_runs.RUNS)


@each_row("run, count, tries", [*((run, count, count) for run, count in TRIES.items()), LOAD])
def test_the_short_form_of_a_run_finds_nothing_and_counts_its_tries(short_runs, run, count, tries):
    row = short_runs[run](count, SEED)

    assert row.is_good, row
    assert tries == row.count
