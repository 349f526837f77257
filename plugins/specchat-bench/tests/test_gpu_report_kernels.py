"""Our kernels in the report of `specchat bench gpu`, by Triton's interpreter on the simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.forward.cuda import cuda_graphs, triton_rows
from specchat.forward.linear.block_linear import block_matmul
from specchat.forward.linear.int4_linear import int4_matmul
from specchat_bench.gpu import hybrids
from specchat_bench.gpu.experts import expert_pass_lines, expert_product_lines
from specchat_bench.gpu.gpu_bench import GpuBench
from specchat_bench.gpu.hybrids import hybrid_lines
from specchat_bench.gpu.kernels import block_kernels, check_lines, own_kernels
from specchat_bench.gpu.sections import MEASURES, gpu_sections
from tests.fake_gpu import FakeGpu, fake_gpu
from tests.triton_interpreter import IS_INTERPRETED, interpreted_kernels

pytestmark = [pytest.mark.full, pytest.mark.skipif(not IS_INTERPRETED, reason="a real GPU is here")]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeGpu]:
    matmuls = int4_matmul, block_matmul
    for each in matmuls:
        each.cache_clear()
    with fake_gpu(has_triton=True) as fake, interpreted_kernels():
        yield fake
    for each in matmuls:
        each.cache_clear()


def test_every_kernel_has_a_small_error_and_the_bits_of_a_row_alone():
    bench = GpuBench.of(torch.device("cuda"))
    lines = list(check_lines((*own_kernels(bench), *block_kernels(bench)), bench))

    assert [line for line in lines if "error message" in line] == []
    assert len(lines) == 17 and all(line["error"] < 0.005 for line in lines)  # type: ignore[operator]
    assert {line["own bits in batches of"] for line in lines} == {"all"}


def test_a_kernel_that_mixes_rows_is_found(monkeypatch):
    right = triton_rows.activate_and_mul
    monkeypatch.setattr(triton_rows, "activate_and_mul", lambda rows, *activation: right(rows, *activation) + len(rows))
    bench = GpuBench.of(torch.device("cuda"))
    (line,) = check_lines([each for each in own_kernels(bench) if "SwiGLU" in each[0]], bench)

    assert line["own bits in batches of"] == "1" and line["batches alike"] == "1 / 5"
    assert line["error"] > 0.5  # type: ignore[operator]


def test_experts_have_a_small_error_and_the_bits_of_a_row_alone():
    lines = list(expert_product_lines(GpuBench.of(torch.device("cuda"))))

    assert [line for line in lines if "error message" in line] == []
    assert len(lines) == 8 and all(line["error"] < 0.005 for line in lines)  # type: ignore[operator]
    assert {line["own bits in batches of"] for line in lines} == {"all"}


def test_tiles_of_experts_are_tried_on_request():
    lines = list(MEASURES["tiles"][1](GpuBench.of(torch.device("cuda"))))

    assert [line for line in lines if "error message" in line] == []
    assert len({line["what"] for line in lines}) == len(lines) >= 2 * 4
    assert {line["us 1"] for line in lines} == {None}
    assert "tiles" not in [each.name for each in gpu_sections()]


def test_mixtures_of_experts_have_graphs(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "GRAPH_WIDTHS", (1, 6))
    lines = list(expert_pass_lines(GpuBench.of(torch.device("cuda"))))

    assert [line for line in lines if "error message" in line] == []
    assert [line["graphs"] for line in lines if "graphs" in line] == [2, 2]
    assert {line["batches alike"] for line in lines if "batches alike" in line} == {"1, 5"}


def test_a_hybrid_network_has_graphs_behind_a_prompt_that_was_read(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "GRAPH_WIDTHS", (1, 6))
    monkeypatch.delitem(hybrids.WEIGHTS, "float")
    lines = list(hybrid_lines(GpuBench.of(torch.device("cuda"))))

    assert [line for line in lines if "error message" in line] == []
    assert [line["graphs"] for line in lines if "graphs" in line] == [2, 2]
    assert {line["batches alike"] for line in lines if "batches alike" in line} == {"1, 5"}
    assert [line["prompt s"] for line in lines if "prompt s" in line] == [None, None]
