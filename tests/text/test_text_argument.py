"""The text of a call that answers, read from its arguments wherever the stream is cut."""

from __future__ import annotations

import json

from specchat.text.answer_stream import TextArgument
from tests.each_row import each_row

TEXTS = ['Two lines:\n\t"quoted" \\ and / é 漢 😀', "", "\\", 'ends in \\"', "a\x07b"]


def text_of(pieces: list[str]) -> str:
    reader = TextArgument()
    return "".join(reader.push(piece) for piece in pieces)


@each_row("is_ascii", [True, False])
@each_row("text", TEXTS)
def test_arguments_cut_at_every_character_say_the_same(text, is_ascii):
    arguments = json.dumps({"text": text}, ensure_ascii=is_ascii)

    assert text_of([arguments]) == text
    assert text_of(list(arguments)) == text
    assert [text_of([arguments[:cut], arguments[cut:]]) for cut in range(len(arguments))] == [text] * len(arguments)


def test_the_text_is_shown_before_the_string_ends():
    reader = TextArgument()

    assert [reader.push(piece) for piece in ['{"te', 'xt": "Hel', "lo\\", 'n"', "}"]] == ["", "Hel", "lo", "\n", ""]


@each_row(
    "written, text",
    [("a\\ud83d b", "a\ufffd b"), ("\\ud83d\\ude00", "😀"), ("a\\ude00b", "a\ufffdb"), ("\\ud83", "")],
)
def test_half_a_character_is_shown_as_a_replacement_and_an_unfinished_one_not_at_all(written, text):
    arguments = f'{{"text": "{written}'

    assert text_of([arguments]) == text
    assert text_of(list(arguments)) == text
