"""Whether a draft model has the tokens of the target, and how its ids map to the target's.

Compares the vocabularies of the tokenizers, not the sizes of the models: related models pad their embeddings
differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.errors import ModelError
from specchat.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenMap:
    """The target id of every draft id. `ids` is None when all ids are equal; -1 marks a token that is not shared."""

    ids: tuple[int, ...] | None = None

    @property
    def is_identity(self) -> bool:
        """Whether every id is the same in both."""
        return self.ids is None


def map_tokens(target: Tokenizer, draft: Tokenizer) -> TokenMap:
    """Map the draft's ids to the target's; ModelError when their ordinary tokens differ.

    Control tokens and other added tokens may differ, as between generations of one family: plain text never needs
    them. An id that the target lacks, or that is another control token there, is mapped to -1 and must not be drafted.
    """
    if difference := _first_difference(target, draft):
        raise ModelError(
            f"draft {draft}: its tokens are not those of the target {target} ({difference}); "
            "choose a draft of the same family, or none with --draft ''"
        )
    if target.vocabulary == draft.vocabulary:
        return TokenMap()
    return TokenMap(_mapped_ids(target.vocabulary, draft.vocabulary, draft.vocab_size))


def check_same_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    """ModelError when the ordinary tokens differ; other control tokens are allowed."""
    map_tokens(target, draft)


def _mapped_ids(target: Mapping[str, int], draft: Mapping[str, int], size: int) -> tuple[int, ...]:
    ids = [-1] * size
    for piece, token in draft.items():
        ids[token] = target.get(piece, -1)
    return tuple(ids)


def _first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """A description of the lowest id whose ordinary token differs. Added tokens on either side may differ."""
    target_pieces, draft_pieces = _ordinary_tokens(target), _ordinary_tokens(draft)
    added = target.added | draft.added
    for token in sorted(target_pieces.keys() | draft_pieces.keys()):
        expected, actual = target_pieces.get(token), draft_pieces.get(token)
        if expected != actual and token not in added:
            return f"id {token} is {_token_repr(expected)} in the target and {_token_repr(actual)} in the draft"
    return None


def _ordinary_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    return {token: piece for piece, token in tokenizer.vocabulary.items() if token not in tokenizer.added}


def _token_repr(piece: str | None) -> str:
    return "nothing" if piece is None else repr(piece)
