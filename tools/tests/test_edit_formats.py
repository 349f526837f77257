"""What scripted models make of edits in each format, and what is then asked for first."""

from __future__ import annotations

import pytest

from specchat.edit.measured_formats import read_counts
from tools.edit_formats import measure_model

LINES = (12, 20, 24, 120)  # three are short: 12 edits in each format
TAKEN = 12  # one of four changes is refused without a review, in every format


@pytest.mark.parametrize(
    ("model", "good", "first"),
    [
        ("blocks", ["blocks"], "blocks"),
        ("whole", ["whole"], "whole"),
        ("region", ["region"], "region"),
        ("perfect", ["whole", "region", "blocks"], "whole"),
    ],
)
def test_a_format_that_a_model_writes_well_is_asked_for_first(model, good, first):
    rows, orders = measure_model(model, LINES, keeps=False)

    taken = {format_: (int(at_once), int(right), int(wrong)) for _, format_, _, at_once, _, right, wrong, *_ in rows}
    assert {each: (TAKEN, TAKEN, 0) if each in good else (0, 0, 0) for each in ("whole", "region", "blocks")} == taken
    assert {first} == {orders[lines][0] for lines in LINES[:3]}
    assert {} == read_counts()


def test_edits_that_are_kept_decide_about_the_next_ones():
    _rows, orders = measure_model("region", (12, 20), keeps=True)

    [counts] = read_counts().values()
    assert (6, 8) == (counts["region, short, at once"], counts["whole, short, failed"])
    assert ["region", "whole", "blocks"] == orders[12]
