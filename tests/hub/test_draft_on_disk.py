"""A smaller model with the tokens of a target is found on this disk and named, and never taken."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from specchat.hub.draft_on_disk import draft_on_disk
from specchat.loading.load_plan import ComputeFeatures, plan_load
from specchat.weights.gguf.gguf_file import read_gguf
from specchat.weights.gguf.gguf_tokenizer import read_tokens
from tests.gguf_models import byte_tokenizer, network, write_gguf
from tests.tiny import tiny_profile

CPU_FEATURES = ComputeFeatures("cpu", has_cpu_bf16=False)
PUBLISHED = byte_tokenizer()
TOKENS, KINDS = PUBLISHED["tokenizer.ggml.tokens"], PUBLISHED["tokenizer.ggml.token_type"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A large model and a small one of the same family, as files."""
    folder = tmp_path_factory.mktemp("written")
    large = network("qwen3", hidden_size=192, intermediate_size=512)
    return write_gguf(folder / "large.gguf", "qwen3", model=large), write_gguf(folder / "small.gguf", "qwen3")


@pytest.fixture
def disk(written, tmp_path, monkeypatch):
    """The large model alone in a folder, and LM Studio's folder, which is empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    target = tmp_path / "models/large.gguf"
    target.parent.mkdir()
    shutil.copyfile(written[0], target)
    (tmp_path / ".lmstudio/models/someone/Small").mkdir(parents=True)
    return tmp_path


def plan(target, **settings):
    keys = {"models.target": str(target), "models.draft": "auto", "models.heads": ["auto"]}
    return plan_load(tiny_profile().override({**keys, **settings}), CPU_FEATURES)


def test_a_smaller_model_with_the_same_tokens_is_offered_in_one_line(disk, written):
    shutil.copyfile(written[1], disk / ".lmstudio/models/someone/Small/small.gguf")

    planned = plan(disk / "models/large.gguf")

    name = "lmstudio:someone/Small:small"
    assert f"{name} is on this disk, has the same tokens and can draft: --draft {name} takes it" in (
        planned.offered_draft()
    )
    assert planned.draft is None
    assert not replace(planned, given_way="a smaller context").offered_draft()  # the memory is full
    for refused in ({"models.draft": ""}, {"models.draft": str(written[1])}, {"models.heads": [str(disk)]}):
        assert not plan(disk / "models/large.gguf", **refused).offered_draft()


def test_a_file_beside_the_target_is_found_and_the_own_architecture_goes_first(disk, written):
    target = disk / "models/large.gguf"
    assert draft_on_disk(target) is None

    other = write_gguf(disk / "models/a-llama.gguf", "llama", storage="Q8_0")
    assert draft_on_disk(target) == str(other)

    shutil.copyfile(written[1], disk / "models/small.gguf")
    assert draft_on_disk(target) == str(disk / "models/small.gguf")
    assert draft_on_disk(disk / "models/small.gguf") is None


def test_other_tokens_models_of_embeddings_and_damaged_files_are_not_offered(disk):
    swapped = [TOKENS[0], *reversed(TOKENS[1:])]
    write_gguf(disk / "models/other.gguf", "qwen3", metadata={"tokenizer.ggml.tokens": swapped})
    write_gguf(disk / "models/vectors.gguf", "qwen3", metadata={"qwen3.pooling_type": 3})
    (disk / "models/damaged.gguf").write_bytes(b"GGUF and no more")

    assert draft_on_disk(disk / "models/large.gguf") is None


def test_padding_of_a_vocabulary_is_no_token(disk):
    padded = {
        "tokenizer.ggml.tokens": [*TOKENS, f"[PAD{len(TOKENS)}]"],
        "tokenizer.ggml.token_type": [*KINDS, 5],
    }
    small = write_gguf(disk / "models/small.gguf", "qwen3", metadata=padded)

    tokens = read_tokens(read_gguf(small))

    assert max(tokens.ordinary) == len(TOKENS) - 1
    assert draft_on_disk(disk / "models/large.gguf") == str(small)
