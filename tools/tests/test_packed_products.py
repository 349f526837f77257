"""The tool prints a line for each format, with the bits that it takes."""

import sys

import pytest

from tools import packed_products


@pytest.mark.usefixtures("native_library")
def test_each_format_has_a_line_with_its_bits_and_a_time_for_each_count_of_rows(monkeypatch, capsys):
    options = ["--shape", "256x64", "--formats", "Q4_0,Q6_K", "--rows", "1,3", "--mib", "0", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["packed_products", *options])

    packed_products.main()

    _head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["Q4_0", "4.50"], ["Q6_K", "6.56"]]
    assert all(float(time) > 0 for line in lines for time in line.split()[5:]) and len(lines[0].split()) == 7
