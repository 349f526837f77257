"""Which of the libraries of a wheel runs on a CPU, and on which systems the wheel can be installed."""

import platform
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from specchat.forward.native import native_build, native_ops
from specchat.forward.native.native_build import INSTRUCTION_SETS, PLAIN, best_in_wheel, instruction_sets
from tests.each_row import each_row

needs_the_build_backend = pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")
on_linux = pytest.mark.skipif(
    not Path("/proc/cpuinfo").exists() or platform.machine() != "x86_64", reason="not Linux x86-64"
)
CPUS = {  # the best library for each, by what torch says of the CPU
    "avx512-amx": ("AVX512", {"VNNI", "BF16", "AMX"}),
    "avx512-bf16": ("AVX512", {"VNNI", "BF16"}),
    "avx512-vnni": ("AVX512", {"VNNI"}),
    "avx512": ("AVX512", set()),
    "avx2": ("AVX2", {"VNNI"}),
    "plain": ("DEFAULT", set()),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a wheel with all libraries; they are empty."""
    monkeypatch.setattr(native_build, "FOLDER", tmp_path)
    for each in (*INSTRUCTION_SETS, PLAIN):
        (tmp_path / each.library_name()).touch()
    return tmp_path


@each_row("name", CPUS)
def test_a_cpu_gets_the_best_library_that_it_can_run(folder, name):
    assert best_in_wheel(instruction_sets(*CPUS[name])).name == name


def test_a_cpu_that_no_library_names_gets_the_plain_one(folder):
    assert instruction_sets("SVE256", {"BF16"}) == [PLAIN]


def test_no_library_needs_more_than_the_cpu_has(folder):
    for name, (capability, extensions) in CPUS.items():
        assert all(each.extensions <= extensions for each in instruction_sets(capability, extensions)), name


def test_the_next_best_library_is_used_where_the_best_one_is_missing(folder):
    (folder / INSTRUCTION_SETS[0].library_name()).unlink()

    assert best_in_wheel(instruction_sets(*CPUS["avx512-amx"])).name == "avx512-bf16"


def test_a_library_of_other_sources_is_not_used(folder, monkeypatch, tmp_path):
    source = tmp_path / "native_other.cpp"
    source.write_text("// edited")
    monkeypatch.setattr(native_build, "SOURCES", (*native_build.SOURCES, source))

    assert best_in_wheel(instruction_sets(*CPUS["avx2"])) is None


@needs_the_build_backend
@each_row(
    "needed, tag",
    [
        (b"GLIBC_2.2.5\0GLIBC_2.14\0GLIBCXX_3.4\0", "manylinux_2_17_x86_64"),
        (b"GLIBC_2.2.5\0GLIBC_2.29\0", "manylinux_2_29_x86_64"),
        (b"GLIBC_2.14\0GLIBCXX_3.4.30\0", "linux_x86_64"),
    ],
)
def test_the_wheel_names_the_oldest_system_on_which_its_libraries_load(tmp_path, needed, tag):
    from hatch_build import platform_tag

    plain, other = tmp_path / "plain.so", tmp_path / "other.so"
    plain.write_bytes(b"GLIBC_2.2.5\0")
    other.write_bytes(needed)

    assert platform_tag([plain, other]) == tag


@needs_the_build_backend
@on_linux
def test_the_installation_of_a_clone_compiles_what_torch_would_choose_here(tmp_path, monkeypatch):
    from hatch_build import compile_for_clone

    compiled = []
    monkeypatch.setattr(native_build, "find_compiler", lambda: "cc")
    monkeypatch.setattr(native_build, "compile_best_library", lambda *arguments: compiled.append(arguments))

    compile_for_clone()
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx avx2 fma\n")
    compile_for_clone(tmp_path / "cpuinfo")
    compile_for_clone(tmp_path / "no file")

    here = instruction_sets(torch.backends.cpu.get_cpu_capability(), native_ops.native_extensions())
    assert [("cc", here), ("cc", instruction_sets("AVX2", set()))] == compiled


@needs_the_build_backend
@on_linux
def test_an_installation_without_a_working_compiler_is_complete(monkeypatch):
    from hatch_build import compile_for_clone

    tried = []

    def fail(*arguments):
        tried.append(arguments)
        raise subprocess.CalledProcessError(1, "cc")

    monkeypatch.setattr(native_build, "find_compiler", lambda: "cc")
    monkeypatch.setattr(native_build, "compile_best_library", fail)

    compile_for_clone()

    assert 1 == len(tried)


@needs_the_build_backend
@on_linux
def test_a_wheel_takes_what_is_compiled_and_leaves_what_it_compiles(tmp_path, monkeypatch):
    from hatch_build import compile_for_wheel

    compiled = []

    def compile_library(_compiler, flags, library):
        compiled.append(flags)
        library.write_text(" ".join(flags))

    monkeypatch.setattr(native_build, "COMPILED_BESIDE", tmp_path / "beside")
    monkeypatch.setattr(native_build, "find_compiler", lambda: "cc")
    monkeypatch.setattr(native_build, "compile_library", compile_library)
    native_build.compile_once("cc", PLAIN)

    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        assert sorted(compile_for_wheel(folder)) == sorted(folder.iterdir())
        for each in (*INSTRUCTION_SETS, PLAIN):
            assert " ".join(each.flags) == (folder / each.library_name()).read_text()

    assert len((*INSTRUCTION_SETS, PLAIN)) == len(compiled)


@needs_the_build_backend
def test_elsewhere_building_ahead_is_refused(tmp_path, monkeypatch):
    from hatch_build import compile_for_wheel

    monkeypatch.setattr(platform, "machine", lambda: "arm64")

    with pytest.raises(OSError, match="on Linux x86_64 only"):
        compile_for_wheel(tmp_path)
