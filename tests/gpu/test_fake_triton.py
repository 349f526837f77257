"""The Triton kernels in a model on the fake GPU: text, launches, graphs, and what happens where they fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.devices import FLOAT_FORMAT
from specchat.drafters.eagle.dynamic_tree import TreeConfig
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, NoiseInputs, Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda import kernel_trial, triton_attention, triton_blocks, triton_linear, triton_rows
from specchat.forward.cuda.cuda_graphs import CudaGraphCapture, device_noise, noise_header, noise_keys
from specchat.forward.cuda.triton_ops import TritonOps, is_tree_invariant, triton_ops
from specchat.forward.fused_ops import AttentionDimensions, TorchOps, select_fused_ops
from specchat.forward.linear import block_linear, int4_linear
from specchat.forward.linear.block_linear import BlockLinear
from specchat.forward.linear.byte_linear import ByteLinear
from specchat.forward.linear.int4_linear import Int4Linear
from specchat.forward.linear.linear import FloatLinear, WeightSource
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.linear.quant_linear import BLOCKS_OF_8_BITS, hardware_warning, quant_linear
from specchat.forward.llama.embedding_rows import BlockEmbedding
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.native.native_sampling import rank_rows, sample_rows
from specchat.hub.safetensors_headers import read_architecture
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_weights import load_llama
from tests.each_row import each_row
from tests.fake_gpu import FakeGpu, fake_gpu
from tests.gguf_models import network, write_gguf
from tests.tiny import Chaos, target
from tests.tiny_heads import drafter_of, read, saved_head
from tests.triton_interpreter import IS_INTERPRETED, interpreted_kernels
from tests.weights.four_bits import save_network

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not IS_INTERPRETED, reason="a real GPU is here, on which all of tests/gpu runs"),
]
SIZES = AttentionDimensions(2, 1, 16, 1e-6)
GREEDY = Sampler()
TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 8
MOST_LAUNCHES_PER_LAYER, LAUNCHES_OF_A_CHOICE, MOST_LAUNCHES_OF_A_TREE = 12, 2, 120


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeGpu]:
    with fake_gpu(has_triton=True) as fake, interpreted_kernels():
        yield fake


def like(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(1, dtype=dtype, device="cuda")


def gpu_model(*, has_graphs: bool = False) -> LlamaModel:
    model = target("dense-qwen3", device="cuda")
    assert isinstance(model, LlamaModel) and isinstance(model.ops, TritonOps)
    if not has_graphs:
        model.graphs = None
    return model


def text(model: LlamaModel, drafter: Drafter, limit: int = 2, sampler: Sampler = GREEDY) -> list[int]:
    generation = Generation(model, () if type(drafter) is Drafter else (drafter,))
    generation.replace_tokens([5, 6, 7])
    with model.pool.acquire_slot(generation.cache, 64):
        list(generation.prefill())
        list(generation.decode(GenerationConfig(drafter, sampler, 3, limit)))
    return generation.tokens


@pytest.mark.full
@pytest.mark.parametrize("drafter", [Drafter(), Chaos(3)], ids=["plain", "chaos"])
@pytest.mark.parametrize("has_graphs", [False, True])
def test_the_text_is_that_of_the_cpu(has_graphs, drafter):
    on_cpu = target("dense-qwen3")
    assert isinstance(on_cpu, LlamaModel)

    assert text(gpu_model(has_graphs=has_graphs), drafter) == text(on_cpu, Drafter())


@pytest.mark.parametrize("family", ["gpt_oss", "gemma4"])
def test_sinks_normalized_values_and_shared_keys_have_kernels(family):
    tree, logits = DraftTree(7), list[torch.Tensor]()
    tree.add(9, tree.add(8, 0))
    tree.add(10, 0)
    for device in ("cuda", "cpu"):
        model = target(f"dense-{family}", device=device)
        assert isinstance(model, LlamaModel) and (device == "cpu" or isinstance(model.ops, TritonOps))
        generation = Generation(model)
        with model.pool.acquire_slot(generation.cache, 64):
            model.prefill([5, 6, 7], generation.cache)
            logits.append(model.forward(tree, generation.cache).logits.cpu())

    assert torch.allclose(*logits, atol=1e-4)


def test_a_layer_launches_at_most_twelve_kernels(gpu):
    model, launches = gpu_model(), list[int]()
    generation = Generation(model)
    with model.pool.acquire_slot(generation.cache, 64):
        for layers in (1, 2):
            gpu.reset()
            model.forward_early_exit([7], generation.cache, layers)
            launches.append(gpu.launches)

    assert 0 < launches[1] - launches[0] <= MOST_LAUNCHES_PER_LAYER


def test_sampled_text_of_graphs_is_that_of_the_cpu():
    on_cpu, sampler = target("dense-qwen3"), Sampler(0.8, seed=3)
    assert isinstance(on_cpu, LlamaModel)

    assert text(gpu_model(has_graphs=True), Drafter(), 4, sampler) == text(on_cpu, Drafter(), 4, sampler)


def test_a_graph_chooses_tokens_in_two_launches(gpu):
    inputs, logits = NoiseInputs([(1, 2)], 0.8, 1.0), torch.zeros(1, 1500, device="cuda")
    noise = device_noise(torch.tensor(noise_header(inputs)).cuda(), torch.tensor(noise_keys(inputs, 1)).cuda())
    noise.sample(logits)  # compared with torch
    for choose in (lambda: noise.sample(logits), lambda: noise.rank(logits), lambda: noise.rank(logits, 16)):
        gpu.reset()
        choose()
        assert gpu.launches == LAUNCHES_OF_A_CHOICE


@each_row("rules, most_launches", [
    ({}, 2), ({"min_p": 0.05}, 5), ({"top_p": 0.9}, 7), ({"top_k": 40, "top_p": 0.9, "min_p": 0.05}, 7),
])  # fmt: skip
def test_cuts_are_at_most_five_launches_more(rules, most_launches, gpu):
    """Two kernels choose. A maximum, zeros, two for octaves and one for the cut: for all rows, and no wait."""
    logits, sampler = torch.randn(3, 1500).cuda(), Sampler(0.8, **rules)
    for choose in (sample_rows, rank_rows):
        choose(logits, sampler, LogitRows([1, 2, 3]))  # compared with torch
        gpu.reset()
        choose(logits, sampler, LogitRows([1, 2, 3]))
        assert gpu.launches == most_launches and not gpu.waits


def test_a_pass_with_every_rule_is_at_most_37_launches(gpu):
    """29 of them are penalties and biases, on the few columns that they change, and one is the grammar."""
    sampler = Sampler(0.8, 40, 0.9, 0.05, 1.1, 0.1, 0.1, biases=((3, 1.0),))
    rows = LogitRows([1, 2, 3], [[], [5], [5, 6]], allowed_mask=torch.ones(3, 1500, dtype=torch.bool))
    logits, seen = torch.randn(3, 1500).cuda(), SeenTokens([1, 2, 3], 1500, like().device)
    sample_rows(logits, sampler, rows, seen)
    gpu.reset()
    sample_rows(logits, sampler, rows, seen)

    assert gpu.launches <= 37 and not gpu.waits


@each_row("sampler", [Sampler(0.8, top_p=0.9, seed=3), Sampler(1.2, 30, 0.95, 0.02, 1.2, seed=4)])
def test_text_of_all_rules_is_that_of_the_cpu_drafted_or_not(sampler):
    on_cpu, model = target("dense-qwen3"), gpu_model(has_graphs=True)
    assert isinstance(on_cpu, LlamaModel)

    expected = text(on_cpu, Drafter(), 4, sampler)
    assert text(model, Drafter(), 4, sampler) == text(model, Chaos(3), 4, sampler) == expected


@pytest.mark.parametrize("name", ["rms_norm", "add_rms_norm", "activate_and_mul", "qk_norm_rope"])
def test_kernels_with_wrong_results_are_not_used(name, monkeypatch, caplog):
    right = getattr(triton_rows, name)

    def wrong(*arguments):
        result = right(*arguments)
        (result[0] if isinstance(result, tuple) else result).add_(1)
        return result

    monkeypatch.setattr(triton_rows, name, wrong)

    assert type(select_fused_ops(SIZES, like())) is TorchOps
    assert "other results" in caplog.text


def test_a_kernel_that_mixes_rows_is_not_batch_invariant(monkeypatch):
    right = triton_attention.attention
    assert is_tree_invariant(SIZES, torch.bfloat16, torch.device("cuda"))

    monkeypatch.setattr(triton_attention, "attention", lambda queries, *others: right(queries, *others) + len(queries))

    assert not is_tree_invariant(SIZES, torch.bfloat16, torch.device("cuda"))


def test_a_gpu_for_which_nothing_can_be_compiled_is_used_by_torch(monkeypatch, caplog):
    def fail(*_arguments):
        raise RuntimeError("Failed to find C compiler\nplease set CC")

    monkeypatch.setattr(triton_rows, "rms_norm", fail)

    assert type(select_fused_ops(SIZES, like())) is TorchOps
    assert "cannot be used here (Failed to find C compiler)" in caplog.text
    assert "please set" not in caplog.text


@each_row("sizes, dtype", [(SIZES, torch.float64), (AttentionDimensions(2, 1, 514, 1e-6), torch.float32)])
def test_other_dtypes_and_sizes_are_left_to_torch(sizes, dtype):
    assert type(select_fused_ops(sizes, like(dtype))) is TorchOps


@each_row("seconds, kind", [([1.0, 2.0], TritonOps), ([2.0, 1.0], TorchOps)])
def test_without_tensor_cores_kernels_are_used_where_they_are_faster(seconds, kind, monkeypatch, caplog, tmp_path):
    """What was measured is known at the next start, for this GPU, these versions and these sizes."""
    measured = iter(seconds)
    triton_ops.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    monkeypatch.setattr(kernel_trial, "remembered_file", lambda *about: tmp_path / f"{kind.__name__}.json")
    monkeypatch.setattr(kernel_trial, "_seconds_of", lambda *_: next(measured))

    assert type(select_fused_ops(SIZES, like())) is kind
    triton_ops.cache_clear()
    assert type(select_fused_ops(SIZES, like())) is kind
    assert ("slower than torch here" in caplog.text) or kind is TritonOps


def test_kernels_are_timed_in_graphs(gpu):
    calls = list[int]()

    assert kernel_trial._seconds_of(lambda: calls.append(1), CudaGraphCapture(like().device), like().device) > 0
    assert len(calls) == 2 * kernel_trial.TIMED_CALLS  # prepared, and captured
    assert gpu.replays == kernel_trial.TIMED_REPLAYS


def test_kernels_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("SPECCHAT_KERNELS", "none")

    assert type(select_fused_ops(SIZES, like())) is TorchOps


@pytest.mark.full
@pytest.mark.full
def test_four_bits_of_a_checkpoint_stay_four_bits(tmp_path):
    small, floats = save_network(tmp_path, "gptq", group_size=-1)
    model = load_llama(small, torch.float32, torch.device("cuda"), None, BatchLimits())
    model.graphs = None
    linears = [model.weights.layers[0].self_attn.qkv_proj, model.weights.layers[1].mlp.down_proj]
    on_cpu, logits = load_llama(floats, torch.float32, torch.device("cpu"), None, BatchLimits()), list[torch.Tensor]()
    for each in (model, on_cpu):
        cache = each.pool.open()
        with each.pool.acquire_slot(cache, 20):
            logits.append(each.prefill([7], cache).logits.cpu())

    assert all(isinstance(each, Int4Linear) for each in linears)
    assert torch.allclose(*logits, atol=1e-4)


def test_a_gpu_without_the_kernel_dequantizes_four_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_KERNELS", "none")
    small, _floats = save_network(tmp_path, "awq")

    model = load_llama(small, torch.float32, torch.device("cuda"), None, BatchLimits())

    assert not isinstance(model.weights.layers[0].self_attn.qkv_proj, Int4Linear)


def gguf_model(folder: Path, quant_format: str, device: str) -> LlamaModel:
    return load_llama(
        folder, torch.float32, torch.device(device), None, BatchLimits(prefill_chunk=16), quant_format=quant_format
    )


@pytest.mark.parametrize(("family", "storage", "is_tied"), [("qwen3", "Q8_0", True), ("llama", "Q5_1", False)])
def test_a_gguf_file_keeps_its_blocks(tmp_path, monkeypatch, gpu, family, storage, is_tied):
    """Graphs, the text of the CPU, and the memory that was planned."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    sizes = {"vocab_size": 288, "hidden_size": 128, "intermediate_size": 128}
    path = write_gguf(tmp_path / "model.gguf", family, storage=storage, model=network(family, is_tied, **sizes))
    folder, sampler = prepared_gguf(path), Sampler(0.8, seed=3)

    model, on_cpu = gguf_model(folder, "gguf", "cuda"), gguf_model(folder, "float", "cpu")

    weights = model.weights
    assert isinstance(weights.embedding, BlockEmbedding) and isinstance(weights.lm_head, BlockLinear)
    assert (weights.lm_head is weights.embedding.linear) == is_tied
    assert all(isinstance(each.mlp.down_proj, BlockLinear) for each in weights.layers)  # type: ignore[union-attr]
    assert model.is_exact and model.bytes < 0.5 * on_cpu.bytes
    assert model.bytes == pytest.approx(read_architecture(path).block_bytes, rel=0.1)  # 64 inputs are padded
    assert (
        text(model, Chaos(3), 2, sampler) == text(model, Drafter(), 2, sampler) == text(on_cpu, Drafter(), 2, sampler)
    )
    assert gpu.captures > 0


def test_layers_in_main_memory_keep_the_blocks_of_a_cpu(tmp_path, monkeypatch, gpu):
    """Their hidden states, and those for a head, are the input of graphs of kernels."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    sizes = {"vocab_size": 288, "hidden_size": 128, "intermediate_size": 128}
    path = write_gguf(tmp_path / "model.gguf", "llama", storage="Q4_1", model=network("llama", **sizes))
    limits, sampler = BatchLimits(prefill_chunk=16), Sampler(0.8, seed=3)
    model = load_llama(
        prepared_gguf(path), torch.float32, torch.device("cuda"), None, limits, quant_format="gguf", cpu_layers=1
    )
    model.set_hidden_state_layers((0, 2))

    kinds = [type(layer.mlp.down_proj) for layer in model.weights.layers]  # type: ignore[union-attr]
    assert kinds == [PackedLinear, BlockLinear] and model.is_exact
    assert text(model, Chaos(3), 2, sampler) == text(model, Drafter(), 2, sampler)
    assert gpu.captures > 0


def test_kernels_run_on_the_gpu_of_their_layers(tmp_path, monkeypatch):
    """Those of blocks, too. The simulated GPUs refuse a kernel while another one is selected."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    sizes = {"vocab_size": 288, "hidden_size": 128, "intermediate_size": 128}
    path = write_gguf(tmp_path / "model.gguf", "llama", storage="Q4_1", model=network("llama", **sizes))
    limits, sampler, texts = BatchLimits(prefill_chunk=16), Sampler(0.8, seed=3), list[object]()
    with fake_gpu(has_triton=True, other_gpus=(2**40,)):
        for layers in ((), (1,)):
            model = load_llama(
                prepared_gguf(path), torch.float32, torch.device("cuda"), None, limits, quant_format="gguf",
                gpu_layers=layers,
            )  # fmt: skip
            model.set_hidden_state_layers((0, 2))
            assert isinstance(model.ops, TritonOps) and model.is_exact
            texts += [text(model, Chaos(3), 2, sampler), text(model, Drafter(), 2, sampler)]
        assert all(isinstance(part.stack.ops, TritonOps) and len(part.graphs) for part in model._earlier_parts)

    assert texts[1:] == texts[:1] * 3


def test_a_type_whose_kernel_is_wrong_is_dequantized(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(triton_blocks, "block_product", lambda rows, weight, _bias: rows @ weight.low[0, :, :1])
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "qwen3", storage="Q4_0"))

    model = gguf_model(folder, "gguf", "cuda")

    assert isinstance(model.weights.embedding, torch.Tensor) and isinstance(model.weights.lm_head, FloatLinear)
    assert "kernels for blocks of Q4_0 cannot be used here" in caplog.text


@pytest.mark.full
def test_a_tree_that_is_wider_than_a_mask_of_bits_is_left_to_torch():
    gpu, cpu = gpu_model(), target("dense-qwen3")
    tree = DraftTree(7)
    tree.add_siblings(list(range(10, 80)), 0, "")
    logits = list[torch.Tensor]()
    for model in (gpu, cpu):
        generation = Generation(model)
        with model.pool.acquire_slot(generation.cache, 200):
            logits.append(model.forward(tree, generation.cache).logits.cpu())

    assert torch.allclose(*logits, atol=1e-4)


@each_row("weights", ["int8", "fp8"])
def test_a_product_with_eight_bits_is_one_launch(weights):
    """Its inputs are split, too."""
    matrix = torch.randn(48, 720, generator=torch.Generator().manual_seed(1))
    for dtype, bias in ((torch.bfloat16, None), (torch.float32, torch.ones(48))):
        source = WeightSource.from_tensor(matrix.to(dtype).cuda())
        linear = quant_linear(source, weights, None if bias is None else bias.cuda())
        rows = torch.randn(3, 720, generator=torch.Generator().manual_seed(2)).to(dtype).cuda()
        before = FakeGpu.current().launches
        out = linear(rows)

        assert isinstance(linear, ByteLinear) and linear.is_batch_invariant
        assert FakeGpu.current().launches - before == 1
        expected = functional.linear(rows.cpu().double(), linear.weight.dequantized(torch.float64).cpu())
        assert torch.allclose(out.cpu().double(), expected + (0 if bias is None else 1), 0.01, 0.05)
        assert linear.bytes == 48 * 768 + 4 * 48 + (0 if bias is None else 4 * 48)
        assert not hardware_warning(weights, torch.device("cuda"))


def test_a_product_with_four_bits_is_one_launch(gpu):
    """Its inputs are split, too."""
    device, rows = torch.device("cuda"), torch.ones(3, 1280).cuda()
    products = [(triton_blocks.block_product, block_linear.sample_weight(name, device)) for name in ("Q4_K", "NF4")]
    for multiply, weight in ((triton_linear.packed_product, int4_linear.sample_weight().to(device)), *products):
        multiply(rows, weight, None)
        gpu.reset()
        multiply(rows, weight, None)

        assert gpu.launches == 1


@each_row("kind, sampler", [("eagle3", GREEDY), ("mtp", Sampler(1.0, seed=4))])
def test_an_eagle_tree_of_kernels_is_that_of_the_host(kind, sampler, monkeypatch):
    """Of a text that is longer than the window of the head. The target is computed by torch, which is quicker here."""
    config, shapes = TreeConfig(3, 2, 6, min_level_probability=0.0), list[tuple[list[int], list[int]]]()
    for device in ("cuda", "cpu"):
        with monkeypatch.context() as patch:
            patch.setenv("SPECCHAT_KERNELS", "none")
            model = target("dense-llama", device=device)
        drafter = drafter_of(kind, model, config)
        writing = Generation(model, (drafter,))
        read(writing, TEXT)
        tree = drafter.propose(DraftContext(writing.tokens, sampler, 6, None))
        if device == "cuda":
            assert isinstance(drafter, EagleDrafter) and drafter.head.reads_cache_rows and drafter.head.graphs
        shapes.append((tree.tokens, tree.parents))

    assert shapes[0] == shapes[1]
    assert len(shapes[0][0]) == 7


@each_row("weights", [FLOAT_FORMAT, BLOCKS_OF_8_BITS, "int8", "fp8"])
def test_an_eagle_tree_is_at_most_120_launches(weights, monkeypatch):
    """What a graph replays: the pairs of the text, five levels with their ranking, and the packed result.

    The inputs of all products are split, as those of a real head are.
    """
    monkeypatch.setattr(triton_linear, "split_count", lambda *_: 2)
    model, gpu = gpu_model(), FakeGpu.current()
    head = load_head(inspect_head(saved_head("eagle3")), model, None, like().device, weights)
    assert isinstance(head, EagleHead)
    model.set_hidden_state_layers(head.hidden_state_layers)
    drafter, head.capture = EagleDrafter(head, model, TreeConfig()), None
    writing = Generation(model, (drafter,))
    read(writing, [7, 3, 9, 12, 40, 41])
    context = DraftContext(writing.tokens, GREEDY, 16, None)
    drafter.propose(context)  # compared with torch
    gpu.reset()
    drafter.propose(context)

    assert 0 < gpu.launches <= MOST_LAUNCHES_OF_A_TREE
