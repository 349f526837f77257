"""The content of the wheel: everything that the program needs, and nothing else."""

from __future__ import annotations

import platform
import site
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from specchat import __version__
from specchat.forward.native.native_build import find_compiler
from tests.each_row import each_row
from tools import try_wheel
from tools.try_wheel import (
    REQUIRED,
    ROOT,
    Use,
    WheelError,
    build_wheel,
    content_faults,
    expected_names,
    kernel_names,
    use_kernels,
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


@pytest.mark.full
def test_the_wheel_holds_what_belongs_into_it(tmp_path, expected):
    with zipfile.ZipFile(built(tmp_path)) as archive:
        assert content_faults(archive.namelist(), expected) == []


@pytest.mark.full
@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64") or find_compiler() is None,
    reason="kernels are built ahead on Linux x86-64, by a C++ compiler",
)
def test_a_wheel_with_kernels_computes_the_same_bits_where_no_compiler_is(tmp_path, expected):
    wheel = built(tmp_path, has_kernels=True)
    with zipfile.ZipFile(wheel) as archive:
        assert content_faults(archive.namelist(), expected | kernel_names()) == []
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for folder in (tmp_path / "venv" / "lib").glob("python*/site-packages"):
        (folder / "dependencies.pth").write_text("\n".join(site.getsitepackages()))  # of the environment of the tests

    assert use_kernels(python.with_name("specchat"), tmp_path / "home") == []


def built(folder: Path, has_kernels: bool = False) -> Path:
    pytest.importorskip("pip", reason="pip builds the wheel")
    try:
        return build_wheel(folder, has_kernels)
    except WheelError as error:
        if "hatchling" not in str(error):
            raise
        pytest.skip(f"the build backend cannot be installed here: {error}")
