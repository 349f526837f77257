"""Which draft models have the tokens of the target."""

from __future__ import annotations

import json

import pytest
import tokenizers

from specchat.errors import ModelError
from specchat.text.tokenizer import Tokenizer, check_same_tokens
from tests import tokenizers_at_hand as at_hand


@pytest.fixture
def folders(tmp_path):
    """Two folders with the same tokens."""
    return at_hand.byte_level(tmp_path / "target"), at_hand.byte_level(tmp_path / "draft")


def test_ids_are_those_of_the_library_without_a_copy(folders):
    tokenizer = Tokenizer(folders[0])
    expected = tokenizers.Tokenizer.from_file(str(folders[0] / "tokenizer.json")).get_vocab(with_added_tokens=True)

    assert tokenizer.vocabulary == expected
    assert (len(expected), None) == (len(tokenizer.vocabulary), tokenizer.vocabulary.get("no piece"))


def test_equal_tokens_are_accepted(folders):
    check_same_tokens(*map(Tokenizer, folders))


def test_padding_is_no_difference(folders):
    for folder, rows in zip(folders, (512, 1024), strict=True):
        (folder / "config.json").write_text(json.dumps({"vocab_size": rows, "eos_token_id": 0}), encoding="utf-8")

    check_same_tokens(*map(Tokenizer, folders))


def test_other_control_tokens_are_accepted(folders):
    at_hand.add_token(folders[0], "<think>", special=False)
    at_hand.add_token(folders[0], "<|tool|>", special=True)
    at_hand.add_token(folders[1], "<|tool|>", special=True)
    at_hand.add_token(folders[1], "<|other|>", special=True)

    check_same_tokens(*map(Tokenizer, folders))


def test_a_draft_with_other_pieces_is_refused_by_the_first_difference(folders, tmp_path):
    other = at_hand.byte_level(tmp_path / "other", size=300)
    target, draft = Tokenizer(folders[0]), Tokenizer(other)
    piece = next(piece for piece, token in target.vocabulary.items() if token == draft.vocab_size)

    with pytest.raises(ModelError) as caught:
        check_same_tokens(target, draft)

    assert str(caught.value).startswith(f"draft {other}: its tokens are not those of the target {folders[0]} (")
    assert f"(id {draft.vocab_size} is {piece!r} in the target and nothing in the draft)" in str(caught.value)


def test_another_family_is_refused(folders, tmp_path):
    with pytest.raises(ModelError, match="choose a draft of the same family"):
        check_same_tokens(Tokenizer(folders[0]), Tokenizer(at_hand.sentence_piece(tmp_path / "other")))
