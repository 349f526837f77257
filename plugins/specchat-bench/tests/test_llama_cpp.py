"""llama.cpp beside us: its file is written as it reads it, and it is left out where there is none."""

import os
import struct
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from gguf.quants import quantize

from specchat.errors import InputError, ModelError
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_bench.compared_engines import PeerBench
from specchat_bench.llama_cpp import LIBRARY_VARIABLE, LlamaCppLimits, LlamaCppModel, find_library_folder, release_of
from specchat_bench.llama_gguf import STORAGE_TYPES, _permute_for_rope, write_gguf
from tests.counting import CONFIG, counting
from tests.each_row import each_row
from tests.tiny import saved

Q8_BLOCK_SIZE = 32  # weights that share a scale
needs_llama = pytest.mark.skipif(
    LIBRARY_VARIABLE not in os.environ, reason=f"{LIBRARY_VARIABLE} names no folder with libllama"
)


def test_a_file_begins_with_what_it_holds(tmp_path):
    write_gguf(counting(tmp_path), tmp_path / "model.gguf", "bf16")

    magic, version, tensors, values = struct.unpack("<4sIQQ", (tmp_path / "model.gguf").read_bytes()[:24])
    assert (b"GGUF", 3, 3 + 2 * (9 + 3)) == (magic, version, tensors)
    assert values > 10


@each_row("kind, bytes_of_a_weight", [("f32", 4), ("bf16", 2), ("q8_0", 1 + 2 / Q8_BLOCK_SIZE)])
def test_a_file_is_as_long_as_its_weights(tmp_path, kind, bytes_of_a_weight):
    write_gguf(counting(tmp_path), tmp_path / "model.gguf", kind)

    matrices = 2 * 1000 * 64 + 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 96)
    names = 1000 * (8 + 5 + 4)
    assert 0 < (tmp_path / "model.gguf").stat().st_size - matrices * bytes_of_a_weight < names + 10_000


def test_eight_bits_are_a_scale_and_whole_numbers():
    weights = torch.tensor([[1.0, -2.54] + [0.0] * (Q8_BLOCK_SIZE - 2)])

    packed = quantize(weights.numpy(), STORAGE_TYPES["q8_0"]).tobytes()

    assert 0.02 == pytest.approx(struct.unpack("<e", packed[:2])[0], rel=1e-3)
    assert (50, -127, 0) == struct.unpack("<3b", packed[2:5])
    assert Q8_BLOCK_SIZE + 2 == len(packed)


def test_halves_of_a_head_become_pairs_for_llama_alone():
    name, rows = "model.layers.0.self_attn.q_proj.weight", torch.arange(8.0)[:, None]
    config = {"model_type": "llama", "num_attention_heads": 2}

    assert [0, 2, 1, 3, 4, 6, 5, 7] == _permute_for_rope(rows, name, config).flatten().tolist()
    assert rows is _permute_for_rope(rows, name, {**config, "model_type": "qwen2"})


def test_a_family_that_is_spelled_otherwise_is_refused(tmp_path):
    with pytest.raises(ModelError, match="gemma2 cannot be written as GGUF"):
        write_gguf(saved("gemma2"), tmp_path / "model.gguf", "f32")


@each_row(
    "settings, kind",
    [({"dtype": "float32"}, "f32"), ({"dtype": "bfloat16"}, "bf16"), ({"dtype": "float32", "weights": "int8"}, "q8_0")],
)
def test_weights_are_stored_as_ours_are_held(tmp_path, settings, kind):
    models = {"target": str(counting(tmp_path)), "draft": "", **settings}
    engine = load_engine(Profile().override({f"models.{key}": value for key, value in models.items()}))

    assert kind == PeerBench(engine, (), 1).gguf_type


@each_row("told, release", [
    ({"llama_version": b"0.5.0", "ggml_version": b"0.25.1", "ggml_commit": b"0ad4a86"},
     "llama 0.5.0, ggml 0.25.1 (0ad4a86)"),
    ({"ggml_version": b"0.9.4"}, "ggml 0.9.4"), ({}, ""),
])  # fmt: skip
def test_a_release_is_as_far_known_as_the_library_tells_it(told, release):
    library = SimpleNamespace(**{name: Mock(return_value=text) for name, text in told.items()})

    assert release == release_of(library)


def test_a_folder_without_the_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path))

    with pytest.raises(InputError, match="no libllama in this folder"):
        find_library_folder()


@needs_llama
@each_row("kind", STORAGE_TYPES)
def test_llama_counts_as_we_do(tmp_path, kind):
    model = LlamaCppModel.from_folder(
        find_library_folder(), counting(tmp_path), kind, LlamaCppLimits(CONFIG["vocab_size"], 512, frozenset({411}))
    )

    assert [311, 312, 313] == model.generate([500, 400, 310], 3).tokens
    assert [411] == model.generate([410], 2).tokens  # which ends an answer
    model.close()


@needs_llama
@each_row("family", ["llama", "qwen2", "qwen3"])
def test_llama_writes_our_text(family):
    model = LlamaCppModel.from_folder(find_library_folder(), saved(family), "f32", LlamaCppLimits(96, 256))

    from specchat.engine.drafter import Drafter
    from specchat.engine.sampling import Sampler
    from tests.tiny import answer, target

    prompt = [5, 6, 7, 8, 9, 10, 11, 12]
    assert (
        answer(target(f"dense-{family}"), Drafter(), prompt, Sampler(), limit=20) == model.generate(prompt, 20).tokens
    )
    model.close()


@needs_llama
def test_a_timed_pass_leaves_the_text_of_llama_as_it_was():
    model = LlamaCppModel.from_folder(find_library_folder(), saved("llama"), "f32", LlamaCppLimits(96, 256))
    prompt = [5, 6, 7, 8, 9, 10, 11, 12]
    [written] = model.generate(prompt, 1).tokens
    model.prefill(prompt[:-1])

    assert all(model.pass_seconds(len(prompt) - 1, [20, 21, 22, 23][:rows]) > 0 for rows in (1, 4))

    assert written == model.decode_token([prompt[-1]])
    model.close()


@needs_llama
def test_llama_is_a_row_of_the_table(tmp_path):
    engine = load_engine(Profile().override({"models.target": str(counting(tmp_path)), "models.draft": ""}))

    [row] = PeerBench(engine, ([400, 401], [500, 501]), max_tokens=8, name_filter="llama.cpp").rows(print)

    assert ("plain / llama.cpp bf16", 2) == (row.name, row.identical_prompts)
