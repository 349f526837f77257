"""What is to be said of a draft beside its target before anybody waits for a download: tokens, training, sizes.

The mistakes that cost people their speed, each with its number: another family's tokens, a base model beside an
instructed one, and a draft that is too large, too small or, where a card launches its layers singly, too deep. Reads
tokenizer files as JSON; loads nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.hub.catalog import find_entry
from specchat.hub.local_models import LocatedModel
from specchat.hub.memory_plan import LLAMA_LIKE_FAMILIES

MIN_DRAFT_SHARE, MAX_DRAFT_SHARE = 0.05, 0.20  # of the target's parameters
MAX_LAYER_SHARE = 0.5  # of the target's: launched one by one, they take as much of a pass that is launched so
INSTRUCT_NAME_PARTS = ("instruct", "-it", "chat", "thinking", "distill")


@dataclass(frozen=True)
class PairMember:
    """One side of a pair, as far as it is known."""

    name: str
    parameters: int
    layers: int
    token_family: str = ""  # the word of the catalog for its ids; "" when it is not there
    vocabulary: Mapping[str, int] | None = None  # the ids of its tokenizer, where that lies on this disk
    is_instruct: bool | None = None  # None: nobody can say
    has_cuda_graphs: bool = False  # a card replays its passes as CUDA graphs: those of our own passes


def pair_member(located: LocatedModel) -> PairMember:
    """What is known of a model that was located."""
    entry = find_entry(located.name)
    pieces = _read_vocabulary(located.folder) if located.folder else None
    return PairMember(
        located.name, located.architecture.parameters, located.architecture.layers, entry.token_family if entry else "", pieces,
        _is_instruct(located), located.architecture.family in LLAMA_LIKE_FAMILIES,
    )  # fmt: skip


def pair_warnings(draft: PairMember, target: PairMember, *, on_gpu: bool = True) -> Iterator[str]:
    """What speaks against this draft for this target, in words and numbers; nothing when nothing does."""
    yield from _tokenizer_warnings(draft, target)
    if draft.is_instruct is False and target.is_instruct:
        yield (
            f"{draft.name} has no chat template and {target.name} has one: a base model guesses the markup and the "
            "manner of answers badly; take its instructed sibling"
        )
    share = draft.parameters / target.parameters
    if share > MAX_DRAFT_SHARE:
        yield (
            f"{draft.name} has {share:.0%} of the parameters of {target.name}; {MIN_DRAFT_SHARE:.0%} to {MAX_DRAFT_SHARE:.0%} pay: "
            f"four guesses cost {4 * share:.1f} passes where bytes decide"
        )
    elif share < MIN_DRAFT_SHARE:
        yield (
            f"{draft.name} has {share:.1%} of the parameters of {target.name}; below {MIN_DRAFT_SHARE:.0%} guesses are cheap "
            "and fall often; a larger one of the family may bring more"
        )
    if on_gpu and not draft.has_cuda_graphs and target.layers and draft.layers / target.layers > MAX_LAYER_SHARE:
        yield (
            f"{draft.name} has {draft.layers} layers beside {target.layers}, and passes of its family are not recorded "
            f"as CUDA graphs: launched one by one, they cost {draft.layers / target.layers:.0%} of a pass that is "
            "launched so, however small they are, and more of one that is recorded; measure with 'specchat bench'"
        )


def _tokenizer_warnings(draft: PairMember, target: PairMember) -> Iterator[str]:
    if draft.vocabulary and target.vocabulary:
        same = sum(target.vocabulary.get(piece) == token for piece, token in draft.vocabulary.items())
        if same < len(draft.vocabulary):
            share = same / len(draft.vocabulary)
            cost = "its guesses are spelled anew in the target's tokens, which costs time" if share < 0.99 else (
                "the others are never guessed"
            )  # fmt: skip
            yield f"{share:.1%} of the {len(draft.vocabulary)} ids of {draft.name} mean the same in {target.name}: {cost}"
    elif draft.token_family and target.token_family and draft.token_family != target.token_family:
        yield (
            f"{draft.name} speaks {draft.token_family} and {target.name} {target.token_family}: guesses are spelled anew in other "
            "tokens, which costs time and misses some; take one of the same family"
        )


def _read_vocabulary(folder: Path) -> Mapping[str, int] | None:
    """Every piece and its id; None where no tokenizer.json says."""
    try:
        content: Any = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        said = content["model"]["vocab"]
        pieces = said if isinstance(said, dict) else {piece: number for number, (piece, _score) in enumerate(said)}
        return {**pieces, **{each["content"]: each["id"] for each in content.get("added_tokens", ())}}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_instruct(located: LocatedModel) -> bool | None:
    """By its chat template where it lies here, else by its name in the catalog."""
    if located.folder and located.folder.is_dir():
        if (located.folder / "chat_template.jinja").is_file():
            return True
        try:
            settings: Any = json.loads((located.folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return bool(isinstance(settings, dict) and settings.get("chat_template"))
    low = located.name.lower()
    return True if find_entry(located.name) or any(word in low for word in INSTRUCT_NAME_PARTS) else None
