"""The content of the wheel: everything that the program needs, and nothing else. `.ci/run` builds and uses wheels."""

from __future__ import annotations

import subprocess

import pytest

from specchat import __version__
from tests.each_row import each_row
from tools import try_wheel
from tools.try_wheel import (
    REQUIRED,
    ROOT,
    Use,
    content_faults,
    expected_names,
)

METADATA = f"specchat-{__version__}.dist-info/METADATA"


@pytest.fixture(scope="module")
def expected() -> set[str]:
    if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this is no clone: git lists what belongs into the wheel")
    return expected_names()


def test_heads_plugins_of_editors_catalog_profiles_and_c_sources_belong_into_the_wheel(expected):
    assert set(REQUIRED) <= expected


def test_tests_tools_recipes_and_figures_do_not(expected):
    others = {name for name in expected if not name.startswith("specchat/")}

    assert others == set()
    assert not [name for name in expected if "/curves/" in name or name.endswith((".svg", ".csv"))]


def test_a_missing_file_and_one_too_many_are_named(expected):
    names = {*expected, METADATA, "specchat/notes.txt"} - {"specchat/hub/catalog.toml"}

    assert content_faults(names, expected) == ["missing: specchat/hub/catalog.toml", "not expected: specchat/notes.txt"]
    assert content_faults({*expected, METADATA}, expected) == []


def test_the_version_stands_in_one_file(expected):
    build = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert 'dynamic = ["version"]' in build and f'version = "{__version__}"' not in build


@each_row("output, fault", [("specchat 0", ""), ("", "specchat --version: '.' is not in its output ''")])
def test_a_use_needs_an_output(output, fault, monkeypatch, tmp_path):
    monkeypatch.setattr(try_wheel, "_run", lambda *_, **__: output)

    assert Use(("/x/specchat", "--version")).fault({}, tmp_path) == fault


def test_a_use_that_fails_is_a_fault(tmp_path):
    fault = Use(("python3", "-c", "import sys; sys.exit('no model')")).fault({}, tmp_path)

    assert "exit code 1: no model" in fault
