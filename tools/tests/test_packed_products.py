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


def test_more_rows_take_as_long_as_their_dot_products_or_as_reading_the_weights():
    second_of_products = int(packed_products.PAIRS * packed_products.PRODUCTS_PER_CYCLE * 4e9)

    assert 1.0 == packed_products.bound(2, second_of_products, seconds=4.0, ghz=4.0, threads=1)
    assert 2.0 == packed_products.bound(8, second_of_products, seconds=4.0, ghz=4.0, threads=1)
