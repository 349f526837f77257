"""An answer that arrives in pieces: the same text and rows for all pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from specchat.drawing.glyphs import printable
from specchat.tui.streaming_answer import MAX_LINE_CHARS, PARTIAL_FENCE, WrappedText
from tests.each_row import each_row

PIECES = st.lists(
    st.sampled_from(
        [
            "word ",
            "```",
            "```python\n",
            "\n",
            "def f():\n",
            "[bold",
            "[/x] ",
            "\r\n",
            "\r",
            "\x1b[31m",
            "語",
            "\t",
            "~~~\n",
        ]
    )
)


def grown(pieces: list[str], width: int = 20) -> WrappedText:
    flow = WrappedText(width=width)
    for piece in pieces:
        flow.append(piece)
    return flow


def text_of(flow: WrappedText) -> str:
    """The whole text, without a carriage return that may be half of an end of line."""
    return "\n".join(line.plain for line in [*flow.lines, flow.open_line])


@given(PIECES, st.integers(2, 30))
def test_any_chunking_shows_the_same(pieces, width):
    whole, parts = grown(["".join(pieces)], width), grown(pieces, width)
    letters = grown(list("".join(pieces)), width)

    assert printable("".join(pieces).removesuffix("\r")) == text_of(whole) == text_of(parts) == text_of(letters)
    assert [row.plain for row in whole.rows] == [row.plain for row in parts.rows] == [row.plain for row in letters.rows]


@given(PIECES, st.integers(2, 30), st.integers(2, 30))
def test_another_width_is_as_if_it_had_always_been_so(pieces, before, after):
    resized = grown(pieces, before)
    resized.rewrap(after)

    assert [row.plain for row in grown(pieces, after).rows] == [row.plain for row in resized.rows]


@given(PIECES, st.integers(2, 30))
def test_no_row_is_wider_than_the_screen(pieces, width):
    assert all(cell_len(row.plain.rstrip()) <= width for row in grown(pieces, width).rows)


@pytest.fixture
def painted(monkeypatch) -> list[tuple[str, str]]:
    """The languages and the lines of code that were painted."""
    lines = list[tuple[str, str]]()

    def paint(code: str, language: str) -> Content:
        lines.append((language, code))
        return Content(code)

    monkeypatch.setattr("specchat.tui.streaming_answer.highlight_code", paint)
    return lines


def test_code_is_painted_line_by_line_when_it_is_whole(painted):
    flow = WrappedText()
    for letter in "so:\n```python\nx = 1\ny = ":
        flow.append(letter)

    assert [("python", "x = 1")] == painted
    flow.append("2\n```\nend\n")
    assert [("python", "x = 1"), ("python", "y = 2")] == painted


def test_a_fence_inside_a_longer_fence_is_code(painted):
    flow = WrappedText()
    flow.append("````\n```\nx\n````\ny\n")

    assert [("", "```"), ("", "x")] == painted


def test_no_fence_is_seen_while_code_streams():
    flow, seen = WrappedText(hidden_line=PARTIAL_FENCE), list[str]()
    for letter in "so:\n```python\nx = 1\n```\n`y` ~ end":
        flow.append(letter)
        seen.append("\n".join(row.plain for row in flow.rows))

    assert not any("``" in shown or "`\n" in shown for shown in seen)
    assert "so:\npython ───\nx = 1\n\n`y` ~ end" == seen[-1]


@given(PIECES, st.integers(2, 30))
def test_any_chunking_without_fences_shows_the_same(pieces, width):
    flows = [WrappedText(width=width, hidden_line=PARTIAL_FENCE) for _ in range(2)]
    flows[0].append("".join(pieces))
    for letter in "".join(pieces):
        flows[1].append(letter)
    flows[1].rewrap(width)

    assert [row.plain for row in flows[0].rows] == [row.plain for row in flows[1].rows]


@each_row("sent", ["\x1b[31mred", "\x1b]52;c;aGk=\x07", "a\rb", "\x9b1m", "\u202egnp"])
def test_nothing_that_a_terminal_obeys_reaches_it(sent):
    shown = "".join(row.plain for row in grown([sent]).rows)

    assert all(letter.isprintable() for letter in shown)
    assert shown


def test_an_escape_is_shown_as_text():
    assert "␛[31mred" == grown(["\x1b[31mred"]).rows[0].plain


def test_a_line_without_an_end_is_laid_out_in_parts():
    flow = grown(["x" * 100] * 100, width=80)

    assert "x" * 10_000 == text_of(flow).replace("\n", "")
    assert max(len(line.plain) for line in flow.lines) == MAX_LINE_CHARS
