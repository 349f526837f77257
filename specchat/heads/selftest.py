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

from specchat.engine.cache import SCRATCH
from specchat.engine.model import Model
from specchat.forward.batch import Pass
from specchat.heads.block_head import BlockHead
from specchat.heads.networks import FeatureHead, LoadedHead, MedusaHead, load_head
from specchat.heads.spec import HeadSpec
from specchat.paths import cache_folder

WORDS = 40  # tokens of each text
DEPTH = 3  # guesses in a row
FORM = 1  # of what is kept; another one is not read

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Agreement:
    """How good the first guess of a head is, by how far ahead, the true words before it."""

    by_depth: tuple[float, ...]  # share of places where it is the target's own choice: what greedy decoding accepts
    sampled: tuple[float, ...]  # probability that the target gives it: what sampling accepts; a finer scale
    places: int

    @property
    def tokens_per_pass(self) -> float:
        """What a chain of so many guesses would give a sampler, the target's own token included."""
        kept, total = 1.0, 1.0
        for share in self.sampled:
            kept *= share
            total += kept
        return total


@dataclass(frozen=True)
class Words:
    """A text that the target wrote, and what it said and felt at every token."""

    tokens: list[int]  # [L + 1]
    said: Tensor  # [L, V]: probabilities of the token after each
    features: Tensor  # [L, taps * D]


def self_test(head: LoadedHead, target: Model, prompts: Prompts = ()) -> Agreement:
    """Let the target write a few words after each prompt (by itself, after three tokens far apart), and compare.

    Takes the target's taps for as long as that lasts.
    """
    prompts = prompts or [(start,) for start in (0, 1, target.vocabulary // 3)]
    before = target.taps
    target.tap(head.taps)
    try:
        texts = [_written(target, list(prompt)) for prompt in prompts]
    finally:
        target.tap(before)
    guesses = [_guessed(head, words) for words in texts]
    depths = [_compared(depth + 1, texts, [each[depth] for each in guesses]) for depth in range(len(guesses[0]))]
    places = sum(len(words.said) for words in texts)
    return Agreement(tuple(hit for hit, _ in depths), tuple(share for _, share in depths), places)


def settle(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, prompts: Prompts = ()
) -> tuple[LoadedHead, Agreement]:
    """The head in the reading that agrees best with the target. A head with one reading is tested too."""
    return _best(_readings(spec, target), target, dtype, device, prompts)[1:]


def settled(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, folder: Path | None = None
) -> LoadedHead:
    """The head in the reading that agrees best, tested at the first start beside this target and then looked up.

    `folder`: where that is kept, instead of the user's cache. A head with one reading is not tested.
    """
    readings = _readings(spec, target)
    if len(readings) == 1:
        return load_head(spec, target, dtype, device)
    path = (folder or cache_folder()) / "readings" / f"{_identity(readings, target)}.json"
    known = _kept(path)
    if known is not None and known < len(readings):
        return load_head(readings[known], target, dtype, device)
    index, head, _agreement = _best(readings, target, dtype, device, ())
    _keep(path, index)
    return head


def _readings(spec: HeadSpec, target: Model) -> list[HeadSpec]:
    """What a config can mean beside this target; the likeliest first, whether it can be or not."""
    layers = len(target.pool.layout.shapes)
    return [spec, *(each for each in spec.readings if not layers or max(each.taps_for(layers)) <= layers)]


def _best(
    readings: Sequence[HeadSpec], target: Model, dtype: torch.dtype | None, device: torch.device, prompts: Prompts
) -> tuple[int, LoadedHead, Agreement]:
    """Which reading it is, the head in it, and how well it agrees.

    Each is loaded, tested and let go before the next one, and the best is loaded again: some heads are as large as a
    model, and a card that has room for one may have none for two.
    """
    tried = [self_test(load_head(reading, target, dtype, device), target, prompts) for reading in readings]
    best = max(range(len(tried)), key=lambda index: tried[index].tokens_per_pass)
    return best, load_head(readings[best], target, dtype, device), tried[best]


def _identity(readings: Sequence[HeadSpec], target: Model) -> str:
    """All that the choice depends on: the files of the head, the readings of them, and the target."""
    layout = target.pool.layout
    some = torch.linspace(0, target.vocabulary - 1, 64, device=layout.device).long()
    digest = hashlib.sha256(target.embed(some).float().cpu().numpy().tobytes())
    paths = sorted({place.path for place in readings[0].tensors.places.values()})
    said = {
        "form": FORM,
        "files": [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths],
        "readings": [(each.kind, each.taps, *map(str, (each.wiring, each.slots, each.block))) for each in readings],
        "target": (target.bytes, target.vocabulary, len(layout.shapes), str(layout.dtype)),
    }
    digest.update(json.dumps(said, sort_keys=True).encode())
    return digest.hexdigest()[:24]


def _kept(path: Path) -> int | None:
    """Which reading was chosen; None when nobody knows, or what is kept makes no sense."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))["reading"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if isinstance(known, int) and known >= 0 else None


def _keep(path: Path, reading: int) -> None:
    """Keep it for the next start. A disk that refuses costs a test, not an answer."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"reading": reading}), encoding="utf-8")
        partial.replace(path)
    except OSError:
        return


@torch.inference_mode()
def _written(target: Model, prompt: list[int]) -> Words:
    """Words drawn at temperature 1 with dice of our own: greedy text repeats itself, and then anybody guesses right."""
    dice = torch.Generator().manual_seed(7)
    tokens, said, features = list(prompt), list[Tensor](), list[Tensor]()
    cache = target.pool.open()
    with target.pool.seated(cache, len(prompt) + WORDS + SCRATCH):
        while len(said) < len(prompt) + WORDS - 1:
            output = target.read([tokens[len(said)]], cache)
            assert output.features is not None, "a target that was told what to tap gave nothing"
            said.append(output.logits[0].float().softmax(-1))
            features.append(output.features[0].clone())
            if len(tokens) == len(said):
                tokens.append(int(torch.multinomial(said[-1].cpu(), 1, generator=dice)))
    target.pool.close(cache)
    return Words(tokens, torch.stack(said), torch.stack(features))


def _compared(depth: int, texts: Sequence[Words], guesses: Sequence[Tensor]) -> tuple[float, float]:
    """How often a guess so far ahead is the likeliest token, and how likely it is, over all places of all texts."""
    said = torch.cat([words.said[depth:] for words in texts])
    best = torch.cat([guess[: len(words.said) - depth] for words, guess in zip(texts, guesses, strict=True)])
    return float((best == said.argmax(-1)).float().mean()), float(said.gather(1, best[:, None]).mean())


def _guessed(head: LoadedHead, words: Words) -> list[Tensor]:
    """The likeliest token of the target's vocabulary, for every place and by how far ahead. [L] each"""
    if isinstance(head, MedusaHead):
        return [logits.argmax(-1) for logits in head.logits(words.features)]
    said = _in_a_row(head, words) if isinstance(head, FeatureHead) else _in_blocks(head, words)
    best = [logits.argmax(-1) for logits in said]
    return best if head.ids is None else [head.ids[column] for column in best]


@torch.inference_mode()
def _in_blocks(head: BlockHead, words: Words) -> list[Tensor]:
    """A block after every place, with the true word as its first token; as far ahead as chains go. [L, Vd] each"""
    count, cache, ahead = len(words.said), head.pool.open(), min(DEPTH, head.count)
    with head.pool.seated(cache, count * (1 + head.slots.size)):
        head.read(words.features, 0, cache)
        said = head.fill(words.tokens[1:], range(1, count + 1), cache, ahead=ahead)
    head.pool.close(cache)
    return list(said.unbind(1))


@torch.inference_mode()
def _in_a_row(head: FeatureHead, words: Words) -> list[Tensor]:
    """Chains from every place at once: a place sees the true pairs up to its own, then its own guesses. [L, Vd] each

    The words stand in for the guessed tokens, so that every depth is asked about what came after right guesses.
    """
    count, logits = len(words.said), list[Tensor]()
    tokens = torch.tensor(words.tokens, device=words.features.device)
    hidden, cache = head.fuse(words.features), head.pool.open()
    own, sees = torch.eye(count, dtype=torch.bool), torch.ones(count, count, dtype=torch.bool).tril()
    with head.pool.seated(cache, DEPTH * count + SCRATCH):
        for depth in range(DEPTH):
            following = torch.cat((tokens[1 + depth :], tokens[-1:].expand(depth)))
            nodes = Pass(following.tolist(), torch.arange(count) + depth, sees, cache.length)
            output = head.run(hidden, head.embed(following), nodes, cache)
            cache.commit(list(range(count)))
            logits.append(output.logits)
            hidden, sees = output.hidden, torch.cat((sees, own), dim=-1)
    head.pool.close(cache)
    return logits
