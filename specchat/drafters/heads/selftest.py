"""The self-test of a head: how often its prediction is the choice of its target, on text that the target samples.

It decides what no config states reliably: which hidden states a head was trained on, and what it gets as input of the
next draft step. With states that are wrong by one layer, predictions look plausible and are seldom accepted. The test
takes a fraction of a second. Its result for a head and a target is cached, so that later starts load one variant only.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specchat.devices import FLOAT_FORMAT
from specchat.drafters.heads.draft_head import DraftHead, TargetSample
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.model import Model
from specchat.errors import ModelError, first_line
from specchat.paths import read_json_object, remember, remembered_file

SAMPLE_TOKENS = 40  # tokens of each text
CACHE_VERSION = 2  # entries of other versions are ignored

Prompts = Sequence[Sequence[int]]
LoadVariant = Callable[[HeadSpec], DraftHead]


@dataclass(frozen=True)
class Agreement:
    """How good the best prediction of a head is at each draft depth, given the sampled text before it."""

    greedy_by_depth: tuple[float, ...]  # share of positions where greedy decoding accepts it
    sampled_by_depth: tuple[float, ...]  # mean probability that sampling accepts it: a finer measure
    positions: int

    @property
    def tokens_per_step(self) -> float:
        """The mean accepted length of a chain under sampling, plus the target's own token."""
        accepted, total = 1.0, 1.0
        for probability in self.sampled_by_depth:
            accepted *= probability
            total += accepted
        return total


def self_test(head: DraftHead, target: Model, prompts: Prompts = ()) -> Agreement:
    """Sample a short text after each prompt (default: three single tokens), and compare the head's predictions.

    Changes the target's `hidden_state_layers` for the duration of the test.
    """
    prompts = prompts or [(start,) for start in (0, 1, target.vocab_size // 3)]
    previous_layers = target.hidden_state_layers
    target.set_hidden_state_layers(head.hidden_state_layers)
    try:
        samples = [sample_text(target, list(prompt)) for prompt in prompts]
    finally:
        target.set_hidden_state_layers(previous_layers)
    by_depth = zip(*(head.predictions(sample) for sample in samples), strict=True)
    agreements = [_agreement_at_depth(depth, samples, tokens) for depth, tokens in enumerate(by_depth, start=1)]
    greedy, sampled = zip(*agreements, strict=True)
    return Agreement(greedy, sampled, sum(len(sample.probabilities) for sample in samples))


def load_selected_head(
    spec: HeadSpec,
    target: Model,
    dtype: torch.dtype | None,
    device: torch.device,
    folder: Path | None = None,
    weights: str = FLOAT_FORMAT,
) -> DraftHead:
    """The variant of the head that agrees best: tested at the first start with this target, later read from the cache.

    `folder` replaces the user's cache folder, `weights` is as in `load_head`. A head with one variant is not tested,
    but for one pass: its tensors are trusted by compiled kernels, so ModelError when they do not fit together.
    """

    def load(variant: HeadSpec) -> DraftHead:
        return load_head(variant, target, dtype, device, weights)

    try:
        head = _load_selected(spec, target, load, folder)
        head.predictions(_trial_sample(head, target))
    except (RuntimeError, ValueError, IndexError) as error:
        message = f"{spec.source}: the tensors of this head do not fit together: {first_line(error)}"
        raise ModelError(message) from error
    return head


def _load_selected(spec: HeadSpec, target: Model, load: LoadVariant, folder: Path | None) -> DraftHead:
    variants = _variants(spec, target)
    if len(variants) == 1:
        return load(spec)
    path = remembered_file("head_variants", _identity(variants, target), folder)
    cached = read_json_object(path).get("variant")
    if isinstance(cached, int) and 0 <= cached < len(variants):
        return load(variants[cached])
    # each is freed before the next one, and the best is loaded again: some heads are as large as a model
    agreements = [self_test(load(variant), target).tokens_per_step for variant in variants]
    best = agreements.index(max(agreements))
    remember(path, {"variant": best})
    return load(variants[best])


def _variants(spec: HeadSpec, target: Model) -> list[HeadSpec]:
    """The default variant, then the others that are possible with this target."""
    layers = target.layer_count
    return [
        spec,
        *(each for each in spec.variants if not layers or max(each.hidden_state_layers_for(layers)) <= layers),
    ]


def target_fingerprint(target: Model) -> str:
    """A digest that differs between targets: some of their embeddings, their sizes and their dtype."""
    layout = target.pool.layout
    tokens = torch.linspace(0, target.vocab_size - 1, 64, device=layout.device).long()
    digest = hashlib.sha256(target.embed(tokens).float().cpu().numpy().tobytes())
    digest.update(json.dumps((target.bytes, target.vocab_size, len(layout.shapes), str(layout.dtype))).encode())
    return digest.hexdigest()


def _identity(variants: Sequence[HeadSpec], target: Model) -> dict[str, object]:
    """Everything that the choice depends on: the files of the head, its variants, and the target."""
    paths = sorted({location.path for location in variants[0].tensors.locations.values()})
    return {
        "version": CACHE_VERSION,
        "files": [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths],
        "variants": [
            (each.kind, each.hidden_state_layers, *map(str, (each.wiring, each.dimensions))) for each in variants
        ],
        "target": target_fingerprint(target),
    }


@torch.inference_mode()
def _trial_sample(head: DraftHead, target: Model) -> TargetSample:
    """Two tokens with hidden states that mean nothing, for a pass that shows whether the shapes fit."""
    layout = target.pool.layout
    width = target.embed(torch.zeros(1, dtype=torch.long, device=layout.device)).shape[-1]
    states = torch.ones(2, len(head.hidden_state_layers) * width, dtype=layout.dtype, device=layout.device)
    return TargetSample([0, 0, 0], states, states)


@torch.inference_mode()
def sample_text(target: Model, prompt: list[int]) -> TargetSample:
    """Text sampled at temperature 1 with a fixed seed: greedy text repeats itself, which every head predicts."""
    generator = torch.Generator().manual_seed(7)
    tokens, probabilities, hidden_states = list(prompt), list[Tensor](), list[Tensor]()
    cache = target.pool.open()
    with target.pool.acquire_slot(cache, len(prompt) + SAMPLE_TOKENS + SCRATCH_ROWS):
        while len(probabilities) < len(prompt) + SAMPLE_TOKENS - 1:
            output = target.prefill([tokens[len(probabilities)]], cache)
            assert output.hidden_states is not None, "a target without the hidden states that were requested"
            probabilities.append(output.logits[0].float().softmax(-1))
            hidden_states.append(output.hidden_states[0].clone())
            if len(tokens) == len(probabilities):
                tokens.append(int(torch.multinomial(probabilities[-1].cpu(), 1, generator=generator)))
    target.pool.close(cache)
    return TargetSample(tokens, torch.stack(probabilities), torch.stack(hidden_states))


def _agreement_at_depth(
    depth: int, samples: Sequence[TargetSample], predictions: Sequence[Tensor]
) -> tuple[float, float]:
    """The share of predictions at this depth that are the target's best token, and their mean probability."""
    expected = torch.cat([sample.probabilities[depth:] for sample in samples])
    predicted = torch.cat(
        [tokens[: len(sample.probabilities) - depth] for sample, tokens in zip(samples, predictions, strict=True)]
    )
    is_best = predicted == expected.argmax(-1)
    return float(is_best.float().mean()), float(expected.gather(1, predicted[:, None]).mean())
