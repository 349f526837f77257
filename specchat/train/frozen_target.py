"""The target that a head is trained for: loaded once, never trained, asked for answers and for what it thinks.

Reads the target's states through the engine's own passes, so a head learns from exactly what it will be given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specchat.chat.prompt import extend
from specchat.drafters.suffix import Suffix
from specchat.engine.decode import Plan
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.models.llama_weights import is_dense
from specchat.models.load import Loading, find_model, load_model
from specchat.models.tensor_files import TensorFiles
from specchat.models.tokenizer import Tokenizer
from specchat.train.fingerprint import fingerprint
from specchat.train.trainable_llama import Shape
from specchat.train.training_prompts import Question
from specchat.train.write_answer import BUDGET, Written, write_as

CONTEXT = 2048  # pairs that a new head looks back
ATTENDING = ("full_attention", "sliding_attention")  # kinds of layers
NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


class Target:
    """One loaded target with its tokenizer."""

    def __init__(self, source: str, loading: Loading, system: str = "") -> None:
        """ModelError for a target that no head can be trained for."""
        self.source, self.folder, self.system = source, find_model(source), system
        self.config = read_config(self.folder)
        self.shape = shape_of(self.config, source)
        self.fingerprint = fingerprint(self.folder)
        self.tokenizer = Tokenizer(self.folder)
        self.model: Model = load_model(self.folder, loading)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.pool.layout.device

    def prompt(self, question: Question) -> list[int]:
        """The tokens that an answer to this question follows."""
        return extend(self.tokenizer, self.system, question.before, question.request).ids

    def write(self, prompt: list[int], limit: int, drafter: Drafter | None = None) -> Written:
        """A greedy answer while this drafter guesses; by default one that copies. It must be new to the text."""
        drafter = drafter or Suffix()
        plan = Plan(drafter, Sampler(), BUDGET, limit, self.tokenizer.stop)
        return self.write_as(plan, prompt)

    def write_as(self, plan: Plan, prompt: list[int]) -> Written:
        """An answer as planned."""
        return write_as(self.model, plan, prompt)

    def states(self, tokens: Sequence[int], taps: tuple[int, ...]) -> Tensor:
        """The hidden states at these taps while it reads a text, side by side. [L, taps * D]"""
        self.model.tap(taps)
        cache, known = self.model.pool.open(), list[Tensor]()
        try:
            with torch.inference_mode(), self.model.pool.seated(cache, len(tokens)):
                for start in range(0, len(tokens), self.model.chunk):
                    features = self.model.read(list(tokens[start : start + self.model.chunk]), cache).features
                    if features is None:
                        raise ModelError(f"{self.source}: its layers cannot be looked into, so no head can read them")
                    known.append(features)
            return torch.cat(known)
        finally:
            self.model.pool.close(cache)

    @cached_property
    def embedding(self) -> Tensor:
        """The table of input embeddings as the first layer gets them [V, D]."""
        rows = torch.arange(self.model.vocabulary, device=self.device)
        return torch.cat([self.model.embed(some) for some in rows.split(8192)]).clone()

    @cached_property
    def output(self) -> Tensor:
        """The output matrix [V, D], found by scoring every direction of a state."""
        like = self.model.pool.layout
        directions = torch.eye(self.shape.width, dtype=like.dtype, device=like.device)
        return torch.cat([self.model.score(some) for some in directions.split(256)]).T.clone()

    @cached_property
    def last_norm(self) -> Tensor | None:
        """The weight of the norm before the output matrix [D], of families that store it as a Llama does."""
        if not is_dense(self.config):
            return None
        files = TensorFiles.of(self.folder, sorted(self.folder.glob("*.safetensors")))
        return files.read("model.norm.weight").float() if "model.norm.weight" in files else None


def read_config(folder: Path) -> dict[str, Any]:
    """What `config.json` of a model says."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def shape_of(config: Mapping[str, Any], source: str) -> Shape:
    """The sizes of a head's layers beside this target. ModelError where they cannot be told or computed.

    A head's attention has keys for every query head, also where the target shares them: it is one layer.
    """
    kind = config.get("model_type", "an unnamed family")
    if lacking := [name for name in NEEDED if not isinstance(config.get(name), int)]:
        raise ModelError(f"{source}: heads are not trained for {kind}: its config.json has no {', '.join(lacking)}")
    rope = Rope.of(config)
    if not rope.is_known or rope.share != 1.0:
        raise ModelError(f"{source}: heads are not trained for {kind}: its positions are turned in a way of its own")
    if any(each not in ATTENDING for each in config.get("layer_types") or ()):
        raise ModelError(f"{source}: heads are not trained for {kind}: it has recurrent layers")
    heads = config["num_attention_heads"]
    return Shape(
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=heads,
        head_width=config.get("head_dim") or config["hidden_size"] // heads,
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        context=min(config.get("max_position_embeddings") or CONTEXT, CONTEXT),
        theta=rope.theta,
        epsilon=config.get("rms_norm_eps") or 1e-6,
    )
