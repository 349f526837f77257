"""Kernels are compiled once, by whatever compiler there is, and nobody needs one."""

import stat

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.forward import native_ops
from specchat.forward.fused_ops import AttentionDimensions, NativeOps, TorchOps, select_fused_ops
from specchat.forward.native_ops import native_kernels
from tests.tiny import answer, target

HEADS = AttentionDimensions(heads=4, kv_heads=2, head_size=12, epsilon=1e-6)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache with nothing in it, and a process that has not looked yet."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(native_ops.ENVIRONMENT_VARIABLE, raising=False)
    native_kernels.cache_clear()
    yield tmp_path / "cache" / "kernels"
    native_kernels.cache_clear()


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Puts a script in the place of the compiler; returns how often it was called."""

    def put(script: str):
        calls, program = tmp_path / "calls", tmp_path / "cc"
        program.write_text(f"#!/bin/sh\necho called >> {calls}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        return lambda: len(calls.read_text().split()) if calls.exists() else 0

    return put


def again() -> native_ops.NativeKernels:
    native_kernels.cache_clear()
    return native_kernels()


needs_compiler = pytest.mark.skipif(native_kernels().library is None, reason="no C++ compiler here")


@needs_compiler
def test_kernels_are_compiled_once_and_kept(compiler, cache):
    calls = compiler('exec c++ "$@"')

    assert again().library is not None
    assert again().library is not None
    assert 1 == calls()
    assert [".so"] == [file.suffix for file in cache.iterdir()]
    assert 0o700 == stat.S_IMODE(cache.stat().st_mode)


@needs_compiler
def test_a_cpu_that_torch_uses_otherwise_gets_kernels_of_its_own(compiler, monkeypatch):
    calls = compiler('exec c++ "$@"')

    assert again().library is not None
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert again().library is not None
    assert 2 == calls()


def test_without_a_compiler_the_reason_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert again() == native_ops.NativeKernels(None, "no C++ compiler; install a C++ compiler, such as g++ or clang")
    assert type(select_fused_ops(HEADS, torch.zeros(1))) is TorchOps


def test_a_compiler_that_fails_is_quoted(compiler, cache):
    calls = compiler("echo first >&2; echo 'kernels.cpp:1: no <cmath>' >&2; exit 1")
    found = again()

    assert found.library is None
    assert "(kernels.cpp:1: no <cmath>)" in found.missing_reason
    assert "install a C++ compiler" in found.missing_reason
    assert 1 == calls()
    assert [] == list(cache.iterdir())


def test_what_is_no_library_is_not_loaded(compiler):
    compiler('while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')

    assert again().library is None
    assert type(select_fused_ops(HEADS, torch.zeros(1))) is TorchOps


def test_a_folder_that_others_may_write_is_not_used(cache, compiler):
    calls = compiler('exec c++ "$@"')
    cache.mkdir(parents=True)
    cache.chmod(0o777)

    assert "others may write there" in again().missing_reason
    assert 0 == calls()


def test_a_cache_that_cannot_be_written_is_said(cache, compiler):
    calls = compiler('exec c++ "$@"')
    cache.parent.write_text("a file where the folder should be")

    assert str(cache) in again().missing_reason
    assert 0 == calls()


def test_who_wants_none_gets_none(monkeypatch):
    monkeypatch.setenv(native_ops.ENVIRONMENT_VARIABLE, native_ops.DISABLED)

    assert again() == native_ops.NativeKernels(None, "SPECCHAT_KERNELS=none says so")


@needs_compiler
def test_the_text_is_the_same_with_and_without(monkeypatch):
    model = target("dense-qwen3")
    assert isinstance(model.between, NativeOps)
    with_kernels = answer(model, Drafter(), [7, 3, 9, 12], Sampler())
    monkeypatch.setenv(native_ops.ENVIRONMENT_VARIABLE, native_ops.DISABLED)
    native_kernels.cache_clear()
    model = target("dense-qwen3")

    assert type(model.between) is TorchOps
    assert with_kernels == answer(model, Drafter(), [7, 3, 9, 12], Sampler())
