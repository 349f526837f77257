"""Decoder layers in one call: the bits of the operations one by one, and no access beyond a tensor."""

import ctypes
from dataclasses import replace
from functools import partial

import pytest
import torch

from specchat.drafters import native_suffix
from specchat.drafters.eagle import native_tree
from specchat.engine.model import FINAL_NORM
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import BatchLimits, ForwardDepth
from specchat.forward.llama.decoder_layer import DecoderStack
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.native.native_ops import NativeBorderError, native_kernels
from specchat.forward.native.native_stack import STRUCTURES, NativeProgram, NativeStack
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_weights import load_llama
from tests.each_row import each_row
from tests.engine.test_model import branching
from tests.gguf_models import write_gguf
from tests.tiny import SHAPES, VARIATIONS, target
from tests.tiny_heads import tiny_head

pytestmark = pytest.mark.usefixtures("native_library")

TEXT = list(range(5, 45))  # longer than the sliding windows and the chunks of a prefill
OTHER_PARTS = {  # in layers of these families: experts, recurrences, per-layer inputs, scaled outputs, wide norms
    "gemma4", "gemma4_unified", "granite", "olmo2", "olmo3", "qwen3_moe", "mixtral", "qwen2_moe", "olmoe", "gpt_oss",
    "qwen3_5", "qwen3_next", "qwen3_5_moe",
}  # fmt: skip
NATIVE = sorted({*SHAPES, *VARIATIONS} - OTHER_PARTS)


def results(model: LlamaModel) -> list[torch.Tensor]:
    """Logits and hidden states of a prompt, of a tree and of draft passes, and the rows of the cache."""
    model.set_hidden_state_layers((0, 2, FINAL_NORM))
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 200), torch.inference_mode():
        outputs = [
            model.prefill(TEXT[start : start + model.prefill_chunk], cache)
            for start in range(0, len(TEXT), model.prefill_chunk)
        ]
        outputs.append(model.forward(branching(), cache))
        drafts = [model.forward_early_exit([7, 8], cache, 2)]
        rows = [stack.clone() for stack in cache.require_slot().stacks.values()]
        return [each for output in outputs for each in (output.logits, output.hidden_states)] + drafts + rows


def operations_one_by_one(monkeypatch: pytest.MonkeyPatch, model: LlamaModel) -> list[torch.Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(NativeStack, "forward", DecoderStack.forward)
        return results(model)


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every pass that is one call."""
    counts, run = list[int](), NativeProgram.run

    def counted(program, rows, *arguments):
        counts.append(len(rows))
        return run(program, rows, *arguments)

    monkeypatch.setattr(NativeProgram, "run", counted)
    return counts


@pytest.mark.full
@each_row("name", sorted({*SHAPES, *VARIATIONS}))
def test_these_families_have_layers_that_one_call_computes(name):
    model = target(f"dense-{name}")
    assert isinstance(model, LlamaModel)

    assert isinstance(model._stack, NativeStack) == (name in NATIVE)


@each_row("is_int8", [False, True])
@each_row("dtype", [torch.float32, torch.bfloat16])
@each_row("name", NATIVE, shares=4)
def test_a_pass_has_the_bits_of_its_operations(monkeypatch, name, dtype, is_int8):
    model = target(f"dense-{name}", dtype=dtype, has_int8_kv=is_int8)
    assert isinstance(model, LlamaModel)
    expected, counts = operations_one_by_one(monkeypatch, model), count_calls(monkeypatch)

    ours = results(model)

    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))
    assert [16, 16, 8, len(branching()), 2] == counts


@each_row("family, storage", [("qwen2", "Q4_1"), ("qwen2", "Q8_0"), ("qwen3moe", "Q8_0"), ("mixtral", "Q4_1")])
def test_blocks_of_a_file_have_the_bits_of_the_operations(monkeypatch, tmp_path, family, storage):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", family, storage=storage))
    limits = BatchLimits(prefill_chunk=16)
    model = load_llama(folder, torch.bfloat16, torch.device("cpu"), None, limits, quant_format="gguf")
    expected, counts = operations_one_by_one(monkeypatch, model), count_calls(monkeypatch)

    assert all(torch.equal(one, other) for one, other in zip(results(model), expected, strict=True))
    assert 5 == len(counts)


def test_a_growing_cache_is_read_where_it_lies_now(monkeypatch):
    model = target("dense-llama")

    def logits():
        cache = model.pool.open()
        with torch.inference_mode():
            for rows in (40, 3000):  # the second is another slot
                with model.pool.acquire_slot(cache, rows):
                    output = model.prefill(TEXT[:16], cache).logits
        return output

    ours = logits()
    monkeypatch.setattr(NativeStack, "forward", DecoderStack.forward)

    assert torch.equal(ours, logits())


@each_row("kind", ["eagle3", "mtp"])
def test_the_layers_of_a_head_are_one_call(monkeypatch, kind):
    model = target("dense-llama")
    head, counts = tiny_head(kind, model), count_calls(monkeypatch)

    def output():
        nodes, limits = BatchLimits().nodes(branching()), BatchLimits()
        width = len(head.hidden_state_layers) * 48
        states = torch.randn(len(nodes.depths), width, generator=torch.Generator().manual_seed(1))
        cache, fused = head.pool.open(), head.fuse(states)
        with head.pool.acquire_slot(cache, 20):
            embedded = head.embed(torch.tensor(nodes.tokens))
            return head.forward(fused, embedded, limits.batch_for_nodes(nodes, cache), cache).logits

    ours, calls = output(), len(counts)
    monkeypatch.setattr(NativeStack, "forward", DecoderStack.forward)

    assert calls == 1
    assert torch.equal(ours, output())


def test_a_mask_or_a_cache_that_does_not_fit_is_not_read():
    model = target("dense-llama")
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 20):
        model.prefill([1, 2, 3], cache)
        stack, limits = model._stack, BatchLimits()
        batch = model._part.batch(limits.nodes(branching()), cache)
        small = AttentionMask(torch.ones(2, 2, dtype=torch.bool), 2, torch.ones(1))
        rows = torch.zeros(len(branching()), 48)
        for wrong in (
            replace(batch, masks={None: small}),
            replace(batch, kv_location=partial(cache.kv_location, kv_length=99999)),
            replace(batch, positions=torch.zeros(2, dtype=torch.long)),
        ):
            with pytest.raises(NativeBorderError):
                stack.forward(rows, wrong, ForwardDepth(3))


@each_row(
    "structures, size",
    [(STRUCTURES, "stack_bytes"), (native_tree.STRUCTURES, "draft_bytes"), ((native_suffix.Search,), "suffix_bytes")],
)
def test_python_and_the_kernel_have_structures_of_the_same_size(structures, size):
    sizes = [native_kernels().call(size, index) for index in range(len(structures))]

    assert [ctypes.sizeof(each) for each in structures] == sizes
