"""Whether a draft model has the tokens of the target.

Compares the vocabularies of the tokenizers, not the sizes of the models: related models pad their embeddings
differently.
"""

from specchat.errors import ModelError
from specchat.text.tokenizer import Tokenizer


def check_same_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    """ModelError when the ordinary tokens differ.

    Control tokens and other added tokens may differ, as between generations of one family: plain text never needs them.
    """
    if difference := _first_difference(target, draft):
        raise ModelError(
            f"draft {draft}: its tokens are not those of the target {target} ({difference}); "
            "choose a draft of the same family, or none with --draft ''"
        )


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
