"""The text of an answer does not depend on the blocks of its tokens and never ends with an incomplete character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.errors import UsageError
from specchat.text.detokenize import Detokenizer, StopStrings
from tests.each_row import each_row
from tests.text.test_tokenizer import FAMILIES, tokenizer_of

PIECES = [b"an", b"sw", b"E", b"ND!", b"more", b"\xe4", b"\xb8", b"\xad", b" ", b"END", b"", b"\xff", b"aab"]
BLOCKS = st.lists(st.lists(st.integers(0, len(PIECES) - 1), max_size=4), max_size=12)
STOPS = st.lists(st.sampled_from(["END", "aab", "D!m", "中", "w", "ab"]), max_size=3).map(tuple)


def stream(strip: bool = False) -> Detokenizer:
    return Detokenizer(PIECES.__getitem__, strip)


def write(blocks: list[list[int]], stops: tuple[str, ...]) -> tuple[str, bool]:
    """The whole text, and whether a stop string ended it."""
    answer, ends = stream(), StopStrings(stops)
    text = "".join(ends.push(piece) for piece in [*map(answer.push, blocks), answer.flush()])
    is_stopped = ends.is_found
    return text + ends.flush(), is_stopped


@given(blocks=BLOCKS, stops=STOPS)
def test_blocks_change_nothing(blocks, stops):
    tokens = [token for block in blocks for token in block]

    assert write(blocks, stops) == write([tokens], stops) == write([[token] for token in tokens], stops)


@given(blocks=BLOCKS, stops=STOPS)
def test_the_text_is_that_of_all_bytes_up_to_a_stop_string(blocks, stops):
    text, is_stopped = write(blocks, stops)
    whole = b"".join(PIECES[token] for block in blocks for token in block).decode("utf-8", "replace")

    assert not any(stop in text for stop in stops)
    assert whole.startswith(text)
    assert is_stopped == any(stop in whole for stop in stops)
    assert is_stopped or text == whole


@given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"]), max_size=30), cuts=st.data())
@settings(max_examples=60)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_real_tokenizer_streams_what_it_decodes(family, text, cuts):
    tokenizer = tokenizer_of(family)
    ids = tokenizer.encode(text)
    cut = cuts.draw(st.integers(0, len(ids)))
    answer = tokenizer.detokenizer()

    assert answer.push(ids[:cut]) + answer.push(ids[cut:]) + answer.flush() == text


def test_a_stop_may_begin_in_one_piece_and_end_in_another():
    ends = StopStrings(("END",))

    assert ["an", "", ""] == [ends.push(piece) for piece in ("anE", "ND!more", "an")]
    assert ends.is_found
    assert "" == ends.flush()


def test_only_what_could_begin_a_stop_is_held_back():
    ends = StopStrings(("END", "swallow"))

    assert ["an", "swan", ""] == [ends.push(piece) for piece in ("answ", "an", "E")]
    assert "E" == ends.flush()


def test_an_incomplete_character_is_held_back():
    answer = stream()

    assert [answer.push([token]) for token in (5, 6, 7)] == ["", "", "中"]


def test_invalid_bytes_are_released_at_once():
    answer = stream()

    assert [answer.push([token]) for token in (11, 0, 5, 0)] == ["\ufffd", "an", "", "\ufffdan"]
    assert answer.push([5]) == ""
    assert answer.flush() == "\ufffd"


def test_the_space_that_a_tokenizer_puts_first_is_left_out_once():
    answer = stream(strip=True)

    assert answer.push([10, 8]) == ""
    assert answer.push([8, 0]) == " an"


@each_row("family", FAMILIES)
def test_control_tokens_are_not_shown(family):
    tokenizer = tokenizer_of(family)
    ids = [*tokenizer.encode("fox"), tokenizer.vocabulary["<|end|>"]]

    assert tokenizer.detokenizer().push(ids) == "fox"


def test_an_empty_stop_string_is_refused():
    for request in (Request, FimRequest):  # where it comes from; behind them nobody checks again
        with pytest.raises(UsageError, match="must not be empty"):
            request("x", stop=("",))
