"""The native kernels come with the wheel, or are compiled once, with any C++ compiler; they are optional."""

import re
import stat
from pathlib import Path

import pytest
import torch

from specchat.devices import KERNELS_VARIABLE, NO_KERNELS
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.forward.fused_ops import AttentionDimensions, NativeOps, TorchOps, select_fused_ops
from specchat.forward.native import native_build, native_ops
from specchat.forward.native.native_build import INSTRUCTION_SETS, PLAIN, InstructionSet, instruction_sets
from specchat.forward.native.native_ops import native_kernels
from tests.each_row import each_row
from tests.faults.full_disk import full_disk, without_limits
from tests.tiny import answer, target

SIZES = AttentionDimensions(heads=4, kv_heads=2, head_size=12, epsilon=1e-6)


@pytest.fixture(autouse=True)
def cache(kernels_anew, tmp_path, monkeypatch):
    """An empty cache folder, an installation that cannot be written, and a process without loaded kernels."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_build, "FOLDER", tmp_path / "package")
    monkeypatch.setattr(native_build, "COMPILED_BESIDE", tmp_path / "package" / "__pycache__")
    monkeypatch.setattr(native_build.os, "access", lambda path, _mode: path != native_build.FOLDER)
    monkeypatch.delenv(KERNELS_VARIABLE, raising=False)
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Replaces the compiler with a script; returns a function that counts the libraries that it was to make."""

    def put(script: str):
        calls, program = tmp_path / "calls", tmp_path / "cc"
        of_one_source = f'case "$*" in *native_attention.cpp*) echo called >> {calls};; esac'
        program.write_text(f"#!/bin/sh\n{of_one_source}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        return lambda: len(calls.read_text().split()) if calls.exists() else 0

    return put


@pytest.fixture
def wheel_folder(tmp_path, monkeypatch):
    """Where libraries of the wheel are looked for."""
    monkeypatch.setattr(native_build, "FOLDER", tmp_path)
    return tmp_path


def load_again() -> native_ops.NativeKernels:
    native_kernels.cache_clear()
    return native_kernels()


def copying(library: Path) -> str:
    """Stands for the compiler: compiling takes seconds."""
    return f'while [ "$1" != -o ]; do shift; done; cp {library} "$2"'


def instruction_sets_here() -> list[InstructionSet]:
    return instruction_sets(torch.backends.cpu.get_cpu_capability(), native_ops.native_extensions())


def test_kernels_are_compiled_once_and_cached(compiler, cache, native_library):
    calls = compiler(copying(native_library))

    assert load_again().library is not None
    assert load_again().library is not None
    assert 1 == calls()
    assert [".so"] == [file.suffix for file in cache.iterdir()]
    assert 0o700 == stat.S_IMODE(cache.stat().st_mode)


def test_a_clone_and_its_homes_share_one_library_beside_the_sources(compiler, cache, monkeypatch, native_library):
    calls, beside = compiler(copying(native_library)), native_build.COMPILED_BESIDE
    monkeypatch.setattr(native_build.os, "access", lambda _path, _mode: True)
    assert native_ops.must_be_compiled()
    assert load_again().library is not None
    monkeypatch.setattr(native_build.os, "access", lambda path, _mode: path != native_build.FOLDER)
    monkeypatch.setenv("SPECCHAT_CACHE", str(cache / "another"))

    assert not native_ops.must_be_compiled()
    assert load_again().library is not None
    assert 1 == calls()
    assert [".so"] == [file.suffix for file in beside.iterdir()]
    assert not cache.exists()


@pytest.mark.parametrize("reason", ["it is in the cache", "the wheel has it", "no compiler", "switched off"])
def test_nothing_is_announced_where_no_compiler_runs(compiler, wheel_folder, monkeypatch, native_library, reason):
    compiler(copying(native_library))
    assert native_ops.must_be_compiled()
    if reason == "it is in the cache":
        load_again()
    elif reason == "the wheel has it":
        (wheel_folder / instruction_sets_here()[0].library_name()).touch()
    elif reason == "no compiler":
        monkeypatch.setattr(native_ops, "find_compiler", lambda: None)
    else:
        monkeypatch.setenv(KERNELS_VARIABLE, NO_KERNELS)

    assert not native_ops.must_be_compiled()


def test_another_instruction_set_of_torch_has_its_own_library(compiler, monkeypatch, native_library):
    calls = compiler(copying(native_library))

    assert load_again().library is not None
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert load_again().library is not None
    assert 2 == calls()


def test_the_library_of_the_wheel_is_used_before_any_compiler(compiler, wheel_folder, native_library):
    calls, best = compiler("exit 1"), instruction_sets_here()[0]
    (wheel_folder / best.library_name()).write_bytes(native_library.read_bytes())

    assert f"compiled in the wheel, for {best.name}" == load_again().origin
    assert 0 == calls()


@pytest.mark.parametrize("content", [None, b"for a newer system"])
def test_without_a_library_in_the_wheel_that_runs_here_the_compiler_makes_one(
    compiler, wheel_folder, content, native_library
):
    compiler(copying(native_library))
    for each in instruction_sets_here() if content else ():
        (wheel_folder / each.library_name()).write_bytes(content)

    assert "compiled here, for this CPU" == load_again().origin


def test_without_a_compiler_the_reason_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert load_again() == native_ops.NativeKernels(
        None, "no C++ compiler; install a C++ compiler, such as g++ or clang"
    )
    assert type(select_fused_ops(SIZES, torch.zeros(1))) is TorchOps


def test_a_compiler_that_fails_is_quoted(compiler, cache):
    calls = compiler("echo first >&2; echo 'native_ops.cpp:1: no <cmath>' >&2; exit 1")
    native = load_again()

    assert native.library is None
    assert "(native_ops.cpp:1: no <cmath>)" in native.missing_reason
    assert "install a C++ compiler" in native.missing_reason
    assert len(instruction_sets_here()) == calls()
    assert [] == list(cache.iterdir())


def test_a_compiler_that_knows_no_amx_compiles_without(compiler, monkeypatch, native_library):
    monkeypatch.setattr(native_ops, "instruction_sets", lambda *_cpu: [INSTRUCTION_SETS[0], PLAIN])
    calls = compiler(f'case "$*" in *-mamx*) exit 1;; esac; {copying(native_library)}')

    assert load_again().library is not None
    assert 2 == calls()


def test_a_file_that_is_not_a_library_is_not_loaded(compiler):
    compiler('while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')

    assert load_again().library is None
    assert type(select_fused_ops(SIZES, torch.zeros(1))) is TorchOps


def test_a_folder_that_other_users_can_write_to_is_not_used(cache, compiler):
    calls = compiler('exec c++ "$@"')
    cache.mkdir(parents=True)
    cache.chmod(0o777)

    assert "other users can write to this folder" in load_again().missing_reason
    assert 0 == calls()


@without_limits
def test_what_cannot_be_stored_is_not_compiled(compiler, cache, native_library):
    calls = compiler(copying(native_library))
    with full_disk(4096):
        reason = load_again().missing_reason

    assert re.fullmatch(rf"{cache}: .*File too large", reason)
    assert 0 == calls()
    assert [] == list(cache.iterdir())


PLANTED = {
    "cut": lambda library: library[: len(library) // 2],
    "cut near its end": lambda library: library[:-4096],
    "empty": lambda _library: b"",
    "with zeros inside": lambda library: (
        library[: len(library) // 3] + bytes(4096) + library[len(library) // 3 + 4096 :]
    ),
    "no library": lambda _library: b"#!/bin/sh",
}


@each_row("name", PLANTED)
def test_a_library_in_the_cache_with_other_bytes_is_compiled_anew(compiler, cache, native_library, name):
    calls = compiler(copying(native_library))
    load_again()
    [library], compiled = cache.iterdir(), calls()
    whole = library.read_bytes()
    library.unlink()  # this process may have mapped it
    library.write_bytes(PLANTED[name](whole))

    assert load_again().library is not None
    assert compiled + 1 == calls()
    assert [whole] == [file.read_bytes() for file in cache.iterdir()]


def test_a_library_that_other_users_can_write_is_compiled_anew(compiler, cache, native_library):
    calls = compiler(copying(native_library))
    load_again()
    [library] = cache.iterdir()
    library.chmod(0o722)

    assert load_again().library is not None
    assert 2 == calls()
    assert [0o700] == [stat.S_IMODE(file.stat().st_mode) for file in cache.iterdir()]


def test_a_link_of_another_user_in_the_place_of_the_cache_is_not_followed(compiler, cache, tmp_path, monkeypatch):
    calls, elsewhere = compiler('exec c++ "$@"'), tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache.parent.mkdir()
    cache.symlink_to(elsewhere)
    planted = cache.lstat()
    monkeypatch.setattr(native_build, "belongs_to_user", lambda status: status.st_ino != planted.st_ino)

    assert "other users can write to this folder" in load_again().missing_reason
    assert 0 == calls()


def test_a_compiler_that_takes_too_long_is_reported_in_a_sentence(compiler, cache, monkeypatch):
    compiler("exec sleep 60")
    monkeypatch.setattr(native_build, "COMPILE_TIMEOUT_SECONDS", 0.01)

    assert re.fullmatch(r"\S+ had not compiled them after 0 seconds", load_again().missing_reason)


def test_a_cache_that_cannot_be_written_is_reported(cache, compiler):
    calls = compiler('exec c++ "$@"')
    cache.parent.write_text("a file where the folder should be")

    assert str(cache) in load_again().missing_reason
    assert 0 == calls()


def test_the_environment_variable_disables_the_kernels(monkeypatch):
    monkeypatch.setenv(KERNELS_VARIABLE, NO_KERNELS)

    assert load_again() == native_ops.NativeKernels(None, "SPECCHAT_KERNELS=none is set")


@pytest.mark.full
def test_the_text_is_the_same_with_and_without(monkeypatch, compiler, native_library):
    compiler(copying(native_library))
    model = target("dense-qwen3")
    assert isinstance(model.ops, NativeOps)
    with_kernels = answer(model, Drafter(), [7, 3, 9, 12], Sampler())
    monkeypatch.setenv(KERNELS_VARIABLE, NO_KERNELS)
    native_kernels.cache_clear()
    model = target("dense-qwen3")

    assert type(model.ops) is TorchOps
    assert with_kernels == answer(model, Drafter(), [7, 3, 9, 12], Sampler())
