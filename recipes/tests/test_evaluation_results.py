"""An interrupted evaluation continues."""

import pytest

from recipes.evaluation_results import ResultStore

SETTINGS = {"seed": "1"}


def never() -> float:
    raise AssertionError("the figure is stored")


def test_a_stored_figure_is_not_measured_again(tmp_path):
    ResultStore(tmp_path / "f.json", SETTINGS).get_or_measure("edits", "rename", lambda: {"exact": 0.5})

    again = ResultStore(tmp_path / "f.json", SETTINGS)

    assert again.get_or_measure("edits", "rename", never) == {"exact": 0.5}
    assert again.get_or_measure("edits", "constant", lambda: 1) == 1


def test_figures_of_other_settings_are_not_used(tmp_path):
    ResultStore(tmp_path / "f.json", SETTINGS).get_or_measure("edits", "rename", lambda: 1)

    assert ResultStore(tmp_path / "f.json", {"seed": "2"}).get_or_measure("edits", "rename", lambda: 2) == 2


def test_an_interrupted_measurement_keeps_the_other_figures(tmp_path):
    def interrupted() -> None:
        raise KeyboardInterrupt

    record = ResultStore(tmp_path / "f.json", SETTINGS)
    record.get_or_measure("edits", "rename", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        record.get_or_measure("edits", "constant", interrupted)

    assert {"settings": SETTINGS, "edits": {"rename": 1}} == ResultStore(tmp_path / "f.json", SETTINGS).figures


def test_another_file_is_not_overwritten(tmp_path):
    for content in ("# Notes", "[1]"):
        (tmp_path / "notes.md").write_text(content)
        with pytest.raises(ValueError, match="no record"):
            ResultStore(tmp_path / "notes.md", SETTINGS)
        assert content == (tmp_path / "notes.md").read_text()
