"""The mean accepted length and the acceptance by depth of every drafter in the engine.

`acceptance_by_position.py` measures drafters on given texts. Here they draft their own trees during decoding, at any
temperature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from recipes.writer import TargetGenerator
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import Step
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_heads.early_exit import EarlyExit, exit_layer
from specchat_heads.medusa import Medusa, MedusaHead

HEADS = ("eagle3", "mtp", "medusa", "eagle")
TEMPERATURES = (0.0, 0.8)
LIMIT = 120  # tokens of an answer
DEPTHS = 4

DrafterFactory = Callable[[], Drafter]  # each text needs a new drafter


@dataclass(frozen=True)
class EngineAcceptance:
    """The result over all answers; an element of `by_depth` is None when no draft was so deep."""

    tokens_per_step: float
    by_depth: tuple[float | None, ...]


def drafter_factories(folder: Path, target: Model) -> Mapping[str, DrafterFactory]:
    """The drafters for the target of these folders."""
    device = target.pool.layout.device
    draft = load_model(folder / "draft", LoadOptions(dtype="float32", device=str(device)))
    found: dict[str, DrafterFactory] = {
        "lookup": PromptLookup,
        "suffix": SuffixDecoding,
        "draft": partial(DraftModelDrafter, draft),
    }
    layer = exit_layer(folder / "target")
    if layer and isinstance(target, LlamaModel):
        found["exit"] = partial(EarlyExit, target, layer)
    loaded = (
        (name, load_head(inspect_head(folder / name), target, None, device))
        for name in HEADS
        if (folder / name).is_dir()
    )
    heads = {name: head for name, head in loaded if isinstance(head, EagleHead | MedusaHead)}
    target.set_hidden_state_layers(
        tuple(dict.fromkeys(tap for head in heads.values() for tap in head.hidden_state_layers))
    )
    return found | {name: _of_head(head, target) for name, head in heads.items()}


def _of_head(head: EagleHead | MedusaHead, target: Model) -> DrafterFactory:
    return partial(Medusa, head, target) if isinstance(head, MedusaHead) else partial(EagleDrafter, head, target)


def measure_in_engine(
    writer: TargetGenerator, maker: DrafterFactory, prompts: Iterable[list[int]], temperature: float
) -> EngineAcceptance:
    """Answer all prompts with such a drafter, each with its own seed."""
    steps = list[Step]()
    for seed, prompt in enumerate(prompts):
        steps += writer.generate_with_drafter(maker(), prompt, LIMIT, Sampler(temperature, seed=seed)).steps
    tried, held = Counter[int](), Counter[int]()
    for step in steps:
        tried.update(range(1, max(step.tree.depths) + 1))
        held.update(range(1, step.accepted + 1))
    shares = (held[depth] / tried[depth] if tried[depth] else None for depth in range(1, DEPTHS + 1))
    return EngineAcceptance(sum(len(step.committed_tokens) for step in steps) / len(steps), tuple(shares))
