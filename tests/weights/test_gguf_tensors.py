"""A model is read from its GGUF file: blocks as they are with `--weights gguf`, else the numbers of the conversion."""

import numpy
import pytest
import torch
from safetensors.torch import load_file

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.linear.quant_linear import hardware_warning
from specchat.forward.llama.embedding_rows import EmbeddingRows
from specchat.forward.llama.gated_delta_net import GatedDeltaNet
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.gguf.gguf_file import read_gguf
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.gguf.gguf_tensors import GgufTensorFiles
from specchat.weights.llama_weights import load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids.gguf_conversion import safetensors_folder
from tests.each_row import each_row
from tests.engine.test_lossless import DRAFTERS, PLANS, SAMPLERS, two_turns
from tests.gguf_models import (
    CONVERTIBLE,
    EXPERT_FAMILIES,
    FAMILIES,
    HYBRID_FAMILIES,
    long_rope_gguf,
    network,
    stored_tensors,
    write_gguf,
)
from tests.gguf_networks import network as tiny_network
from tests.gguf_networks import write_network
from tests.tiny import answer

FULL_FAMILIES = [pytest.param(family, marks=pytest.mark.full) for family in ("qwen3moe", "qwen35")]
needs_kernels = pytest.mark.usefixtures("native_library")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def load(folder, weights: str, dtype: torch.dtype = torch.float32) -> LlamaModel:
    return load_llama(folder, dtype, torch.device("cpu"), None, BatchLimits(prefill_chunk=16), quant_format=weights)


def logits(model: LlamaModel) -> torch.Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 32):
        return model.prefill(list(range(20)), cache).logits


@each_row("family", [*FAMILIES, *EXPERT_FAMILIES, *HYBRID_FAMILIES], shares=3)
def test_the_logits_are_those_of_transformers(tmp_path, family):
    """Windows, layers without RoPE, norms, experts and their routing are as in the network that was written."""
    model, tokens = network(family), torch.arange(20)
    written = load(prepared_gguf(write_gguf(tmp_path / "model.gguf", family, model=model)), "float")

    with torch.inference_mode():
        expected = model(tokens[None]).logits[0, -1]
    assert (logits(written)[-1] - expected).norm() < 1e-5 * expected.norm()


@needs_kernels
@each_row(
    "family, tied",
    [
        *((family, True) for family in (*FAMILIES, *EXPERT_FAMILIES, *HYBRID_FAMILIES)),
        ("llama", False),
        ("qwen3", False),
        ("phi3", False),
    ],
    shares=3,
)
def test_the_logits_are_near_those_of_the_dequantized_weights(tmp_path, family, tied):
    """Rows of Q and K that the file stores in pairs, biases, fused layers and the output matrix are in their places."""
    path = write_gguf(tmp_path / "model.gguf", family, storage="Q8_0", model=network(family, tied))
    folder = prepared_gguf(path)
    packed, floats = load(folder, "gguf"), load(folder, "float")

    assert isinstance(packed.weights.lm_head, PackedLinear)
    mixers = [layer.self_attn for layer in packed.weights.layers]
    projections = [each.qkvz_proj if isinstance(each, GatedDeltaNet) else each.qkv_proj for each in mixers]
    assert all(isinstance(each, PackedLinear) for each in projections)
    assert (logits(packed) - logits(floats)).norm() < 0.1 * logits(floats).norm()  # a row in a wrong place: above 1
    assert packed.bytes < floats.bytes


@pytest.mark.dear
@needs_kernels
@pytest.mark.parametrize(
    "family", ["qwen3", *(pytest.param(each, marks=pytest.mark.full) for each in ("qwen3moe", "qwen35"))]
)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("sampler", [pytest.param("greedy", marks=pytest.mark.full), "T0.8-penalty"])
def test_no_drafter_can_change_the_text(tmp_path, drafter, sampler, family):
    model = load(prepared_gguf(write_gguf(tmp_path / "model.gguf", family, storage="Q4_1")), "gguf", torch.bfloat16)

    assert model.is_exact
    drafted = two_turns(model, DRAFTERS[drafter]("dense-qwen3"), SAMPLERS[sampler], PLANS["stop"])
    assert drafted == two_turns(model, Drafter(), SAMPLERS[sampler], PLANS["stop"])


def test_layers_that_draft_are_left_out(tmp_path):
    """Files of Qwen3.5 have one behind the others."""
    model = network("qwen35")
    path, last = tmp_path / "model.gguf", stored_tensors("qwen35", model)
    drafting = {name.replace("blk.1.", "blk.2."): each for name, each in last.items() if name.startswith("blk.1.")}
    drafting |= {"blk.2.nextn.eh_proj.weight": numpy.zeros((64, 128), numpy.float32)}
    metadata = {"qwen35.block_count": 3, "qwen35.nextn_predict_layers": 1}

    whole = load(prepared_gguf(write_gguf(path, "qwen35", model=model, metadata=metadata, tensors=drafting)), "float")

    assert len(whole.weights.layers) == 2
    plain = load(prepared_gguf(write_gguf(tmp_path / "plain.gguf", "qwen35", model=model)), "float")
    assert torch.equal(logits(whole), logits(plain))


@needs_kernels
def test_blocks_without_a_kernel_are_dequantized(tmp_path):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "qwen3", storage="MXFP4"))
    model = load(folder, "gguf")

    assert not isinstance(model.weights.lm_head, PackedLinear)
    assert torch.equal(logits(model), logits(load(folder, "float")))


def test_without_native_kernels_they_are_dequantized_and_a_warning_says_so(kernels_anew, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_KERNELS", "none")
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "qwen3", storage="Q4_0"))

    assert answer(load(folder, "gguf"), Drafter(), [7, 3, 9], Sampler())
    assert "dequantized to bf16 when they are loaded: SPECCHAT_KERNELS=none" in hardware_warning(
        "gguf", torch.device("cpu")
    )


def test_a_folder_that_was_not_made_from_a_file_is_refused(tmp_path):
    folder = safetensors_folder(prepared_gguf(write_gguf(tmp_path / "model.gguf", "qwen3")))

    with pytest.raises(ModelError, match="not made from a GGUF file; --weights gguf needs one, use --weights float"):
        load(folder, "gguf")


@each_row("weights", ["gguf", "float"])
def test_a_file_that_has_changed_since_is_refused(tmp_path, weights):
    path = write_gguf(tmp_path / "model.gguf", "qwen3")
    folder = prepared_gguf(path)
    path.write_bytes(path.read_bytes() + b"\0")

    with pytest.raises(ModelError, match="is gone or has changed since"):
        load(folder, weights)


@pytest.mark.full
@each_row("storage", ["F32", "Q8_0", "Q4_1"])
@each_row(
    "family, tied",
    [
        *((family, True) for family in (*FAMILIES, *CONVERTIBLE)),
        ("llama", False),
        ("qwen3", False),
        ("phi3", False),
    ],
)
def test_tensors_are_those_of_the_converted_folder(tmp_path, family, tied, storage):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", family, storage=storage, model=network(family, tied)))
    converted = load_file(safetensors_folder(folder) / "model.safetensors")

    files = GgufTensorFiles.from_folder(folder)

    assert set(converted) == set(files.locations)
    for name, expected in converted.items():
        assert files.shape(name) == expected.shape
        assert torch.equal(files.read_tensor(name), expected), name
        last = min(17, len(expected))
        assert torch.equal(files.read_rows(name, 1, last), expected[1:last]), name


@pytest.mark.full
@each_row("weights", ["float", "int8", "nf4"])
@each_row("tied", [True, False])
def test_other_formats_compute_what_they_compute_of_the_converted_folder(tmp_path, weights, tied):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", storage="Q8_0", model=network("llama", tied)))

    assert torch.equal(logits(load(folder, weights)), logits(load(safetensors_folder(folder), weights)))


@each_row("weights", ["gguf", "float"])
def test_a_pass_looks_its_embeddings_up_in_the_file(tmp_path, weights):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "gemma3", storage="Q8_0"))
    expected = load(safetensors_folder(folder), "float")
    model = load(folder, weights)

    assert isinstance(model.weights.embedding, EmbeddingRows)
    for tokens in ([5], [7, 5, 5, 287, 0], list(range(288)), []):
        assert torch.equal(model.embed(torch.tensor(tokens).long()), expected.embed(torch.tensor(tokens).long()))


def test_per_layer_embeddings_stay_in_the_file_too(tmp_path):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "gemma4", storage="Q8_0"))
    model, tokens = load(folder, "float"), torch.tensor([7, 5, 5, 287, 0])
    rows, expected = (each.weights.per_layer_input for each in (model, load(safetensors_folder(folder), "float")))

    assert isinstance(rows.embedding, EmbeddingRows)
    assert torch.equal(rows.embed(tokens, model.device), expected.embed(tokens, model.device))


def write_into(path, name, content, offset=0):
    with path.open("r+b") as file:
        file.seek(read_gguf(path).tensors[name].offset + offset)
        file.write(content)


@each_row("weights", ["gguf", "float"])
@each_row("tensor", ["blk.1.ffn_up.weight", "blk.1.attn_q.weight", "token_embd.weight"])
def test_weights_that_are_not_numbers_are_refused(tmp_path, weights, tensor):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    write_into(path, tensor, numpy.array([numpy.inf], numpy.float16).tobytes())

    with pytest.raises(ModelError, match=rf"damaged: {tensor} contains NaN or infinite values; download it again"):
        load(prepared_gguf(path), weights)


def test_embeddings_that_are_not_numbers_end_the_pass_that_reads_them(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0", model=network("llama", tied=False))
    write_into(path, "token_embd.weight", numpy.array([numpy.nan], numpy.float16).tobytes(), 19 * 68)
    model = load(prepared_gguf(path), "gguf")

    assert model.embed(torch.arange(19)).isfinite().all()
    with pytest.raises(ModelError, match=r"damaged: token_embd\.weight contains NaN or infinite values"):
        logits(model)


def test_a_file_that_changes_under_a_loaded_model_is_noticed(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    model = load(prepared_gguf(path), "float")
    known = model.embed(torch.tensor([1, 2]))
    path.write_bytes(path.read_bytes()[:-1])

    assert torch.equal(model.embed(torch.tensor([2, 1])), known.flip(0))
    with pytest.raises(ModelError, match=r"model\.gguf: has changed since it was opened"):
        model.embed(torch.tensor([3]))


def test_a_file_that_is_replaced_is_read_to_the_end(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    model = load(prepared_gguf(path), "float")
    expected = load(safetensors_folder(prepared_gguf(path)), "float").embed(torch.arange(9))
    write_gguf(tmp_path / "new.gguf", "qwen2").replace(path)

    assert torch.equal(model.embed(torch.arange(9)), expected)


def test_a_family_that_transformers_computes_needs_a_plugin(tmp_path):
    folder = prepared_gguf(long_rope_gguf(tmp_path / "model.gguf"))

    with pytest.raises(
        ModelError, match=r"model\.gguf: to convert it needs a plugin: .*/specchat-hybrids'; or use"
    ) as refused:
        load_model(folder, LoadOptions(dtype="float32", device="cpu"))

    assert "\n" not in str(refused.value)


def test_an_architecture_that_transformers_computes_needs_a_plugin(tmp_path):
    path = write_network(tmp_path / "model.gguf", "glm4", tiny_network("glm4"))

    with pytest.raises(ModelError, match=r"model\.gguf: glm4 needs a plugin: .*/specchat-hybrids'; or use"):
        prepared_gguf(path)
