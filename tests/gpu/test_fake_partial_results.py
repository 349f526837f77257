"""The partial results of attention on a GPU: what the planner says, and what the fake GPU holds meanwhile."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.engine.cache_sizes import GRAPH_WIDTHS, SPARE_ROWS, arena_rows
from specchat.forward.batch import BatchLimits, CacheRows
from specchat.forward.cuda import triton_attention
from specchat.forward.cuda.triton_ops import TritonOps
from specchat.forward.fused_ops import AttentionDimensions, TorchOps
from specchat.forward.llama import llama
from specchat.hub.memory_plan import GRAPH_ROWS, partial_attention_bytes
from specchat.hub.safetensors_headers import read_architecture
from specchat.weights.llama_weights import load_llama
from tests.tiny import SIZES, saved

pytestmark = pytest.mark.full

HEADS, KV_HEADS, SIZE = SIZES["num_attention_heads"], SIZES["num_key_value_heads"], SIZES["head_dim"]


@pytest.fixture
def kernels_that_compute_nothing(monkeypatch):
    """Triton's launches alone: what is allocated for them does not depend on their numbers."""
    launch = type("Launch", (), {"__getitem__": lambda _self, _grid: lambda *_arguments, **_options: None})()
    monkeypatch.setattr(triton_attention, "_attention_kernel", launch)
    monkeypatch.setattr(triton_attention, "_combine_kernel", launch)


@pytest.mark.usefixtures("kernels_that_compute_nothing")
@pytest.mark.parametrize("tokens", [900, 8192])
def test_partial_results_of_attention_take_what_was_planned(gpu, tokens):
    architecture = read_architecture(saved("qwen3"))
    planned, sizes = partial_attention_bytes(architecture, tokens), AttentionDimensions(HEADS, KV_HEADS, SIZE, 1e-6)
    keys = torch.zeros(1, KV_HEADS, arena_rows(tokens) + SPARE_ROWS, SIZE, dtype=torch.bfloat16, device="cuda")
    queries = torch.zeros(GRAPH_WIDTHS[-1], HEADS, SIZE, dtype=torch.bfloat16, device="cuda")
    zero = torch.zeros((), dtype=torch.long, device="cuda")
    ancestors = torch.zeros(len(queries), dtype=torch.long, device="cuda")
    rows = CacheRows(lambda _layer: (keys, keys), zero, zero, ancestors, keys.shape[2])
    before, gpu.peak_bytes = gpu.held_bytes, gpu.held_bytes
    output = triton_attention.attention(queries, rows, 0, sizes)

    assert gpu.peak_bytes - before - output.nbytes == pytest.approx(planned, rel=0.03)
    assert gpu.held_bytes - before == output.nbytes  # and the next layer takes the same memory


def test_the_widest_graph_looks_at_all_rows_of_the_arena(monkeypatch):
    """What the plan of partial results multiplies: rows of the graph, and rows of the arena."""
    passes = list[tuple[int, int]]()

    class RecordedOps(TritonOps):
        def attention(self, inputs, batch, layer, window):
            passes.append((len(inputs.qkv), batch.cache_rows.kv_length))
            return inputs.qkv[:, : self.dimensions.heads * self.dimensions.head_size]

        rms_norm, add_rms_norm = TorchOps.rms_norm, TorchOps.add_rms_norm
        activate_and_mul = TorchOps.activate_and_mul

    monkeypatch.setattr(llama, "select_fused_ops", lambda dimensions, _like: RecordedOps(dimensions))
    model = load_llama(saved("qwen3"), torch.bfloat16, torch.device("cuda"), 900, BatchLimits())
    model.capture_graphs(lambda _done, _total: None)

    assert max(passes) == (GRAPH_ROWS, arena_rows(900) + SPARE_ROWS)
