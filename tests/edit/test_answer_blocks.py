"""Which code block of an answer is taken, and what is left as talk."""

from __future__ import annotations

import pytest

from specchat.edit.answer_blocks import choose_text
from specchat.edit.source_text import make_source

CODE = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"
NEW = CODE.replace("add", "plus")


def block(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def chosen(answer: str, old: str = CODE, name: str = "a.py"):
    return choose_text(make_source(old.encode(), name), answer)


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\n", "x = 1\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("\n~~~~\nx\n\ny\n~~~~", "x\n\ny\n"),
        ("x = 1\n", "x = 1\n"),
        ("text\n```\nx\n```", "x\n"),
    ],
)
def test_a_fence_is_unwrapped(answer, inside):
    assert inside == chosen(answer, "x").text


def test_a_text_with_fences_of_its_own_is_taken_as_a_whole():
    assert "```\ny\n```" == chosen("```\ny\n```", "```\nx\n```", "a.md").text
    assert "a\n```\ny\n```" == chosen("a\n```\ny\n```", "a\n```\nx\n```", "a.md").text


def test_the_block_that_is_most_like_the_file_is_taken_and_the_rest_is_talk():
    answer = f"Run this:\n{block('pip install x', 'sh')}\nHere is the file:\n{block(NEW)}\nIt prints:\n{block('3')}"

    taken = chosen(answer)

    assert NEW == taken.text
    assert taken.talk.startswith("Run this:")
    assert "It prints:" in taken.talk
    assert "def" not in taken.talk


def test_a_block_that_parses_comes_before_one_that_does_not():
    broken = NEW.replace("return plus(a, a)", "return plus(a, a")

    assert NEW == chosen(f"{block(broken)}\nCorrected:\n{block(NEW)}").text
    assert NEW == chosen(f"{block(NEW)}\nor\n{block(broken)}", name="stdin").text


def test_a_copy_of_the_old_text_comes_after_a_new_one():
    assert NEW == chosen(f"Before:\n{block(CODE)}\nAfter:\n{block(NEW)}").text
    assert CODE == chosen(f"It is fine:\n{block(CODE)}").text


def test_a_block_that_is_not_closed_ends_with_the_answer():
    assert NEW == chosen(f"Here it is:\n```python\n{NEW}").text


GUIDE = "# Guide\n\n```sh\nrun it\n```\n\nThat is all.\n"
ENDS_IN_CODE = "# Guide\n\n```sh\nrun it\n```\n"


@pytest.mark.parametrize("old", [GUIDE, ENDS_IN_CODE])
@pytest.mark.parametrize("end", ["````", "```", ""])
def test_a_text_with_fences_ends_where_the_file_says(old, end):
    new = old.replace("run it", "run it twice")

    assert new == chosen(f"````markdown\n{new}{end}", old, "a.md").text


@pytest.mark.parametrize("talk", ["", "Here is the guide:\n\n"])
def test_a_text_with_fences_may_stand_in_a_fence_as_short_as_they_are(talk):
    new = GUIDE.replace("run it", "run it twice")

    assert new == chosen(f"{talk}```markdown\n{new}```", GUIDE, "a.md").text


def test_two_blocks_are_not_one_with_talk_inside():
    taken = chosen(f"{block(CODE)}\nbecomes\n{block(NEW)}")

    assert NEW == taken.text
    assert "becomes" in taken.talk
