"""Does a head know its target? A few of the target's own words, and how often the head's guess is the target's choice.

It settles what no config says for sure: which hidden states a head was trained on, and what it is fed back. Off by one
layer, a head still looks plausible and is seldom right; here that costs a fraction of a second instead of a bad day.
What was settled once for a head and a target is kept, so that later starts load one reading and test nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.model import Model
from specchat.forward.batch import RowBatch
from specchat.heads.dflash_head import DFlashHead
from specchat.heads.networks import EagleHead, LoadedHead, MedusaHead, load_head
from specchat.heads.spec import HeadSpec
from specchat.paths import cache_folder

SAMPLE_TOKENS = 40  # tokens of each text
TESTED_DEPTH = 3  # guesses in a row
CACHE_VERSION = 1  # of what is kept; another one is not read

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Agreement:
    """How good the first guess of a head is, by how far ahead, the true words before it."""

    greedy_by_depth: tuple[
        float, ...
    ]  # share of places where it is the target's own choice: what greedy decoding accepts
    sampled_by_depth: tuple[float, ...]  # probability that the target gives it: what sampling accepts; a finer scale
    positions: int

    @property
    def tokens_per_step(self) -> float:
        """What a chain of so many guesses would give a sampler, the target's own token included."""
        kept, total = 1.0, 1.0
        for share in self.sampled_by_depth:
            kept *= share
            total += kept
        return total


@dataclass(frozen=True)
class TargetSample:
    """A text that the target wrote, and what it said and felt at every token."""

    tokens: list[int]  # [L + 1]
    probabilities: Tensor  # [L, V]: probabilities of the token after each
    hidden_states: Tensor  # [L, taps * D]


def self_test(head: LoadedHead, target: Model, prompts: Prompts = ()) -> Agreement:
    """Let the target write a few words after each prompt (by itself, after three tokens far apart), and compare.

    Takes the target's taps for as long as that lasts.
    """
    prompts = prompts or [(start,) for start in (0, 1, target.vocab_size // 3)]
    before = target.hidden_state_layers
    target.set_hidden_state_layers(head.hidden_state_layers)
    try:
        texts = [_sample_text(target, list(prompt)) for prompt in prompts]
    finally:
        target.set_hidden_state_layers(before)
    guesses = [_predictions(head, words) for words in texts]
    depths = [
        _agreement_at_depth(depth + 1, texts, [each[depth] for each in guesses]) for depth in range(len(guesses[0]))
    ]
    places = sum(len(words.probabilities) for words in texts)
    return Agreement(tuple(hit for hit, _ in depths), tuple(share for _, share in depths), places)


def select_variant(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, prompts: Prompts = ()
) -> tuple[LoadedHead, Agreement]:
    """The head in the reading that agrees best with the target. A head with one reading is tested too."""
    return _best_variant(_variants(spec, target), target, dtype, device, prompts)[1:]


def load_selected_head(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, folder: Path | None = None
) -> LoadedHead:
    """The head in the reading that agrees best, tested at the first start beside this target and then looked up.

    `folder`: where that is kept, instead of the user's cache. A head with one reading is not tested.
    """
    readings = _variants(spec, target)
    if len(readings) == 1:
        return load_head(spec, target, dtype, device)
    path = (folder or cache_folder()) / "readings" / f"{_cache_key(readings, target)}.json"
    known = _read_cached_variant(path)
    if known is not None and known < len(readings):
        return load_head(readings[known], target, dtype, device)
    index, head, _agreement = _best_variant(readings, target, dtype, device, ())
    _write_cached_variant(path, index)
    return head


def _variants(spec: HeadSpec, target: Model) -> list[HeadSpec]:
    """What a config can mean beside this target; the likeliest first, whether it can be or not."""
    layers = len(target.pool.layout.shapes)
    return [
        spec,
        *(each for each in spec.variants if not layers or max(each.hidden_state_layers_for(layers)) <= layers),
    ]


def _best_variant(
    variants: Sequence[HeadSpec], target: Model, dtype: torch.dtype | None, device: torch.device, prompts: Prompts
) -> tuple[int, LoadedHead, Agreement]:
    """Which reading it is, the head in it, and how well it agrees.

    Each is loaded, tested and let go before the next one, and the best is loaded again: some heads are as large as a
    model, and a card that has room for one may have none for two.
    """
    tried = [self_test(load_head(reading, target, dtype, device), target, prompts) for reading in variants]
    best = max(range(len(tried)), key=lambda index: tried[index].tokens_per_step)
    return best, load_head(variants[best], target, dtype, device), tried[best]


def _cache_key(variants: Sequence[HeadSpec], target: Model) -> str:
    """All that the choice depends on: the files of the head, the readings of them, and the target."""
    layout = target.pool.layout
    some = torch.linspace(0, target.vocab_size - 1, 64, device=layout.device).long()
    digest = hashlib.sha256(target.embed(some).float().cpu().numpy().tobytes())
    paths = sorted({place.path for place in variants[0].tensors.locations.values()})
    said = {
        "form": CACHE_VERSION,
        "files": [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths],
        "readings": [
            (each.kind, each.hidden_state_layers, *map(str, (each.wiring, each.block_config, each.dimensions)))
            for each in variants
        ],
        "target": (target.bytes, target.vocab_size, len(layout.shapes), str(layout.dtype)),
    }
    digest.update(json.dumps(said, sort_keys=True).encode())
    return digest.hexdigest()[:24]


def _read_cached_variant(path: Path) -> int | None:
    """Which reading was chosen; None when nobody knows, or what is kept makes no sense."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))["reading"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if isinstance(known, int) and known >= 0 else None


def _write_cached_variant(path: Path, variant: int) -> None:
    """Keep it for the next start. A disk that refuses costs a test, not an answer."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"reading": variant}), encoding="utf-8")
        partial.replace(path)
    except OSError:
        return


@torch.inference_mode()
def _sample_text(target: Model, prompt: list[int]) -> TargetSample:
    """Words drawn at temperature 1 with dice of our own: greedy text repeats itself, and then anybody guesses right."""
    dice = torch.Generator().manual_seed(7)
    tokens, said, features = list(prompt), list[Tensor](), list[Tensor]()
    cache = target.pool.open()
    with target.pool.acquire_slot(cache, len(prompt) + SAMPLE_TOKENS + SCRATCH_ROWS):
        while len(said) < len(prompt) + SAMPLE_TOKENS - 1:
            output = target.prefill([tokens[len(said)]], cache)
            assert output.hidden_states is not None, "a target that was told what to tap gave nothing"
            said.append(output.logits[0].float().softmax(-1))
            features.append(output.hidden_states[0].clone())
            if len(tokens) == len(said):
                tokens.append(int(torch.multinomial(said[-1].cpu(), 1, generator=dice)))
    target.pool.close(cache)
    return TargetSample(tokens, torch.stack(said), torch.stack(features))


def _agreement_at_depth(
    depth: int, texts: Sequence[TargetSample], predictions: Sequence[Tensor]
) -> tuple[float, float]:
    """How often a guess so far ahead is the likeliest token, and how likely it is, over all places of all texts."""
    said = torch.cat([words.probabilities[depth:] for words in texts])
    best = torch.cat(
        [guess[: len(words.probabilities) - depth] for words, guess in zip(texts, predictions, strict=True)]
    )
    return float((best == said.argmax(-1)).float().mean()), float(said.gather(1, best[:, None]).mean())


def _predictions(head: LoadedHead, sample: TargetSample) -> list[Tensor]:
    """The likeliest token of the target's vocabulary, for every place and by how far ahead. [L] each"""
    if isinstance(head, MedusaHead):
        return [logits.argmax(-1) for logits in head.logits(sample.hidden_states)]
    said = _chain_logits(head, sample) if isinstance(head, EagleHead) else _block_logits(head, sample)
    best = [logits.argmax(-1) for logits in said]
    return best if head.draft_to_target_ids is None else [head.draft_to_target_ids[column] for column in best]


@torch.inference_mode()
def _block_logits(head: DFlashHead, sample: TargetSample) -> list[Tensor]:
    """A block after every place, with the true word as its first token; as far ahead as chains go. [L, Vd] each"""
    count, cache, ahead = len(sample.probabilities), head.pool.open(), min(TESTED_DEPTH, head.tokens_ahead)
    with head.pool.acquire_slot(cache, count * (1 + head.block_config.block_size)):
        head.prefill(sample.hidden_states, 0, cache)
        said = head.draft_block(sample.tokens[1:], range(1, count + 1), cache, tokens_ahead=ahead)
    head.pool.close(cache)
    return list(said.unbind(1))


@torch.inference_mode()
def _chain_logits(head: EagleHead, sample: TargetSample) -> list[Tensor]:
    """Chains from every place at once: a place sees the true pairs up to its own, then its own guesses. [L, Vd] each

    The words stand in for the guessed tokens, so that every depth is asked about what came after right guesses.
    """
    count, logits = len(sample.probabilities), list[Tensor]()
    tokens = torch.tensor(sample.tokens, device=sample.hidden_states.device)
    hidden, cache = head.fuse(sample.hidden_states), head.pool.open()
    own, sees = torch.eye(count, dtype=torch.bool), torch.ones(count, count, dtype=torch.bool).tril()
    with head.pool.acquire_slot(cache, TESTED_DEPTH * count + SCRATCH_ROWS):
        for depth in range(TESTED_DEPTH):
            following = torch.cat((tokens[1 + depth :], tokens[-1:].expand(depth)))
            nodes = RowBatch(following.tolist(), torch.arange(count) + depth, sees, cache.length)
            output = head.forward(hidden, head.embed(following), nodes, cache)
            cache.commit(list(range(count)))
            logits.append(output.logits)
            hidden, sees = output.hidden_states, torch.cat((sees, own), dim=-1)
    head.pool.close(cache)
    return logits
