"""The stop watch reads the moments of a demo from what it prints, and its page has each step."""

from __future__ import annotations

import sys

import pytest

from tools.first_minute import StopWatch, page, time_demo

DEMO = """
import sys
print("starter: 93 MB", file=sys.stderr)
print("question 1 of 2: a question", file=sys.stderr, flush=True)
print("an answer", flush=True)
print("question 2 of 2: a question", file=sys.stderr)
print("more" * 100_000)
"""


def test_the_moments_of_a_demo_are_in_their_order():
    times = time_demo([sys.executable, "-c", DEMO], {})

    assert 0 < times.downloaded <= times.end
    assert 0 < times.first_token <= times.end


def test_a_demo_that_fails_ends_the_watch():
    with pytest.raises(SystemExit, match="ended with 3"):
        time_demo([sys.executable, "-c", f"{DEMO}\nsys.exit(3)"], {})


def test_the_page_has_each_step_and_the_load():
    watch = StopWatch()
    with watch.step("install"):
        pass

    written = page({**watch.seconds, "download": 12.34}, "1.0 before and 2.0 after", {})

    assert "| download | 12.3 |" in written
    assert "| install | 0.0 |" in written
    assert "load 1.0 before and 2.0 after" in written


def test_the_page_has_the_times_of_an_earlier_commit_beside_those_of_today():
    written = page({"install": 1.0, "compile": 2.0, "download": 12.34}, "1.0", {"install": 3.0, "download": 45.67})

    assert "| step | seconds | before |" in written
    assert "| compile | 2.0 |  |" in written
    assert "| download | 12.3 | 45.7 |" in written
