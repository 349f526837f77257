"""Law 1 for prompts: a row of a text has the same bits however the text was cut, cancelled, rewound or resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from specchat.engine.decode import Generation
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.weights import kv_files
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.kv_files import KVFiles
from specchat.weights.llama_weights import load_llama
from tests.each_row import each_row
from tests.gguf_models import write_gguf
from tests.quantized_models import quantized_target
from tests.tiny import VOCABULARY, target

BF16 = torch.bfloat16
TEXT_TOKENS, ROWS = 420, 512  # rows and keys enough for every limit beyond which torch was once faster
PIECES = (1, 2, 7, 16, 33, 64, 127, 128, 129, 256, TEXT_TOKENS)  # rows of a pass
EVENTS = 10

pytestmark = pytest.mark.usefixtures("native_library")


def of_gguf_blocks(folder: Path) -> LlamaModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCHAT_CACHE", str(folder / "cache"))
        blocks = prepared_gguf(write_gguf(folder / "model.gguf", storage="Q4_0"))
    return load_llama(blocks, BF16, torch.device("cpu"), None, BatchLimits(), quant_format="gguf")


MODELS: dict[str, Callable[[Path], Model]] = {
    "float32": lambda _: target("dense-llama"),
    "bfloat16": lambda _: target("dense-llama", dtype=BF16),
    "int8 KV and a window": lambda _: target("dense-mistral", dtype=BF16, has_int8_kv=True),
    "int8": lambda _: quantized_target("int8", "bfloat16"),
    "GGUF blocks": of_gguf_blocks,
    "experts": lambda _: target("dense-qwen2_moe", dtype=BF16),
    "layer inputs": lambda _: target("dense-gemma4"),
    "recurrent": lambda _: target("dense-qwen3_5", dtype=BF16),
}


class Reader:
    """Reads a text in random pieces, between which anything happens that happens to conversations."""

    def __init__(self, model: Model, seed: int, folder: Path) -> None:
        self.model, self.random = model, Random(seed)
        self.text = [self.random.randrange(VOCABULARY - 2) for _ in range(TEXT_TOKENS)]
        self.generation, self.files = Generation(model), KVFiles(folder, str(seed))
        self.generation.replace_tokens(list(self.text))

    @torch.inference_mode()
    def run(self) -> dict[str, Tensor]:
        """What the last events left: the rows of the whole text, and the logits that follow it."""
        events = (self.read, self.read, self.decode, self.cancel, self.rewind, self.edit, self.resume)
        for event in self.random.choices(events, k=EVENTS):
            event()
        while self.generation.cache.length < TEXT_TOKENS - 1:
            self.read()
        return self.rows()

    @torch.inference_mode()
    def rows(self) -> dict[str, Tensor]:
        cache = self.generation.cache
        with self.model.pool.acquire_slot(cache, ROWS):
            logits = self.model.forward(DraftTree(self.text[-1]), cache).logits
            stacks = self.model.pool.copy_rows(cache, cache.length)
        return {"logits": logits} | {str(shape): stack.clone() for shape, stack in stacks.items()}

    def read(self, text: list[int] | None = None) -> None:
        """A piece of the prompt."""
        cache = self.generation.cache
        piece = (text or self.text)[cache.length : -1][: self.random.choice(PIECES)]
        if piece:
            with self.model.pool.acquire_slot(cache, ROWS):
                self.model.prefill(piece, cache)

    def decode(self) -> None:
        """Steps over trees, of which some nodes are the text."""
        cache = self.generation.cache
        for _ in range(3):
            ahead = self.text[cache.length : -1][: self.random.randint(1, 6)]
            if not ahead:
                return
            tree, path = DraftTree(ahead[0]), [0]
            for token in ahead[1:]:
                tree.add_siblings([token + 1, token + 2], path[-1], "")
                path.append(tree.add(token, path[-1]))
            with self.model.pool.acquire_slot(cache, ROWS):
                self.model.forward(tree, cache)
                cache.commit(path[: self.random.randint(1, len(path))])

    def cancel(self) -> None:
        """A pass of which nothing is kept."""
        cache = self.generation.cache
        tree = DraftTree(self.text[cache.length])
        tree.add_chain([1, 2, 3])
        with self.model.pool.acquire_slot(cache, ROWS):
            self.model.forward(tree, cache)

    def rewind(self) -> None:
        self.generation.cache.rollback(self.random.randint(0, self.generation.cache.length))

    def edit(self) -> None:
        """Another version of the text, and back."""
        kept = self.random.randint(1, TEXT_TOKENS - 1)
        other = self.text[:kept] + [1 + token for token in self.text[kept:]]
        self.generation.replace_tokens(other)
        self.read(other)
        self.generation.tokens = other[: self.generation.cache.length + 1]
        self.generation.replace_tokens(list(self.text))

    def resume(self) -> None:
        """From a file of another text with the same beginning."""
        self.generation.tokens = self.text[: self.generation.cache.length + 1]
        if rows := self.generation.copy_rows():  # states have none before the first checkpoint
            self.files.store("text", rows, 2**30)
        known = self.files.longest_prefix(self.text[: self.random.randint(1, TEXT_TOKENS)])
        self.generation.close()
        self.generation = Generation(self.model)
        if known is not None:
            self.generation.restore(known)
        self.generation.replace_tokens(list(self.text))


def different_seeds(model: Model, seeds: range, folder: Path) -> list[int]:
    """The seeds whose events leave other rows than one pass over the text."""
    different = []
    for seed in seeds:
        reader, whole = Reader(model, seed, folder), Generation(model)
        with model.pool.acquire_slot(whole.cache, ROWS):
            model.prefill(reader.text[:-1], whole.cache)
        found = reader.run()
        reader.generation = whole
        expected = reader.rows()
        if any(not torch.equal(found[name], expected[name]) for name in expected):
            different.append(seed)
        whole.close()
    return different


@pytest.fixture(autouse=True)
def _short_files(monkeypatch):
    monkeypatch.setattr(kv_files, "MIN_TOKENS", 2)


@each_row("name", MODELS, shares=3)
def test_rows_do_not_depend_on_how_a_text_was_cut(name, tmp_path):
    assert different_seeds(MODELS[name](tmp_path), range(5), tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_rows_do_not_depend_on_any_of_many_cuts(name, tmp_path):
    assert different_seeds(MODELS[name](tmp_path), range(5, 68), tmp_path) == []
