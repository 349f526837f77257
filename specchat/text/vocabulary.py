"""The tokens of a model as pieces by id, and whether a draft model has the same: what decides who can draft for whom.

Knows no file: `tokenizer.py` and `weights/gguf/gguf_tokenizer.py` read vocabularies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
