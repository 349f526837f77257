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
from specchat.drafters.eagle.head import PairHead
from specchat.drafters.heads.assistant_head import AssistantHead
from specchat.drafters.heads.dflash_head import DFlashHead
from specchat.drafters.heads.hydra_head import HydraHead
from specchat.drafters.heads.networks import LoadedHead, MedusaHead, load_head
from specchat.drafters.heads.peagle_head import PEagleHead
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.model import Model
from specchat.errors import ModelError
from specchat.forward.batch import RowBatch
from specchat.paths import cache_folder, write_atomically

SAMPLE_TOKENS = 40  # tokens of each text
TESTED_DEPTH = 3  # draft tokens in a chain
CACHE_VERSION = 2  # entries of other versions are ignored

Prompts = Sequence[Sequence[int]]
LoadVariant = Callable[[HeadSpec], LoadedHead]


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


@dataclass(frozen=True)
class TargetSample:
    tokens: list[int]  # [L + 1]
    probabilities: Tensor  # of the next token [L, V]
    hidden_states: Tensor  # [L, layers * D]


def self_test(head: LoadedHead, target: Model, prompts: Prompts = ()) -> Agreement:
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
    by_depth = zip(*(_predictions(head, sample) for sample in samples), strict=True)
    agreements = [_agreement_at_depth(depth, samples, tokens) for depth, tokens in enumerate(by_depth, start=1)]
    greedy, sampled = zip(*agreements, strict=True)
    return Agreement(greedy, sampled, sum(len(sample.probabilities) for sample in samples))


def select_variant(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, prompts: Prompts = ()
) -> tuple[LoadedHead, Agreement]:
    """The variant of the head that agrees best with the target. A single variant is tested too."""
    return _best_variant(_variants(spec, target), target, lambda each: load_head(each, target, dtype, device), prompts)[
        1:
    ]


def load_selected_head(
    spec: HeadSpec,
    target: Model,
    dtype: torch.dtype | None,
    device: torch.device,
    folder: Path | None = None,
    weights: str = FLOAT_FORMAT,
) -> LoadedHead:
    """The variant of the head that agrees best: tested at the first start with this target, later read from the cache.

    `folder` replaces the user's cache folder, `weights` is as in `load_head`. A head with one variant is not tested,
    but for one pass: its tensors are trusted by compiled kernels, so ModelError when they do not fit together.
    """

    def load(variant: HeadSpec) -> LoadedHead:
        return load_head(variant, target, dtype, device, weights)

    try:
        head = _load_selected(spec, target, load, folder)
        _predictions(head, _trial_sample(head, target))
    except (RuntimeError, ValueError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{spec.source}: the tensors of this head do not fit together: {reason}") from error
    return head


def _load_selected(spec: HeadSpec, target: Model, load: LoadVariant, folder: Path | None) -> LoadedHead:
    variants = _variants(spec, target)
    if len(variants) == 1:
        return load(spec)
    path = (folder or cache_folder()) / "head_variants" / f"{_cache_key(variants, target)}.json"
    cached = _read_cached_variant(path)
    if cached is not None and cached < len(variants):
        return load(variants[cached])
    index, head, _agreement = _best_variant(variants, target, load, ())
    _write_cached_variant(path, index)
    return head


def _variants(spec: HeadSpec, target: Model) -> list[HeadSpec]:
    """The default variant, then the others that are possible with this target."""
    layers = target.layer_count
    return [
        spec,
        *(each for each in spec.variants if not layers or max(each.hidden_state_layers_for(layers)) <= layers),
    ]


def _best_variant(
    variants: Sequence[HeadSpec], target: Model, load: LoadVariant, prompts: Prompts
) -> tuple[int, LoadedHead, Agreement]:
    """The index of the best variant, its head, and its agreement.

    Each variant is loaded, tested and freed before the next one, and the best is loaded again: some heads are as large
    as a model, and GPU memory for two may be missing.
    """
    agreements = [self_test(load(variant), target, prompts) for variant in variants]
    best = max(range(len(agreements)), key=lambda index: agreements[index].tokens_per_step)
    return best, load(variants[best]), agreements[best]


def target_fingerprint(target: Model) -> str:
    """A digest that differs between targets: some of their embeddings, their sizes and their dtype."""
    layout = target.pool.layout
    tokens = torch.linspace(0, target.vocab_size - 1, 64, device=layout.device).long()
    digest = hashlib.sha256(target.embed(tokens).float().cpu().numpy().tobytes())
    digest.update(json.dumps((target.bytes, target.vocab_size, len(layout.shapes), str(layout.dtype))).encode())
    return digest.hexdigest()


def _cache_key(variants: Sequence[HeadSpec], target: Model) -> str:
    """A digest of everything that the choice depends on: the files of the head, its variants, and the target."""
    paths = sorted({location.path for location in variants[0].tensors.locations.values()})
    key = {
        "version": CACHE_VERSION,
        "files": [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths],
        "variants": [
            (each.kind, each.hidden_state_layers, *map(str, (each.wiring, each.block_config, each.dimensions)))
            for each in variants
        ],
        "target": target_fingerprint(target),
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def _read_cached_variant(path: Path) -> int | None:
    """The index of the selected variant; None without a valid cache entry."""
    try:
        index = json.loads(path.read_text(encoding="utf-8"))["variant"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return index if isinstance(index, int) and index >= 0 else None


def _write_cached_variant(path: Path, variant: int) -> None:
    """Write the cache entry. When that fails, the next start repeats the test."""
    try:
        write_atomically(path, json.dumps({"variant": variant}))
    except OSError:
        return


@torch.inference_mode()
def _trial_sample(head: LoadedHead, target: Model) -> TargetSample:
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


def _predictions(head: LoadedHead, sample: TargetSample) -> list[Tensor]:
    """The head's best token after every position, one tensor [L] for each depth, as tokens of the target."""
    if isinstance(head, MedusaHead):
        return [logits.argmax(-1) for logits in head.logits(sample.hidden_states)]
    if isinstance(head, HydraHead):
        return [logits.argmax(-1) for logits in _path_logits(head, sample)]
    if isinstance(head, AssistantHead):
        return _assistant_predictions(head, sample)
    by_depth = _chain_logits(head, sample) if isinstance(head, PairHead) else _block_logits(head, sample)
    columns = [logits.argmax(-1) for logits in by_depth]
    return columns if head.draft_to_target_ids is None else [head.draft_to_target_ids[column] for column in columns]


@torch.inference_mode()
def _path_logits(head: HydraHead, sample: TargetSample) -> list[Tensor]:
    """The heads after every position, with the sampled tokens as path. [L, V] for each depth"""
    count, cache = len(sample.probabilities), head.pool.open()
    with head.pool.acquire_slot(cache, count + SCRATCH_ROWS):
        states = head.prefill(sample.hidden_states, cache)
    head.pool.close(cache)
    tokens = torch.tensor(sample.tokens, device=states.device)
    paths = torch.stack([_tokens_after(tokens, depth) for depth in range(head.tokens_ahead)], dim=1)
    return [head.logits(states, paths[:, : depth + 1]) for depth in range(head.tokens_ahead)]


def _tokens_after(tokens: Tensor, depth: int) -> Tensor:
    """The sampled token `1 + depth` places behind every position; the last one where the text ends."""
    return torch.cat((tokens[1 + depth :], tokens[-1:].expand(depth)))


@torch.inference_mode()
def _assistant_predictions(head: AssistantHead, sample: TargetSample) -> list[Tensor]:
    """A chain after every position, over the target's keys of the text up to there. [L] for each depth"""
    target, count, cache = head.target, len(sample.probabilities), head.target.pool.open()
    tokens = torch.tensor(sample.tokens, device=sample.hidden_states.device)
    best = tokens.new_empty(TESTED_DEPTH, count)
    with target.pool.acquire_slot(cache, count + SCRATCH_ROWS):
        for start in range(0, count, target.prefill_chunk):
            target.prefill(sample.tokens[start : min(start + target.prefill_chunk, count)], cache)
        for position in reversed(range(count)):
            cache.rollback(position + 1)
            state = sample.hidden_states[position : position + 1]
            for depth in range(TESTED_DEPTH):
                output = head.forward(state, _tokens_after(tokens, depth)[position : position + 1], cache)
                best[depth, position], state = output.logits.argmax(), output.hidden_states
    target.pool.close(cache)
    return list(best)


@torch.inference_mode()
def _block_logits(head: DFlashHead, sample: TargetSample) -> list[Tensor]:
    """A block after every position, with the sampled token as its anchor. [L, Vd] for each depth"""
    count, cache, ahead = len(sample.probabilities), head.pool.open(), min(TESTED_DEPTH, head.tokens_ahead)
    with head.pool.acquire_slot(cache, count * (1 + head.block_config.block_size)):
        head.prefill(sample.hidden_states, 0, cache)
        blocks = head.draft_block(sample.tokens[1:], range(1, count + 1), cache, tokens_ahead=ahead)
    head.pool.close(cache)
    tokens = torch.tensor(sample.tokens, device=blocks.logits.device)
    return [blocks.next_slot(_tokens_after(tokens, depth)).logits for depth in range(ahead)]


@torch.inference_mode()
def _chain_logits(head: PairHead, sample: TargetSample) -> list[Tensor]:
    """Chains from all positions at once: each sees the true pairs up to its position, then its own. [L, Vd] each

    The sampled tokens replace the draft tokens, so that every depth is tested after correct predictions. With P-EAGLE,
    masks take the place of the later pairs.
    """
    count, logits = len(sample.probabilities), list[Tensor]()
    tokens = torch.tensor(sample.tokens, device=sample.hidden_states.device)
    hidden_states, cache = head.fuse(sample.hidden_states), head.pool.open()
    depths = min(TESTED_DEPTH, head.tokens_ahead) if isinstance(head, PEagleHead) else TESTED_DEPTH
    own, mask = torch.eye(count, dtype=torch.bool), torch.ones(count, count, dtype=torch.bool).tril()
    with head.pool.acquire_slot(cache, TESTED_DEPTH * count + SCRATCH_ROWS):
        for depth in range(depths):
            next_tokens = _tokens_after(tokens, depth)
            embeddings = head.embed(next_tokens)
            if depth and isinstance(head, PEagleHead):
                hidden_states, embeddings = head.mask_pairs(count)
            batch = RowBatch(next_tokens.tolist(), torch.arange(count) + depth, mask, cache.length)
            output = head.forward(hidden_states, embeddings, batch, cache)
            cache.commit(list(range(count)))
            logits.append(output.logits)
            hidden_states, mask = output.hidden_states, torch.cat((mask, own), dim=-1)
    head.pool.close(cache)
    return logits
