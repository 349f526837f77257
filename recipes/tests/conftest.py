"""A tiny tokenizer, a tiny network and a corpus of two files: enough to run every stage of training in seconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from recipes.train_tokenizer import save_tokenizer, train_tokenizer
from specchat_train.trainable_llama import ModelShape, TrainableLlama

CODE = '''import os
import sys


def total_price(items, rate=3):
    """Return the price of all items."""
    result = 0
    for item in items:
        if item > rate:
            result = result + item * rate
    return result


class Basket:
    """Holds items."""

    def add(self, item: str, count: int = 1) -> None:
        """Put an item into the basket."""
        self.items.append(item)
        self.count = count
'''

PROSE = "A generator is a function that yields.\n\nPython is a language that is easy to read and to write.\n"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    rows = [
        {"src": "a", "path": "shop.py", "licence": "MIT", "val": False, "text": CODE},
        {
            "src": "a",
            "path": "hidden.py",
            "licence": "MIT",
            "val": True,
            "text": CODE.replace("Basket", "SecretBasket"),
        },
        {"src": "a", "path": "read.md", "licence": "MIT", "val": False, "text": PROSE * 20},
    ]
    with gzip.open(folder / "A.jsonl.gz", "wt") as out:
        out.write("".join(json.dumps(row) + "\n" for row in rows) + '{"broken": "\\x"}\n')
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer([CODE, PROSE] * 3)


@pytest.fixture(scope="session")
def tokenizer_folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(tokenizer, folder, context=256)
    return folder


@pytest.fixture
def tiny_shape() -> ModelShape:
    return ModelShape(
        layers=7,
        hidden_size=64,
        num_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=512,
        max_positions=256,
        rope_theta=1e4,
    )


@pytest.fixture
def tiny_network(tiny_shape: ModelShape) -> TrainableLlama:
    torch.manual_seed(0)
    return TrainableLlama(tiny_shape)
