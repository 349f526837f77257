"""A GGUF file from anywhere: each that is damaged, hostile or unknown gives one clear line at once."""

import json
import random
import struct
from time import process_time

import numpy
import pytest

from specchat.errors import ModelError, SpecchatError
from specchat.weights.gguf.gguf_families import map_model
from specchat.weights.gguf.gguf_file import is_gguf, read_gguf
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.gguf.gguf_tokenizer import tokenizer_files
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.gguf_models import network, write_gguf

HUGE = 2**60
SECONDS = 5  # of the processor, which other processes do not delay; a refusal takes milliseconds


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "valid.gguf").read_bytes()


def text(content):
    return struct.pack("<Q", len(content)) + content.encode()


def header(tensors=0, pairs=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, pairs)


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def record(name="token_embd.weight", sizes=(32, 4), kind=0, offset=0):
    sizes = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return header(tensors=1) + text(name) + sizes + struct.pack("<IQ", kind, offset)


FAULTS = {
    "empty": (b"", "not a GGUF file"),
    "other magic": (header(magic=b"GGJT") + bytes(100), "not a GGUF file"),
    "version 1": (header(version=1) + bytes(100), "GGUF version 1 is not supported"),
    "big-endian": (header(version=3 << 24) + bytes(100), "big-endian"),
    "2^60 tensors": (header(tensors=HUGE) + bytes(100), r"claims 1,152,921,504,606,846,976 tensors"),
    "2^60 entries": (header(pairs=HUGE) + bytes(100), "claims .* metadata entries"),
    "2^60 items": (header(0, 1) + pair("a", 9, struct.pack("<IQ", 4, HUGE)) + bytes(100), "claims .* items in a"),
    "2^60 strings": (header(0, 1) + pair("a", 9, struct.pack("<IQ", 8, HUGE)) + bytes(100), "claims .* items in a"),
    "long string": (header(0, 1) + pair("a", 8, struct.pack("<Q", 2**33)) + bytes(100), "a claims 8,589,934,592 bytes"),
    "long key": (header(0, 1) + struct.pack("<Q", HUGE) + bytes(100), "a metadata key claims"),
    "unknown value": (header(0, 1) + pair("a", 77, bytes(100)), "a has the unknown type 77"),
    "nested array": (header(0, 1) + pair("a", 9, struct.pack("<IQ", 9, 1) + bytes(100)), "unsupported type 9"),
    "a key twice": (header(0, 2) + 2 * pair("a", 4, bytes(4)) + bytes(100), "a is there twice"),
    "alignment 0": (header(0, 1) + pair("general.alignment", 4, bytes(4)) + bytes(100), "general.alignment is 0"),
    "no tensors": (header(), "has no tensors"),
    "unknown quantization": (record(kind=99) + bytes(1000), "quantization type 99, which is unknown"),
    "offset outside": (record(offset=2**40) + bytes(1000), r"ends at byte 1,099,511,628,\d+, and the file has 1,\d+"),
    "shape beyond the file": (record(sizes=(2**32, 2**32, 2**32)) + bytes(1000), "ends at byte"),
    "no such shape": (record(sizes=(0, 4)) + bytes(1000), r"has the shape \[0, 4\]"),
    "half a block": (record(sizes=(33, 4), kind=3) + bytes(1000), "in blocks of 32"),
    "ten dimensions": (record(sizes=(1,) * 10) + bytes(1000), "has 10 dimensions"),
}


@each_row("fault", FAULTS)
def test_a_faulty_header_is_one_clear_line_at_once(tmp_path, fault):
    content, message = FAULTS[fault]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    started = process_time()

    with pytest.raises(ModelError, match=message) as caught:
        prepared_gguf(path)

    assert process_time() - started < SECONDS
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert nothing_prepared(tmp_path)


def nothing_prepared(tmp_path):
    return not any(path.is_dir() for path in (tmp_path / "cache").glob("gguf/*"))


def test_a_large_sparse_file_is_refused_at_once(tmp_path):
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(header(0, 1) + pair("a", 9, struct.pack("<IQ", 8, 2**21)))
        file.truncate(2**36)
    started = process_time()

    with pytest.raises(ModelError, match="has no tensors"):
        prepared_gguf(path)

    assert process_time() - started < SECONDS


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path, valid):
    path = tmp_path / "model.gguf"
    for length in [*range(0, 400, 37), *range(400, len(valid), len(valid) // 60), len(valid) - 1]:
        path.write_bytes(valid[:length])
        with pytest.raises(ModelError, match="GGUF"):
            read_gguf(path)


@pytest.mark.full
def test_random_changes_of_the_header_never_raise_anything_but_a_clear_line(tmp_path, valid):
    path = tmp_path / "model.gguf"
    chance = random.Random(3)
    end_of_header = valid.index(b"output_norm.weight") + 60
    for _ in range(300):
        content = bytearray(valid)
        for _ in range(chance.choice([1, 1, 4])):
            content[chance.randrange(end_of_header)] = chance.randrange(256)
        path.write_bytes(content)
        try:
            file = read_gguf(path)
            tokenizer_files(path, file.metadata, map_model(file).config["vocab_size"])
        except SpecchatError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_a_missing_file_and_a_folder_are_clear_errors(tmp_path):
    with pytest.raises(ModelError, match=r"none\.gguf: cannot be read: No such file"):
        read_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        read_gguf(tmp_path)


CONTRADICTIONS = {
    "another architecture": (
        {"general.architecture": "mamba"},
        "the architecture mamba is not supported; supported are",
    ),
    "experts of a dense family": (
        {"general.architecture": "qwen3", "qwen3.expert_count": 8},
        "qwen3 with experts is not supported",
    ),
    "a known name that is not read": (
        {"general.architecture": "llama4"},
        r"Llama 4 \(llama4\) cannot be read from GGUF; use the \*\.safetensors",
    ),
    "experts of which no number is chosen": ({"llama.expert_count": 8}, "llama.expert_used_count is missing"),
    "experts without tensors": (
        {"llama.expert_count": 8, "llama.expert_used_count": 2},
        "the tensor blk.0.ffn_gate_inp.weight is missing",
    ),
    "experts that are weighed otherwise": (
        {"llama.expert_count": 8, "llama.expert_weights_scale": 2.5},
        "llama with expert_weights_scale = 2.5",
    ),
    "no width": ({"llama.embedding_length": None}, r"llama\.embedding_length is missing"),
    "too many layers": ({"llama.block_count": 3}, r"the tensor blk\.2\.attn_norm\.weight is missing"),
    "too few layers": ({"llama.block_count": 1}, r"llama with the tensor blk\.1\..* is not supported"),
    "a million layers": ({"llama.block_count": 2**20}, r"llama\.block_count is 1048576"),
    "text as a number": ({"llama.block_count": "two"}, r"llama\.block_count is two; download the file again"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, r"has no tokenizer\.ggml\.tokens"),
    "too many tokens": ({"tokenizer.ggml.tokens": [str(number) for number in range(300)]}, "has 300 tokens, but 288"),
    "a token twice": ({"tokenizer.ggml.tokens": ["a"] * 9}, "has a token twice"),
    "few types": ({"tokenizer.ggml.token_type": [1]}, "has no type for some tokens"),
    "another tokenizer": ({"tokenizer.ggml.model": "bert"}, "the tokenizer 'bert' is not supported"),
    "other words": ({"tokenizer.ggml.pre": "klingon"}, "splits words as 'klingon', which is not supported"),
    "no merges": ({"tokenizer.ggml.merges": None}, r"has no tokenizer\.ggml\.merges; download the file again"),
    "another scaling": ({"llama.rope.scaling.type": "longrope"}, "the RoPE scaling longrope is not supported"),
    "a template that cannot be read": ({"tokenizer.chat_template": "{% for %}"}, "its chat template cannot be read"),
    "another softmax": ({"llama.attention.scale": 0.5}, r"llama with attention\.scale = 0\.5 is not supported"),
    "a shard without its name": ({"split.count": 3}, "is one of 3 shards, but is not named like"),
}


def test_a_tensor_of_another_shape_than_the_metadata_says_is_refused_by_the_loader(tmp_path):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", metadata={"llama.embedding_length": 128}))

    with pytest.raises(ModelError, match=r"has the shape \[288, 64\], and config\.json means \[288, 128\]"):
        load_model(folder, LoadOptions())


def test_an_output_matrix_that_is_smaller_than_the_vocabulary_is_refused_by_the_loader(tmp_path):
    """Tied embeddings and an output matrix at once are no contradiction: a file with one uses it."""
    output = {"output.weight": numpy.zeros((256, 64), numpy.float32)}
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", tensors=output))

    with pytest.raises(
        ModelError, match=r"lm_head\.weight has the shape \[256, 64\], and config\.json means \[288, 64\]"
    ):
        load_model(folder, LoadOptions())


EXPERT_CONTRADICTIONS = {
    "another count": ({"qwen3moe.expert_count": 8}, "ffn_gate_exps.weight has the shape .6, 64, 64., and .* 8 experts"),
    "more chosen than there are": ({"qwen3moe.expert_used_count": 7}, "a token cannot choose 7 of 6 experts"),
    "no experts": ({"qwen3moe.expert_count": 0}, r"qwen3moe\.expert_count is 0; download the file again"),
    "no count": ({"qwen3moe.expert_count": None}, r"qwen3moe\.expert_count is missing; download the file again"),
    "wider experts": ({"qwen3moe.expert_feed_forward_length": 96}, r"has the shape \[64, 64\], and .* \[96, 64\]"),
}


@each_row("contradiction", EXPERT_CONTRADICTIONS)
def test_experts_that_do_not_fit_are_one_clear_line(tmp_path, contradiction):
    metadata, message = EXPERT_CONTRADICTIONS[contradiction]
    path = write_gguf(tmp_path / "model.gguf", "qwen3moe", metadata=metadata)

    with pytest.raises(ModelError, match=message) as caught:
        load_model(prepared_gguf(path), LoadOptions())

    assert str(caught.value).startswith(f"{path}: ")  # not the folder that was made from it
    assert "\n" not in str(caught.value)


def test_experts_that_end_early_are_named_and_nothing_is_prepared(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", "qwen3moe")
    last = max(read_gguf(path).tensors.values(), key=lambda tensor: tensor.offset * ("_exps" in tensor.name))
    with path.open("r+b") as file:
        file.truncate(last.offset + last.bytes // 2)

    with pytest.raises(ModelError, match=r"ends at byte .*, and the file has .*; download it again"):
        prepared_gguf(path)

    assert nothing_prepared(tmp_path)


@each_row("contradiction", CONTRADICTIONS)
def test_metadata_that_does_not_fit_is_one_clear_line(tmp_path, contradiction):
    metadata, message = CONTRADICTIONS[contradiction]
    path = write_gguf(tmp_path / "model.gguf", metadata=metadata)

    with pytest.raises(ModelError, match=message) as caught:
        prepared_gguf(path)

    assert "\n" not in str(caught.value)
    assert nothing_prepared(tmp_path)


GEMMA4_CONTRADICTIONS = {
    "experts": ({"expert_count": 8}, r"gemma4\.expert_used_count is missing"),
    "no size of heads with a window": (
        {"attention.key_length_swa": None},
        r"gemma4\.attention\.key_length_swa is",
    ),
    "a part of each head is rotated": ({"rope.dimension_count_swa": 8}, "with RoPE on a part of each head is not supp"),
    "sizes of fewer layers": ({"feed_forward_length": []}, r"gemma4\.feed_forward_length is missing"),
    "keys of other layers as text": ({"attention.shared_kv_layers": "two"}, "shared_kv_layers is two"),
    "more shared keys than layers": ({"attention.shared_kv_layers": 9}, "the keys of an earlier layer of its kind"),
    "no per-layer embeddings": (
        {"embedding_length_per_layer_input": 0},
        "with the tensor per_layer_model_proj",
    ),
    "wider layers than their tensors": ({"feed_forward_length": [96, 96, 96, 96, 96]}, r"has the shape \[192, 64\]"),
}


@pytest.fixture(scope="module")
def gemma4():
    return network("gemma4")


@each_row("contradiction", GEMMA4_CONTRADICTIONS)
def test_sizes_of_each_layer_that_do_not_fit_are_one_clear_line(tmp_path, gemma4, contradiction):
    metadata, message = GEMMA4_CONTRADICTIONS[contradiction]
    entries = {f"gemma4.{key}": value for key, value in metadata.items()}

    path = write_gguf(tmp_path / "model.gguf", "gemma4", metadata=entries, model=gemma4)

    with pytest.raises(ModelError, match=message) as caught:
        load_model(prepared_gguf(path), LoadOptions())

    assert "\n" not in str(caught.value)


HYBRID_CONTRADICTIONS = {
    "no key heads": ({"ssm.group_count": None}, r"qwen35\.ssm\.group_count is missing"),
    "key heads that cannot be shared": ({"ssm.group_count": 3}, r"attn_qkv\.weight has the shape \[128, 64\]"),
    "wider values than their tensors": (
        {"ssm.inner_size": 128},
        r"blk\.0\.attn_qkv\.weight has the shape \[128, 64\], and the file says 192 rows",
    ),
    "values of no width": ({"ssm.inner_size": 2}, r"has the shape \[128, 64\], and the file says 64 rows"),
    "more recurrent layers": ({"full_attention_interval": 3}, r"the tensor blk\.1\.attn_qkv\.weight is missing"),
    "a wider convolution": (
        {"ssm.conv_kernel": 5},
        r"has the shape \[128, 1, 4\], and .* \[128, 1, 5\]",
    ),
    "RoPE on more than a head": ({"rope.dimension_count": 32}, "with RoPE on more than each head"),
    "layers that only draft": ({"nextn_predict_layers": 2}, r"qwen35\.block_count is 0"),
    "drafting layers as text": ({"nextn_predict_layers": "one"}, r"qwen35\.nextn_predict_layers is one"),
    "experts": ({"expert_count": 8}, "qwen35 with experts is not supported"),
}


@each_row("contradiction", HYBRID_CONTRADICTIONS)
def test_recurrent_layers_that_do_not_fit_are_one_clear_line(tmp_path, contradiction):
    metadata, message = HYBRID_CONTRADICTIONS[contradiction]
    entries = {f"qwen35.{key}": value for key, value in metadata.items()}

    with pytest.raises(ModelError, match=message) as caught:
        load_model(prepared_gguf(write_gguf(tmp_path / "model.gguf", "qwen35", metadata=entries)), LoadOptions())

    assert "\n" not in str(caught.value)


def test_queries_that_are_scaled_later_end_the_context_there(tmp_path):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "mistral3"))

    assert json.loads((folder / "config.json").read_text())["max_position_embeddings"] == 256


def test_keys_that_no_layer_reads_are_left_in_the_file(tmp_path, gemma4):
    """Published Gemma 4 checkpoints may have keys of layers that read those of an earlier layer."""
    unread = {"blk.4.attn_k.weight": numpy.zeros((64, 64), numpy.float32)}
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "gemma4", tensors=unread, model=gemma4))

    assert "blk.4.attn_k" not in (folder / "gguf.json").read_text()


@each_row("kind", ["I8", "F64"])
def test_blocks_that_cannot_be_read_are_named(tmp_path, kind):
    path = write_gguf(tmp_path / "model.gguf", raw_types={"blk.0.ffn_up.weight": kind})

    with pytest.raises(ModelError, match=rf"blk\.0\.ffn_up\.weight is quantized as {kind}, which cannot be read here"):
        prepared_gguf(path)


def test_all_shards_are_read_from_the_name_of_any_and_a_missing_one_is_named(tmp_path):
    write_gguf(tmp_path / "model.gguf", shard_tensors=8)
    shards = sorted(tmp_path.glob("*.gguf"))
    assert [path.name for path in shards] == [f"model-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]

    whole = read_gguf(shards[2])

    assert whole.path == shards[0]
    assert len(whole.tensors) == 20
    assert prepared_gguf(shards[1]) == prepared_gguf(shards[0])
    shards[1].unlink()
    with pytest.raises(ModelError, match=r"its shard model-00002-of-00003\.gguf is missing"):
        read_gguf(shards[0])


OTHER_SHARDS = {
    "of a model in more shards": ({"shard_tensors": 4}, "its header says shard 2 of 5, and its name shard 2 of 3"),
    "with the name of another shard": (None, "its header says shard 3 of 3, and its name shard 2 of 3"),
    "with more tensors": (
        {"shard_tensors": 10, "model": {"num_hidden_layers": 3}},
        "its 3 shards have 22 tensors, and the model 20; is one of another model",
    ),
    "of a larger model": (
        {"shard_tensors": 8, "model": {"num_hidden_layers": 2, "hidden_size": 128}},
        "has the shape",
    ),
}


@each_row("other", OTHER_SHARDS)
def test_a_shard_of_another_model_is_one_clear_line(tmp_path, other):
    options, message = OTHER_SHARDS[other]
    write_gguf(tmp_path / "model.gguf", shard_tensors=8)
    second = tmp_path / "model-00002-of-00003.gguf"
    if options is None:
        replacement = tmp_path / "model-00003-of-00003.gguf"
    else:
        model = options.pop("model", None)
        write_gguf(tmp_path / "other" / "model.gguf", model=network("llama", **model) if model else None, **options)
        replacement = sorted((tmp_path / "other").glob("*.gguf"))[1]
    second.write_bytes(replacement.read_bytes())

    with pytest.raises(ModelError, match=message) as caught:
        load_model(prepared_gguf(tmp_path / "model-00001-of-00003.gguf"), LoadOptions())

    assert "\n" not in str(caught.value)


def test_a_gguf_file_is_recognized_by_its_first_bytes(tmp_path, valid):
    (tmp_path / "sha256-abc").write_bytes(valid)
    (tmp_path / "note.txt").write_text("GGU")

    assert is_gguf(tmp_path / "sha256-abc")
    assert not is_gguf(tmp_path / "note.txt")
    assert not is_gguf(tmp_path)
    assert not is_gguf(tmp_path / "none")
