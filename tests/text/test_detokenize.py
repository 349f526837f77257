"""The text of an answer does not depend on the blocks of its tokens and never ends with an incomplete character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.errors import UsageError
from specchat.text.detokenize import DecodedText, Detokenizer
from tests.each_row import each_row
from tests.text.test_tokenizer import FAMILIES, tokenizer_of

PIECES = [b"an", b"sw", b"E", b"ND!", b"more", b"\xe4", b"\xb8", b"\xad", b" ", b"END", b"", b"\xff", b"aab"]
BLOCKS = st.lists(st.lists(st.integers(0, len(PIECES) - 1), max_size=4), max_size=12)
STOPS = st.lists(st.sampled_from(["END", "aab", "D!m", "中", "w", "ab"]), max_size=3).map(tuple)


def stream(*stops: str, strip: bool = False) -> Detokenizer:
    return Detokenizer(PIECES.__getitem__, stops, strip)


def write(blocks: list[list[int]], stops: tuple[str, ...]) -> tuple[str, int, bool]:
    """The whole text, how many tokens count, and whether a stop string was found."""
    answer, text, count = stream(*stops), "", 0
    for block in blocks:
        piece = answer.push(block)
        text, count = text + piece.text, count + piece.token_count
        if piece.is_stopped:
            return text, count, True
    return text + answer.flush(), count, False


@given(blocks=BLOCKS, stops=STOPS)
def test_blocks_change_nothing(blocks, stops):
    tokens = [token for block in blocks for token in block]

    assert write(blocks, stops) == write([tokens], stops) == write([[token] for token in tokens], stops)


@given(blocks=BLOCKS)
def test_without_stops_the_text_is_that_of_all_bytes(blocks):
    content = b"".join(PIECES[token] for block in blocks for token in block)

    assert write(blocks, ())[0] == content.decode("utf-8", "replace")


@given(blocks=BLOCKS, stops=STOPS)
def test_the_text_contains_no_stop_string(blocks, stops):
    text, _count, stopped = write(blocks, stops)
    tokens = [token for block in blocks for token in block]
    whole = b"".join(PIECES[token] for token in tokens).decode("utf-8", "replace")

    assert not any(stop in text for stop in stops)
    assert whole.startswith(text)
    assert stopped or text == whole or any(stop in whole for stop in stops)


@given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"]), max_size=30), cuts=st.data())
@settings(max_examples=60)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_real_tokenizer_streams_what_it_decodes(family, text, cuts):
    tokenizer = tokenizer_of(family)
    ids = tokenizer.encode(text)
    cut = cuts.draw(st.integers(0, len(ids)))
    answer = tokenizer.detokenizer()

    assert answer.push(ids[:cut]).text + answer.push(ids[cut:]).text + answer.flush() == text


def test_the_token_that_completes_a_stop_is_the_last_that_counts():
    assert stream("END").push([0, 1, 2, 3, 4]) == DecodedText("answ", 4, True)


def test_a_stop_may_begin_in_one_block_and_end_in_another():
    answer = stream("END")

    assert answer.push([0, 2]) == DecodedText("an", 2, False)
    assert answer.push([3, 4]) == DecodedText("", 1, True)
    assert answer.push([0]) == DecodedText("", 0, True)
    assert answer.flush() == ""


def test_only_what_could_begin_a_stop_is_held_back():
    answer = stream("END", "swallow")

    assert answer.push([0, 1]).text == "an"
    assert answer.push([0]).text == "swan"
    assert answer.push([2]).text == ""
    assert answer.flush() == "E"


def test_an_incomplete_character_is_held_back():
    answer = stream()

    assert [answer.push([token]).text for token in (5, 6, 7)] == ["", "", "中"]


def test_invalid_bytes_are_released_at_once():
    answer = stream()

    assert [answer.push([token]).text for token in (11, 0, 5, 0)] == ["\ufffd", "an", "", "\ufffdan"]
    assert answer.push([5]).text == ""
    assert answer.flush() == "\ufffd"


def test_the_space_that_a_tokenizer_puts_first_is_left_out_once():
    answer = stream(strip=True)

    assert answer.push([10, 8]).text == ""
    assert answer.push([8, 0]).text == " an"


@each_row("family", FAMILIES)
def test_control_tokens_are_not_shown(family):
    tokenizer = tokenizer_of(family)
    ids = [*tokenizer.encode("fox"), tokenizer.vocabulary["<|end|>"]]

    assert tokenizer.detokenizer(("end",)).push(ids) == DecodedText("fox", len(ids), False)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(UsageError, match="must not be empty"):
        stream("")
