"""The native kernels are compiled once, with any C++ compiler, and are optional."""

import stat

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.forward import native_ops
from specchat.forward.fused_ops import AttentionDimensions, NativeOps, TorchOps, select_fused_ops
from specchat.forward.native_ops import native_kernels
from tests.tiny import answer, target

SIZES = AttentionDimensions(heads=4, kv_heads=2, head_size=12, epsilon=1e-6)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a process without loaded kernels."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(native_ops.ENVIRONMENT_VARIABLE, raising=False)
    native_kernels.cache_clear()
    yield tmp_path / "cache" / "kernels"
    native_kernels.cache_clear()


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Replaces the compiler with a script; returns a function that counts its calls."""

    def put(script: str):
        calls, program = tmp_path / "calls", tmp_path / "cc"
        program.write_text(f"#!/bin/sh\necho called >> {calls}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        return lambda: len(calls.read_text().split()) if calls.exists() else 0

    return put


def load_again() -> native_ops.NativeKernels:
    native_kernels.cache_clear()
    return native_kernels()


COMPILED = native_kernels().library  # before the tests have empty caches
needs_compiler = pytest.mark.skipif(COMPILED is None, reason="no C++ compiler here")
# stands for the compiler: compiling takes seconds
COPY = f'while [ "$1" != -o ]; do shift; done; cp {COMPILED._name if COMPILED else ""} "$2"'


@needs_compiler
def test_kernels_are_compiled_once_and_cached(compiler, cache):
    calls = compiler(COPY)

    assert load_again().library is not None
    assert load_again().library is not None
    assert 1 == calls()
    assert [".so"] == [file.suffix for file in cache.iterdir()]
    assert 0o700 == stat.S_IMODE(cache.stat().st_mode)


@needs_compiler
def test_another_instruction_set_of_torch_has_its_own_library(compiler, monkeypatch):
    calls = compiler(COPY)

    assert load_again().library is not None
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert load_again().library is not None
    assert 2 == calls()


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
    assert len(native_ops._flag_sets()) == calls()
    assert [] == list(cache.iterdir())


@pytest.mark.full
@needs_compiler
def test_a_compiler_that_knows_no_amx_compiles_without(compiler, monkeypatch):
    monkeypatch.setattr(native_ops, "_flag_sets", lambda: [(*native_ops.FLAGS, "-mamx-tile"), native_ops.FLAGS])
    calls = compiler('case "$*" in *-mamx*) exit 1;; esac; exec c++ "$@"')

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


def test_a_cache_that_cannot_be_written_is_reported(cache, compiler):
    calls = compiler('exec c++ "$@"')
    cache.parent.write_text("a file where the folder should be")

    assert str(cache) in load_again().missing_reason
    assert 0 == calls()


def test_the_environment_variable_disables_the_kernels(monkeypatch):
    monkeypatch.setenv(native_ops.ENVIRONMENT_VARIABLE, native_ops.DISABLED)

    assert load_again() == native_ops.NativeKernels(None, "SPECCHAT_KERNELS=none is set")


@needs_compiler
def test_the_text_is_the_same_with_and_without(monkeypatch, compiler):
    compiler(COPY)
    model = target("dense-qwen3")
    assert isinstance(model.ops, NativeOps)
    with_kernels = answer(model, Drafter(), [7, 3, 9, 12], Sampler())
    monkeypatch.setenv(native_ops.ENVIRONMENT_VARIABLE, native_ops.DISABLED)
    native_kernels.cache_clear()
    model = target("dense-qwen3")

    assert type(model.ops) is TorchOps
    assert with_kernels == answer(model, Drafter(), [7, 3, 9, 12], Sampler())
