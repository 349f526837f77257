"""The tool prints a row for each format: its bits, the time of one row, and others by it, beside what bounds them."""

import sys

import pytest

from tools import packed_products


@pytest.mark.usefixtures("native_library")
def test_each_format_has_a_line_with_its_bits_a_time_and_the_cost_of_more_rows(monkeypatch, capsys):
    options = ["--shapes", "256x64,512x32", "--formats", "Q4_0,Q6_K", "--rows", "1,3", "--mib", "0", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["packed_products", *options])

    packed_products.main()

    _head, _names, _rule, *lines = capsys.readouterr().out.splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    assert [row[:2] for row in cells] == [["Q4_0", "4.50"], ["Q6_K", "6.56"]]
    assert all(float(number) >= 0 for row in cells for number in row[2:]) and len(cells[0]) == 5


def test_more_rows_cost_as_much_as_multiplying_or_as_reading_the_weights():
    blocks_per_second = 4e9 * packed_products.PER_CYCLE / 160  # in which eight rows of Q4_0 are multiplied
    weights_per_second = blocks_per_second * packed_products.BLOCK_WEIGHTS

    assert 1.0 == packed_products.bound("Q4_0", 4, weights_per_second, ghz=4.0, threads=1)
    assert 1.0 == packed_products.bound("Q4_0", 8, weights_per_second, ghz=4.0, threads=1)
    assert 2.0 == packed_products.bound("Q4_0", 16, weights_per_second, ghz=4.0, threads=1)
