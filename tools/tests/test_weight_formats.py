"""The tool prints a line for each format of the weights, with a cost for each number of rows."""

import sys

from tools import weight_formats


def test_each_format_has_a_line_with_the_costs_of_its_passes(monkeypatch, capsys):
    options = ["--target", "embedded", "--weights", "float,int8", "--rows", "1,3", "--context", "8", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["weight_formats", *options])

    weight_formats.main()

    head, _rule, *lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert ["weights", "t(1) ms", "c(3)"] == head
    assert ["float", "int8"] == [line[0] for line in lines]
    assert all(float(cost) > 0 for line in lines for cost in line[1:])
