"""The position of a rewrite in the original text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.app.edit_progress import RewriteAlignment, format_progress

OLD = "".join(f"line {number}\n" for number in range(10))


def written(text: str) -> RewriteAlignment:
    alignment = RewriteAlignment(OLD)
    for letter in text:
        alignment.feed(letter)
    return alignment


def test_the_place_follows_a_copy_and_is_found_again_after_a_change():
    assert 5 == written(OLD[: len(OLD) // 2]).lines_done
    for text in (OLD, OLD.replace("line 3\n", "other\nlines\n"), OLD.replace("line 3\nline 4\n", "")):
        assert 10 == written(text).lines_done, text


def test_the_time_left_follows_from_what_is_left_of_the_original():
    half = written(OLD[: len(OLD) // 2])

    assert 4.0 < half.seconds_left(4.0) < 4.2
    assert written("").seconds_left(1.0) is None


def test_the_line_has_all_parts():
    assert "49 % · 5/11 lines · 2 s left" == format_progress(written("new\n" + OLD[: len(OLD) // 2]), 2.0)


@given(st.text("ab\n", max_size=40), st.text("ab\n", max_size=40))
def test_no_text_leads_out_of_the_original(old, new):
    alignment = RewriteAlignment(old)
    alignment.feed(new)

    assert 0 <= alignment.fraction_done <= 1
    assert 0 <= alignment.lines_done <= alignment.line_count
