"""Tiny random heads for the tiny random targets, saved like published heads and loaded like them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.drafters.eagle.dynamic_tree import TreeConfig
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.load_head import load_head
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.decode import Generation
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from tests.tiny import SIZES, VOCABULARY, target

WIDTH, INNER, CPU = int(SIZES["hidden_size"]), int(SIZES["intermediate_size"]), torch.device("cpu")
D = TypeVar("D", bound=Drafter)
_FOLDER = TemporaryDirectory(prefix="specchat-heads-")
CONFIG = SIZES | {"model_type": "llama", "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "eagle3": {
        "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 60, "max_position_embeddings": 64,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]},
    },
    "mtp": {"num_hidden_layers": 3, "num_nextn_predict_layers": 1, "max_position_embeddings": 64},
}  # fmt: skip


def read(writing: Generation, text: list[int]) -> None:
    """Make this the text and prefill it, so that the drafters observe it."""
    writing.replace_tokens(text)
    with writing.target.pool.acquire_slot(writing.cache, len(text) + SCRATCH_ROWS):
        list(writing.prefill())


DRAFTERS: dict[type[DraftHead], Callable[[Any, Model, TreeConfig | None], Drafter]] = {
    EagleHead: EagleDrafter,
}


def drafter_of(kind: str, target: Model, growth: TreeConfig | None = None) -> Drafter:
    """A drafter with such a head; the target returns its hidden states."""
    head = tiny_head(kind, target)
    target.set_hidden_state_layers(head.hidden_state_layers)
    return DRAFTERS[type(head)](head, target, growth)


def writing_of(target: Model, drafter: Drafter) -> Generation:
    """A text with this drafter."""
    return Generation(target, (drafter,))


def prefilled(
    drafter_type: type[D], kind: str, text: list[int], growth: TreeConfig | None = None
) -> tuple[Generation, D]:
    """A prefilled text of our own passes, and a drafter of this kind that observed it."""
    model = target("dense-llama")
    drafter = drafter_of(kind, model, growth)
    assert isinstance(drafter, drafter_type)
    writing = writing_of(model, drafter)
    read(writing, text)
    return writing, drafter


def drafted(writing: Generation, drafter: Drafter, sampler: Sampler | None = None, budget: int = 12) -> DraftTree:
    """What the drafter proposes after the text, greedy without a sampler."""
    sampler = sampler or Sampler()
    seen = sampler.make_seen_tokens(writing.tokens, writing.target.vocab_size, CPU)
    return drafter.propose(DraftContext(writing.tokens, sampler, budget, seen))


def tiny_head(kind: str, target: Model) -> DraftHead:
    """A random head for a target of `tests.tiny`, which rarely agrees with it."""
    return load_head(inspect_head(saved_head(kind)), target, None, target.pool.layout.device)


@lru_cache
def saved_head(kind: str) -> Path:
    """The folder of a random head, as a hub stores it."""
    folder = Path(_FOLDER.name, kind)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | CONFIGS[kind]))
    save_file(TENSORS[kind](), folder / "model.safetensors")
    return folder


def random_tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        f"{name}.weight": torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * 0.2
        for name, shape in shapes.items()
    }


def layer_shapes(at: str, inputs: int = 1) -> dict[str, tuple[int, ...]]:
    rows = {"q": WIDTH, "k": WIDTH // 2, "v": WIDTH // 2}
    return {
        **{f"{at}.self_attn.{part}_proj": (count, inputs * WIDTH) for part, count in rows.items()},
        f"{at}.self_attn.o_proj": (WIDTH, WIDTH),
        f"{at}.mlp.gate_proj": (INNER, WIDTH),
        f"{at}.mlp.up_proj": (INNER, WIDTH),
        f"{at}.mlp.down_proj": (WIDTH, INNER),
        f"{at}.post_attention_layernorm": (WIDTH,),
    }


def _eagle3() -> dict[str, Tensor]:
    norms = {"midlayer.input_layernorm": (WIDTH,), "midlayer.hidden_norm": (WIDTH,), "norm": (WIDTH,)}
    ends = {"fc": (WIDTH, 3 * WIDTH), "lm_head": (60, WIDTH)}
    kept = torch.arange(VOCABULARY)[20:80]
    inside = torch.zeros(VOCABULARY, dtype=torch.bool)
    inside[kept] = True
    return random_tensors({**ends, **norms, **layer_shapes("midlayer", inputs=2)}) | {
        "d2t": kept - torch.arange(60),
        "t2d": inside,
    }


def _mtp() -> dict[str, Tensor]:
    at = "model.layers.3"
    norms = {f"{at}.{name}": (WIDTH,) for name in ("enorm", "hnorm", "shared_head.norm", "input_layernorm")}
    return random_tensors({f"{at}.eh_proj": (WIDTH, 2 * WIDTH), **norms, **layer_shapes(at)})


TENSORS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "eagle3": _eagle3, "mtp": _mtp,
}  # fmt: skip
