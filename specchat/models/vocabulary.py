"""Whether two models speak of the same tokens: a draft is of use only if its ids can be said in the target's.

The maps of the tokenizers are compared, never the sizes of the models: rows above the last token are padding, and
related models pad differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.errors import ModelError
from specchat.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenMap:
    """Draft ids in the target's terms. `ids` is None when every id means the same in both; -1 is a token not shared."""

    ids: tuple[int, ...] | None = None

    @property
    def is_identity(self) -> bool:
        """Whether ids can be passed on as they are."""
        return self.ids is None


def map_tokens(target: Tokenizer, draft: Tokenizer) -> TokenMap:
    """How the draft's ids are said in the target's; a ModelError when their ordinary tokens differ.

    Control tokens and other added tokens may differ, as between generations of one family: text never needs them.
    An id that only the draft has, or that means another control token, is mapped to -1 and is not to be guessed.
    """
    ordinary = _first_difference(target, draft)
    if ordinary is not None:
        raise ModelError(
            f"draft {draft}: its tokens are not those of the target {target} ({ordinary}); "
            "take a draft of the same family, or none with --draft ''"
        )
    if target.vocabulary == draft.vocabulary:
        return TokenMap()
    return TokenMap(_mapped_ids(target.vocabulary, draft.vocabulary, draft.vocab_size))


def check_same_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    """Refuse a draft whose ids mean something else. A draft that merely has other control tokens passes."""
    map_tokens(target, draft)


def _mapped_ids(target: Mapping[str, int], draft: Mapping[str, int], size: int) -> tuple[int, ...]:
    ids = [-1] * size
    for piece, token in draft.items():
        ids[token] = target.get(piece, -1)
    return tuple(ids)


def _first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """The lowest id whose ordinary meaning differs, in words. An added token on either side may differ."""
    meant, guessed = _ordinary_tokens(target), _ordinary_tokens(draft)
    free = target.added | draft.added
    for token in sorted(meant.keys() | guessed.keys()):
        here, there = meant.get(token), guessed.get(token)
        if here != there and token not in free:
            return f"id {token} is {_token_repr(here)} in the target and {_token_repr(there)} in the draft"
    return None


def _ordinary_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    return {token: piece for piece, token in tokenizer.vocabulary.items() if token not in tokenizer.added}


def _token_repr(piece: str | None) -> str:
    return "nothing" if piece is None else repr(piece)
