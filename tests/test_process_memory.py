"""The resident memory of a process, as the system reports it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from specchat import process_memory
from specchat.process_memory import mapped_bytes, own_bytes, resident_bytes, with_growth

UNUSED_PID = 2**22 + 1  # above the largest id that a process can have


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system keeps no such table")
def test_this_process_uses_what_the_system_reports():
    status = Path("/proc/self/status").read_text()
    kilobytes = int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    assert resident_bytes(os.getpid()) == pytest.approx(1024 * kilobytes, rel=0.2)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system keeps no such table")
def test_what_something_takes_is_measured_without_what_its_making_needed():
    size = 2**26

    def make() -> bytearray:
        return [bytearray(size), bytearray(size)].pop()

    made, growth = with_growth(make)

    assert len(made) == size
    assert growth == pytest.approx(size, rel=0.2)
    assert own_bytes() + mapped_bytes() == pytest.approx(resident_bytes(os.getpid()), rel=0.2)


def test_a_process_that_has_ended_has_no_memory_nor_has_one_on_another_system(monkeypatch, tmp_path):
    assert resident_bytes(UNUSED_PID) is None
    monkeypatch.setattr(process_memory, "PROC", tmp_path)
    assert resident_bytes(os.getpid()) is None
