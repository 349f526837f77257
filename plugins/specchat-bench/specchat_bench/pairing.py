"""Warnings about a draft model for a target, before either is downloaded: tokens, training, sizes.

Finds the common reasons for low speed, with figures: a different tokenizer, a base model beside an instruct model, and
a draft that is too large, too small or, without CUDA graphs, too deep. Reads tokenizer files as JSON; loads no model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.devices import CUDA, DeviceKind
from specchat.hub.catalog import find_entry
from specchat.hub.local_models import LocatedModel
from specchat.hub.recommend import MAX_DRAFT_SHARE
from specchat.paths import read_json_object
from specchat.weights.gguf.gguf_file import is_gguf, read_gguf
from specchat.weights.llama_families import LLAMA_LIKE_FAMILIES

MIN_DRAFT_SHARE = 0.05  # of the target's parameters
MAX_LAYER_SHARE = 0.5  # without CUDA graphs, the time of a pass follows the number of layers
INSTRUCT_NAME_PARTS = ("instruct", "-it", "chat", "thinking", "distill")


@dataclass(frozen=True)
class PairMember:
    name: str
    parameters: int
    layers: int
    token_family: str = ""  # of the catalog; "" when it is not listed
    vocabulary: Mapping[str, int] | None = None  # when its tokenizer is on this disk
    is_instruct: bool | None = None  # None: unknown
    has_cuda_graphs: bool = False  # forward.llama.llama captures its passes as CUDA graphs


def pair_member(located: LocatedModel) -> PairMember:
    entry, architecture = find_entry(located.name), located.architecture
    return PairMember(
        located.name, architecture.parameters, architecture.layers, entry.token_family if entry else "",
        (ordinary_tokens(located.folder) if located.folder else None) or None, _is_instruct(located),
        architecture.family in LLAMA_LIKE_FAMILIES,
    )  # fmt: skip


def pair_warnings(draft: PairMember, target: PairMember, *, kind: DeviceKind = CUDA) -> Iterator[str]:
    yield from _tokenizer_warnings(draft, target)
    if draft.is_instruct is False and target.is_instruct:
        yield (
            f"{draft.name} has no chat template and {target.name} has one: a base model predicts the markup and style "
            "of answers badly; choose its instruct version"
        )
    share = draft.parameters / target.parameters
    if share > MAX_DRAFT_SHARE:
        yield (
            f"{draft.name} has {share:.0%} of the parameters of {target.name}; {MIN_DRAFT_SHARE:.0%} to "
            f"{MAX_DRAFT_SHARE:.0%} is best: four draft tokens cost {4 * share:.1f} passes where bandwidth is the limit"
        )
    elif share < MIN_DRAFT_SHARE:
        yield (
            f"{draft.name} has {share:.1%} of the parameters of {target.name}; below {MIN_DRAFT_SHARE:.0%}, draft "
            "tokens are cheap but often rejected; a larger model of the family may be faster"
        )
    has_graphs = kind.has_graphs and draft.has_cuda_graphs
    if kind.is_gpu and not has_graphs and target.layers and draft.layers / target.layers > MAX_LAYER_SHARE:
        yield (
            f"{draft.name} has {draft.layers} layers and {target.name} {target.layers}, and it runs without CUDA "
            f"graphs: a draft token costs at least {draft.layers / target.layers:.0%} of a pass of the target, "
            "whatever the size of the layers; measure with 'specchat bench drafters'"
        )


def _tokenizer_warnings(draft: PairMember, target: PairMember) -> Iterator[str]:
    if draft.vocabulary and target.vocabulary:
        same = sum(target.vocabulary.get(piece) == token for piece, token in draft.vocabulary.items())
        if same < len(draft.vocabulary):
            share = same / len(draft.vocabulary)
            effect = "its draft tokens are encoded again for the target (by a plugin), which costs time"
            effect = effect if share < 0.99 else "the others are never drafted"
            ids = f"{share:.1%} of the {len(draft.vocabulary)} ids of {draft.name}"
            yield f"{ids} are the same in {target.name}: {effect}"
    elif draft.token_family and target.token_family and draft.token_family != target.token_family:
        yield (
            f"{draft.name} has the tokens of {draft.token_family} and {target.name} those of {target.token_family}: "
            "the plugin specchat-heads encodes draft tokens again for the target, which costs time and loses some; "
            "choose a draft of the same family"
        )


def ordinary_tokens(folder: Path) -> Mapping[str, int]:
    """The ids of the pieces in tokenizer.json, without added tokens, or in a GGUF file; empty where there are none."""
    if is_gguf(folder):
        tokens = read_gguf(folder).metadata.get("tokenizer.ggml.tokens", ())
        return {piece: index for index, piece in enumerate(tokens)}
    content = read_json_object(folder / "tokenizer.json")
    try:
        vocab = content["model"]["vocab"]
        pieces = vocab if isinstance(vocab, dict) else {piece: index for index, (piece, _score) in enumerate(vocab)}
        added = {token["id"] for token in content.get("added_tokens") or ()}
        return {piece: token for piece, token in pieces.items() if token not in added}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _is_instruct(located: LocatedModel) -> bool | None:
    """Whether it has a chat template, if it is on this disk; else by its name or the catalog."""
    if located.folder and is_gguf(located.folder):
        return "tokenizer.chat_template" in read_gguf(located.folder).metadata
    if located.folder and located.folder.is_dir():
        if (located.folder / "chat_template.jinja").is_file():
            return True
        try:
            settings: Any = json.loads((located.folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return bool(isinstance(settings, dict) and settings.get("chat_template"))
    name = located.name.lower()
    return True if find_entry(name) or any(part in name for part in INSTRUCT_NAME_PARTS) else None
