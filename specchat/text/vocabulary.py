"""The tokens of a model as pieces by id, and whether a draft model has the same: what decides who can draft for whom.

Knows no file: `tokenizer.py` and `weights/gguf/gguf_tokenizer.py` read vocabularies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tokenizers


class TokenIds(Mapping[str, int]):
    """The id of every piece, asked of the library: a dictionary of 262,144 pieces takes 40 MB more."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend

    def __getitem__(self, piece: str) -> int:
        if (token := self._backend.token_to_id(piece)) is None:
            raise KeyError(piece)
        return token

    def __iter__(self) -> Iterator[str]:
        return iter(self._backend.get_vocab(with_added_tokens=True))

    def __len__(self) -> int:
        return self._backend.get_vocab_size(with_added_tokens=True)


@dataclass(frozen=True)
class Vocabulary:
    """Ordinary tokens, and the ids of control tokens and other added ones."""

    ordinary: Mapping[int, str]
    added: frozenset[int]

    def first_difference(self, draft: Vocabulary) -> str | None:
        """A description of the lowest id whose ordinary token differs; None for the same tokens.

        Added tokens on either side may differ, as between generations of one family: plain text never needs them.
        """
        if self.ordinary == draft.ordinary:
            return None
        added = self.added | draft.added
        for token in sorted(self.ordinary.keys() | draft.ordinary.keys()):
            expected, actual = self.ordinary.get(token), draft.ordinary.get(token)
            if expected != actual and token not in added:
                return f"id {token} is {_repr(expected)} in the target and {_repr(actual)} in the draft"
        return None


def _repr(piece: str | None) -> str:
    return "nothing" if piece is None else repr(piece)
