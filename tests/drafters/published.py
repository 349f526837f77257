"""Heads in the formats of their publishers, with the outputs of the publishers' code: the golden files.

`golden/make.py` has their origin. Each is a complete checkpoint of a few thousand numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache import KVLayout, KVPool
from specchat.forward.batch import RowBatch

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.safetensors"))
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Published:
    """A checkpoint, its inputs, and the outputs of its publisher's code."""

    name: str
    head: dict[str, Tensor]
    config: dict[str, Any]
    file: str
    given: dict[str, Tensor]
    oracle: str
    second_is_alone: bool  # the second run does not see the pairs of the first

    def save(self, folder: Path, head: dict[str, Tensor] | None = None, **config: Any) -> Path:
        """The published folder, with changed tensors or config keys; None removes one."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {key: value.clone() for key, value in (self.head | (head or {})).items() if value is not None}
        if self.file.endswith(".safetensors"):
            save_file(tensors, folder / self.file)
        else:
            torch.save(tensors, folder / self.file)
        config = {key: value for key, value in (self.config | config).items() if value is not None}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    @property
    def target(self) -> FakeTarget:
        """A target with the hidden size and the depth of the config."""
        embedding = self.given["target.embedding"]
        hidden_size = self.config.get("target_hidden_size") or embedding.shape[1]
        depth = 3 if "num_nextn_predict_layers" in self.config else self.config.get("num_target_layers", 6)
        return FakeTarget(
            functional.pad(embedding, (0, hidden_size - embedding.shape[1])), self.given["target.output"], depth
        )


class FakeTarget:
    """What a head needs of a target: embeddings, LM head, depth and context window."""

    context_window, embedding_table = 65536, None

    def __init__(self, embedding: Tensor, output: Tensor, layers: int) -> None:
        self.embedding, self.output, self.vocab_size = embedding, output, len(output)
        self.pool = KVPool(KVLayout(((1, 8, 8),) * layers, embedding.dtype, CPU))
        self.layer_count, self.lm_head = layers, self.compute_logits

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding[tokens]

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        return hidden_states @ self.output.T


@lru_cache
def published(name: str, folder: Path = GOLDEN) -> Published:
    """The golden file of a format."""
    with safe_open(folder / f"{name}.safetensors", framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no dictionary
    head = {key.removeprefix("head."): value for key, value in tensors.items() if key.startswith("head.")}
    given = {key: value for key, value in tensors.items() if not key.startswith("head.")}
    alone = metadata["second_is_alone"] == "True"
    return Published(name, head, json.loads(metadata["config"]), metadata["file"], given, metadata["oracle"], alone)


def logits_of(spec: HeadSpec, golden: Published) -> list[Tensor]:
    """The outputs of our network for the inputs of the publisher's code: the first run and the second."""
    head = load_head(spec, golden.target, torch.float32, CPU)
    assert isinstance(head, EagleHead)
    return [output.logits for output in two_runs(head, golden)]


def two_runs(head: EagleHead, golden: Published):
    """A run over true pairs, and one over its own output, where each position sees the true pairs before it."""
    tokens, hidden = golden.given["tokens"], head.fuse(golden.given["features"])
    count, outputs, cache = len(tokens), [], head.pool.open()
    mask = torch.ones(count, count, dtype=torch.bool).tril()
    with head.pool.acquire_slot(cache, 2 * count):
        for run in range(2):
            start = 0 if golden.second_is_alone else run
            batch = RowBatch(tokens.tolist(), torch.arange(count) + start, mask, cache.length)
            outputs.append(head.forward(hidden, head.embed(tokens), batch, cache))
            if not golden.second_is_alone:
                cache.commit(list(range(count)))
                mask = torch.cat((mask, torch.eye(count, dtype=torch.bool)), dim=-1)
            hidden, tokens = outputs[-1].hidden_states, torch.cat((tokens[1:], tokens.new_zeros(1)))
    return outputs


def inspected(golden: Published, folder: Path, **changes: Any) -> HeadSpec:
    """The detected head of the published folder."""
    return inspect_head(golden.save(folder, **changes))
