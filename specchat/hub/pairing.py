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
from specchat.hub.local_files import Located
from specchat.hub.memory_plan import DENSE

SMALLEST, LARGEST = 0.05, 0.20  # of the target's parameters
MANY_LAYERS = 0.5  # of the target's: launched one by one, they take as much of a pass that is launched so
INSTRUCTED = ("instruct", "-it", "chat", "thinking", "distill")


@dataclass(frozen=True)
class Partner:
    """One side of a pair, as far as it is known."""

    name: str
    parameters: int
    layers: int
    tokens: str = ""  # the word of the catalog for its ids; "" when it is not there
    pieces: Mapping[str, int] | None = None  # the ids of its tokenizer, where that lies on this disk
    is_instructed: bool | None = None  # None: nobody can say
    is_recorded: bool = False  # a card replays its passes as CUDA graphs: those of our own passes


def partner(found: Located) -> Partner:
    """What is known of a model that was located."""
    entry = find_entry(found.name)
    pieces = _pieces(found.folder) if found.folder else None
    return Partner(
        found.name, found.anatomy.parameters, found.anatomy.layers, entry.tokens if entry else "", pieces,
        _is_instructed(found), found.anatomy.family in DENSE,
    )  # fmt: skip


def cautions(draft: Partner, target: Partner, *, on_card: bool = True) -> Iterator[str]:
    """What speaks against this draft for this target, in words and numbers; nothing when nothing does."""
    yield from _other_tokens(draft, target)
    if draft.is_instructed is False and target.is_instructed:
        yield (
            f"{draft.name} has no chat template and {target.name} has one: a base model guesses the markup and the "
            "manner of answers badly; take its instructed sibling"
        )
    share = draft.parameters / target.parameters
    if share > LARGEST:
        yield (
            f"{draft.name} has {share:.0%} of the parameters of {target.name}; {SMALLEST:.0%} to {LARGEST:.0%} pay: "
            f"four guesses cost {4 * share:.1f} passes where bytes decide"
        )
    elif share < SMALLEST:
        yield (
            f"{draft.name} has {share:.1%} of the parameters of {target.name}; below {SMALLEST:.0%} guesses are cheap "
            "and fall often; a larger one of the family may bring more"
        )
    if on_card and not draft.is_recorded and target.layers and draft.layers / target.layers > MANY_LAYERS:
        yield (
            f"{draft.name} has {draft.layers} layers beside {target.layers}, and passes of its family are not recorded "
            f"as CUDA graphs: launched one by one, they cost {draft.layers / target.layers:.0%} of a pass that is "
            "launched so, however small they are, and more of one that is recorded; measure with 'specchat bench'"
        )


def _other_tokens(draft: Partner, target: Partner) -> Iterator[str]:
    if draft.pieces and target.pieces:
        same = sum(target.pieces.get(piece) == token for piece, token in draft.pieces.items())
        if same < len(draft.pieces):
            share = same / len(draft.pieces)
            cost = "its guesses are spelled anew in the target's tokens, which costs time" if share < 0.99 else (
                "the others are never guessed"
            )  # fmt: skip
            yield f"{share:.1%} of the {len(draft.pieces)} ids of {draft.name} mean the same in {target.name}: {cost}"
    elif draft.tokens and target.tokens and draft.tokens != target.tokens:
        yield (
            f"{draft.name} speaks {draft.tokens} and {target.name} {target.tokens}: guesses are spelled anew in other "
            "tokens, which costs time and misses some; take one of the same family"
        )


def _pieces(folder: Path) -> Mapping[str, int] | None:
    """Every piece and its id; None where no tokenizer.json says."""
    try:
        content: Any = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        said = content["model"]["vocab"]
        pieces = said if isinstance(said, dict) else {piece: number for number, (piece, _score) in enumerate(said)}
        return {**pieces, **{each["content"]: each["id"] for each in content.get("added_tokens", ())}}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_instructed(found: Located) -> bool | None:
    """By its chat template where it lies here, else by its name in the catalog."""
    if found.folder and found.folder.is_dir():
        if (found.folder / "chat_template.jinja").is_file():
            return True
        try:
            settings: Any = json.loads((found.folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return bool(isinstance(settings, dict) and settings.get("chat_template"))
    low = found.name.lower()
    return True if find_entry(found.name) or any(word in low for word in INSTRUCTED) else None
