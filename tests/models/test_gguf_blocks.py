"""`--weights gguf`: a model is computed from the blocks of its file, and drafts do not change its text."""

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.llama import LlamaModel
from specchat.forward.native_ops import native_kernels
from specchat.forward.packed_linear import PackedLinear
from specchat.forward.quant_linear import hardware_warning
from specchat.models.gguf_conversion import converted_gguf
from specchat.models.llama_weights import load_llama
from tests.engine.test_lossless import DRAFTERS, PLANS, SAMPLERS, two_turns
from tests.gguf_models import FAMILIES, network, write_gguf
from tests.tiny import answer

needs_kernels = pytest.mark.skipif(native_kernels().library is None, reason="no C++ compiler here")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def load(folder, weights: str, dtype: torch.dtype = torch.float32) -> LlamaModel:
    return load_llama(folder, dtype, torch.device("cpu"), None, BatchLimits(prefill_chunk=16), quant_format=weights)


def logits(model: LlamaModel) -> torch.Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 32):
        return model.prefill(list(range(20)), cache).logits


@needs_kernels
@pytest.mark.parametrize(
    ("family", "tied"), [*((family, True) for family in FAMILIES), ("llama", False), ("qwen3", False), ("phi3", False)]
)
def test_the_logits_are_near_those_of_the_dequantized_weights(tmp_path, family, tied):
    """Rows of Q and K that the file stores in pairs, biases, fused layers and the output matrix are in their places."""
    path = write_gguf(tmp_path / "model.gguf", family, storage="Q8_0", model=network(family, tied))
    folder = converted_gguf(path)
    packed, floats = load(folder, "gguf"), load(folder, "float")

    assert isinstance(packed.weights.lm_head, PackedLinear)
    assert all(isinstance(layer.self_attn.qkv_proj, PackedLinear) for layer in packed.weights.layers)
    assert (logits(packed) - logits(floats)).norm() < 0.1 * logits(floats).norm()  # a row in a wrong place: above 1
    assert packed.bytes < floats.bytes


@needs_kernels
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("sampler", [pytest.param("greedy", marks=pytest.mark.full), "T0.8-penalty"])
def test_no_drafter_can_change_the_text(tmp_path, drafter, sampler):
    model = load(converted_gguf(write_gguf(tmp_path / "model.gguf", "qwen3", storage="Q4_1")), "gguf", torch.bfloat16)

    assert model.is_exact
    drafted = two_turns(model, DRAFTERS[drafter]("dense-qwen3"), SAMPLERS[sampler], PLANS["stop"])
    assert drafted == two_turns(model, Drafter(), SAMPLERS[sampler], PLANS["stop"])


@needs_kernels
def test_blocks_without_a_kernel_are_dequantized(tmp_path):
    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", "qwen3", storage="MXFP4"))
    model = load(folder, "gguf")

    assert not isinstance(model.weights.lm_head, PackedLinear)
    assert torch.equal(logits(model), logits(load(folder, "float")))


def test_without_native_kernels_they_are_dequantized_and_a_warning_says_so(tmp_path, monkeypatch):
    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", "qwen3", storage="Q4_0"))
    monkeypatch.setenv("SPECCHAT_KERNELS", "none")
    native_kernels.cache_clear()
    try:
        assert answer(load(folder, "gguf"), Drafter(), [7, 3, 9], Sampler())
        assert "dequantized to bf16 when they are loaded: SPECCHAT_KERNELS=none" in hardware_warning(
            "gguf", torch.device("cpu")
        )
    finally:
        native_kernels.cache_clear()


def test_a_folder_that_was_not_made_from_a_file_is_refused(tmp_path):
    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", "qwen3"))
    (folder / "gguf.json").unlink()

    with pytest.raises(ModelError, match="not made from a GGUF file; --weights gguf needs one, use --weights float"):
        load(folder, "gguf")


def test_a_file_that_has_changed_since_is_refused(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", "qwen3")
    folder = converted_gguf(path)
    path.write_bytes(path.read_bytes() + b"\0")

    with pytest.raises(ModelError, match="is gone or has changed since"):
        load(folder, "gguf")
