"""The Triton kernels compile for GPUs that are not here: Triton's wheel has the assembler, and needs no driver for it.

In a process of its own, because the interpreter replaces the compiler for a whole process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton has no release for this platform")

# Compute capability, and the memory of a multiprocessor that one program may use: CUDA C programming guide, table of
# technical specifications. T4 has no bfloat16.
SHARED_BYTES = {
    75: 64 * 1024, 80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024,
}  # fmt: skip
DTYPES = {75: "float16"}
LAYERS = ("blocks", "experts")  # those that `compile_kernels.py` compiles in programs of their own
SCRIPT = Path(__file__).with_name("compile_kernels.py")
KERNELS = {
    "_rms_norm_kernel", "_activate_and_mul_kernel", "_qk_norm_rope_kernel", "_attention_kernel", "_combine_kernel",
    "_packed_kernel", "_best_of_part_kernel", "_best_of_row_kernel", "_octaves_kernel", "_cut_kernel", "_grow_kernel",
    "_convolve_kernel", "_tree_kernel", "_chain_kernel", "_gated_norm_kernel",
}  # fmt: skip


BUDGETS: dict[str, dict[str, list[int]]] = json.loads(SCRIPT.with_name("kernel_budgets.json").read_text())
COLUMNS = ("registers", "spilled", "instructions")
ALLOWANCE = (8, 64, 0.1)  # registers, bytes, share of the instructions: assemblers differ
OTHER_VERSIONS = os.environ.get("TRITON_FOLDERS", "").split()  # where other versions of Triton are installed


def compiled_kernels(
    capability: int, head_size: int, dtype: str, cache: Path, version: str = "", arguments: Sequence[str] = ()
) -> list[dict[str, Any]]:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    if version:
        environment["PYTHONPATH"] = os.pathsep.join((version, environment.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(capability), str(head_size), dtype, *arguments],
        capture_output=True, text=True, check=False, env=environment, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def largest(compiled: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Registers, spilled bytes and instructions of each kernel, in its largest variants."""
    kernels = sorted({each["kernel"] for each in compiled})
    return {
        name: [max(each[column] for each in compiled if each["kernel"] == name) for column in COLUMNS]
        for name in kernels
    }


def is_within(used: list[int], budget: list[int]) -> bool:
    limits = (budget[0] + ALLOWANCE[0], budget[1] + ALLOWANCE[1], budget[2] * (1 + ALLOWANCE[2]))
    return all(one <= limit for one, limit in zip(used, limits, strict=True))


@pytest.mark.full
@pytest.mark.parametrize(
    ("capability", "head_size", "dtype"),
    [(each, 128, "bfloat16") for each in SHARED_BYTES]
    + [(89, 80, "bfloat16"), (89, 256, "bfloat16"), (89, 512, "bfloat16"), (89, 128, "float32")],
)
def test_all_kernels_compile_and_fit(capability, head_size, dtype, tmp_path):
    """Those of an 8B model stay within the registers, the spilled bytes and the instructions that they had."""
    dtype = DTYPES.get(capability, dtype) if dtype == "bfloat16" else dtype

    compiled = compiled_kernels(capability, head_size, dtype, tmp_path)

    assert {each["kernel"] for each in compiled} == KERNELS
    assert all(each.get("counts_parts", True) for each in compiled), compiled
    assert all(each["shared"] <= SHARED_BYTES[capability] for each in compiled), compiled
    if (head_size, dtype) == (128, DTYPES.get(capability, "bfloat16")):
        used, budget = largest(compiled), BUDGETS[str(capability)]
        assert used.keys() == budget.keys()
        assert all(is_within(used[name], budget[name]) for name in used), (used, budget)


@pytest.mark.full
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_the_kernels_for_blocks_and_experts_compile_and_fit(capability, layers, tmp_path):
    compiled = compiled_kernels(capability, 128, DTYPES.get(capability, "bfloat16"), tmp_path, arguments=[layers])

    used, budget = largest(compiled), BUDGETS[f"{capability} {layers}"]
    assert used.keys() == budget.keys()
    assert all(is_within(used[name], budget[name]) for name in used), (used, budget)
    assert all(each["shared"] <= SHARED_BYTES[capability] for each in compiled), compiled
    assert all(each.get("counts_parts", True) for each in compiled), compiled


@pytest.mark.full
@pytest.mark.skipif(not OTHER_VERSIONS, reason="TRITON_FOLDERS names no other version of Triton")
@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("version", OTHER_VERSIONS)
@pytest.mark.parametrize("arguments", [(), *((each,) for each in LAYERS)])
def test_all_kernels_compile_with_other_versions_of_triton(arguments, version, capability, tmp_path):
    """Those that releases of torch pin: `pip install --no-deps --target FOLDER triton==VERSION`."""
    dtype = DTYPES.get(capability, "bfloat16")
    compiled = compiled_kernels(capability, 128, dtype, tmp_path, version, arguments)

    assert {each["kernel"] for each in compiled} == BUDGETS[" ".join((str(capability), *arguments))].keys()
    assert all(each["shared"] <= SHARED_BYTES[capability] for each in compiled), compiled
    assert all(each.get("counts_parts", True) for each in compiled), compiled
