"""An answer is split into its thinking and its text, wherever the stream is cut, and only where the model meant it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.text.thinking import FORMATS, TEXT, THINKING, AnswerPart, PartParser, find_thinking_format, merge_parts
from tests.each_row import each_row

ANSWERS = {
    "think": "<think>\nfirst\n\nsecond\n</think>\n\n{answer}",
    "mistral": "[THINK]first\n\nsecond[/THINK]{answer}",
    "gemma": "<|channel>thought\nfirst\n\nsecond<channel|>{answer}",
    "seed": "<seed:think>\nfirst\n\nsecond\n</seed:think>\n\n{answer}",
    "harmony": (
        "<|channel|>analysis<|message|>first\n\nsecond<|end|><|start|>assistant<|channel|>final<|message|>{answer}"
    ),
}
EVERY_FORMAT = each_row("name", FORMATS)
PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<thi", "nk>", "<", ">", "/think", "a", " ", "\n", "[THINK]", "[/THINK]", "<|channel|>",
         "analysis", "final", "<|message|>", "<|end|>", "<|start|>", "assistant", "<|channel>thought\n", "<channel|>",
         "é"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


def parts_of(name: str, pieces: list[str], *, is_open: bool = False) -> list[AnswerPart]:
    parser = PartParser(FORMATS[name], is_open=is_open)
    return merge_parts([part for piece in pieces for part in parser.push(piece)] + parser.flush())


@EVERY_FORMAT
@each_row("answer", ["Hello.", "Use <think> and </think> in XML.", "  ", ""])
def test_a_transcript_cut_at_every_character_parses_as_the_whole(name, answer):
    text = ANSWERS[name].format(answer=answer)
    whole = parts_of(name, [text])

    assert all(parts_of(name, [text[:cut], text[cut:]]) == whole for cut in range(len(text)))
    assert parts_of(name, list(text)) == whole
    assert whole == [
        AnswerPart(THINKING, "first\n\nsecond"),
        *([AnswerPart(TEXT, answer)] if answer.strip() else []),
    ]


@each_row("name", FORMATS, shares=3)
@given(text=PIECES, cuts=st.sets(st.integers(0, 60)), is_open=st.booleans())
@settings(max_examples=60)
def test_no_cut_changes_the_parts(name, text, cuts, is_open):
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]

    assert parts_of(name, pieces, is_open=is_open) == parts_of(name, [text], is_open=is_open)


@given(text=st.text(st.characters(exclude_characters="<[")), is_open=st.booleans())
def test_text_without_a_marker_is_one_part(text, is_open):
    expected = AnswerPart(THINKING, text.strip()) if is_open else AnswerPart(TEXT, text)

    assert parts_of("think", [text], is_open=is_open) == ([expected] if expected.text else [])


@EVERY_FORMAT
def test_a_thought_that_the_prompt_opened_ends_at_the_marker(name):
    opening, closing = FORMATS[name].opening, ANSWERS[name].format(answer="Hi").partition("second")[2]

    assert parts_of(name, [f"why{closing}"], is_open=True) == [AnswerPart(THINKING, "why"), AnswerPart(TEXT, "Hi")]
    assert FORMATS[name].is_open(f"<user>hi<assistant>{opening}\n")


@EVERY_FORMAT
def test_a_thought_that_is_not_closed_is_no_text(name):
    unclosed = ANSWERS[name].partition("second")[0] + FORMATS[name].closing[:-1]

    assert [part.kind for part in parts_of(name, list(unclosed))] == [THINKING]


@each_row(
    "text", ["<thinking>hm</thinking>", "x <think>hm</think>", "< think>", "</think>", "`<think>` opens a thought"]
)
def test_what_only_looks_like_a_marker_is_text(text):
    assert parts_of("think", list(text)) == [AnswerPart(TEXT, text)]


def test_text_is_shown_at_once_where_no_marker_can_begin():
    parser = PartParser(FORMATS["think"], is_open=False)

    shown = [parser.push(piece) for piece in ("Yes", " <think", "ing")]

    assert shown == [[AnswerPart(TEXT, "Yes")], [AnswerPart(TEXT, " <think")], [AnswerPart(TEXT, "ing")]]


@EVERY_FORMAT
def test_a_forced_end_closes_the_thought(name):
    thought = f"{FORMATS[name].opening}so"

    assert parts_of(name, [thought, FORMATS[name].forced_closing, "Hi"]) == [
        AnswerPart(THINKING, "so"), AnswerPart(TEXT, "Hi"),
    ]  # fmt: skip


@EVERY_FORMAT
def test_a_skipped_thought_shows_nothing(name):
    assert parts_of(name, [FORMATS[name].skipped, "Hi"]) == [AnswerPart(TEXT, "Hi")]
    assert FORMATS[name].is_skipped(f"<assistant>{FORMATS[name].skipped}")


@EVERY_FORMAT
def test_the_family_is_found_by_its_template_or_its_vocabulary(name):
    tokens = FORMATS[name].tokens

    assert find_thinking_format("{{ messages }}" + "".join(tokens), ()) is FORMATS[name]
    assert find_thinking_format("", tokens) is FORMATS[name]
    assert find_thinking_format("{{ messages }}", tokens[1:]) is None


@each_row(
    "name, prompt, text, call",
    [
        ("think", "<assistant>", "<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("think", "<assistant><think>\n", "\n</think>\n\n", "\n</think>\n\n"),
        ("think", "<assistant><think>\n\n</think>\n\n", "", ""),
        ("harmony", "<|start|>assistant", "<|channel|>final<|message|>", ""),  # a call has a channel of its own
        (
            "harmony", "<|start|>assistant<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>", "<|end|><|start|>assistant",
        ),
    ],
)  # fmt: skip
def test_a_prompt_is_completed_so_that_a_text_or_a_call_begins_without_a_thought(name, prompt, text, call):
    assert FORMATS[name].without_thought(prompt, is_call=False) == text
    assert FORMATS[name].without_thought(prompt, is_call=True) == call
