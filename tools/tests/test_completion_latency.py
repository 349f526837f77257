"""The measurement of ghost text: where it asks, and what its table says."""

from __future__ import annotations

import pytest

from specchat.errors import InputError
from tools.completion_latency import Measured, cursors, row

TEXT = "import json\n\ndef f(a):\n    return a + 1\n\n\nx = 1\ny = 2\n"


def test_the_cursor_stands_after_each_word_of_lines_that_are_not_typed_to_their_end():
    found = list(cursors(TEXT, 4))

    assert [each.prefix.rpartition("\n")[2] for each in found] == ["x", "x =", "x = 1", "y", "y =", "y = 2"]
    assert found[0].prefix == TEXT[: TEXT.index("x = 1") + 1]
    assert found[0].suffix == "\ny = 2\n"


def test_a_short_file_is_refused():
    with pytest.raises(InputError, match="needs 40 lines"):
        list(cursors(TEXT, 20))


def test_a_row_has_the_median_and_the_95th_percentile():
    measured = [Measured(number / 1000, 30, 100, 90) for number in range(1, 101)]

    assert row("warm", measured) == "| warm | 100 | 10 | 30.0 | 50 ms | 95 ms |"


def test_a_request_is_warm_when_only_what_was_typed_is_new():
    assert Measured(0.1, 30, 1000, 997).is_warm
    assert not Measured(0.1, 30, 1000, 500).is_warm
    assert not Measured(1.7, 0, 0, 0).is_warm  # it ended before the text was processed
