"""The memory of each process, in the inspector."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from specchat import process_memory
from specchat.drawing.glyphs import ASCII, UNICODE
from specchat.process_memory import resident_bytes
from specchat.tui import inspector_controller
from specchat.tui.inspector_controller import memory_line

has_table = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system keeps no such table")
UNUSED_PID = 2**22 + 1  # above the largest id that a process can have


@has_table
def test_this_process_uses_what_the_system_reports():
    status = Path("/proc/self/status").read_text()
    kilobytes = int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    assert resident_bytes(os.getpid()) == pytest.approx(1024 * kilobytes, rel=0.2)


def test_a_process_that_has_ended_has_no_memory():
    assert resident_bytes(UNUSED_PID) is None


def test_both_processes_stand_in_one_line(monkeypatch):
    sizes = {os.getpid(): 92 * 2**20, 77: 1.25 * 2**30}
    monkeypatch.setattr(inspector_controller, "resident_bytes", sizes.get)

    assert "memory of the screen 92M · of the engine process 1.2G" == memory_line(77, UNICODE)
    assert "memory of the screen 92M - of the engine process 1.2G" == memory_line(77, ASCII)
    assert "memory of the screen 92M" == memory_line(0, UNICODE) == memory_line(UNUSED_PID, UNICODE)


def test_without_reports_of_the_system_the_line_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(process_memory, "PROC", tmp_path)

    assert "" == memory_line(os.getpid(), UNICODE)


@has_table
def test_the_inspector_shows_the_memory_of_each_process(run_on_screen):
    async def scenario(driver):
        await driver.ask("guess 3")
        await driver.wait_until(lambda: driver.chat.presenter.engine_pid)
        await driver.press("f3")
        await driver.wait_for_text("memory of the screen ")

        assert re.search(r"memory of the screen [\d.]+[MG] · of the engine process [\d.]+[MG]", driver.shown)
        assert os.getpid() != driver.chat.presenter.engine_pid

    run_on_screen(scenario)


@pytest.mark.full
def test_without_a_table_the_inspector_has_no_such_line(run_on_screen, monkeypatch, tmp_path):
    monkeypatch.setattr(process_memory, "PROC", tmp_path)

    async def scenario(driver):
        await driver.ask("guess 3")
        await driver.press("f3")
        await driver.wait_for_text("drafted ")

        assert "memory of" not in driver.shown

    run_on_screen(scenario)
