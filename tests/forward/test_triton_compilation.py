"""The Triton kernels compile for GPUs that are not here: Triton's wheel has the assembler, and needs no driver for it.

In a process of its own, because the interpreter replaces the compiler for a whole process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton has no release for this platform")

# Compute capability, and the memory of a multiprocessor that one program may use: CUDA C programming guide, table of
# technical specifications. T4 has no bfloat16.
SHARED_BYTES = {
    75: 64 * 1024, 80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024,
}  # fmt: skip
DTYPES = {75: "float16"}
SCRIPT = Path(__file__).with_name("compile_kernels.py")
KERNELS = {
    "_rms_norm_kernel", "_activate_and_mul_kernel", "_qk_norm_rope_kernel", "_attention_kernel", "_combine_kernel",
    "_int4_kernel", "_add_splits_kernel", "_best_of_part_kernel", "_best_of_row_kernel",
    "_convolve_kernel", "_tree_kernel", "_chain_kernel", "_gated_norm_kernel",
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("capability", "head_size", "dtype"),
    [(each, 128, "bfloat16") for each in SHARED_BYTES]
    + [(89, 80, "bfloat16"), (89, 256, "bfloat16"), (89, 128, "float32")],
)
def test_all_kernels_compile_and_fit(capability, head_size, dtype, tmp_path):
    assert_all_fit(capability, head_size, dtype, tmp_path, KERNELS)


@pytest.mark.full
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_the_kernels_for_blocks_compile_and_fit(capability, tmp_path):
    assert_all_fit(capability, 128, "bfloat16", tmp_path, {"_block_kernel", "_add_splits_kernel"}, "blocks")


def assert_all_fit(
    capability: int, head_size: int, dtype: str, cache: Path, kernels: Collection[str], *arguments: str
) -> None:
    dtype = DTYPES.get(capability, dtype) if dtype == "bfloat16" else dtype
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}

    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(capability), str(head_size), dtype, *arguments],
        capture_output=True, text=True, check=False, env=environment, timeout=580,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-2000:]
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["kernel"] for each in compiled} == set(kernels)
    assert all(each["shared"] <= SHARED_BYTES[capability] for each in compiled), compiled
