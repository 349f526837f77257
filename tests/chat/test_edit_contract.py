"""The file that an answer rewrites: found by its name, and the form of such an answer."""

from __future__ import annotations

import re

import pytest

from specchat.chat.edit_contract import (
    Fence,
    fence_of,
    fenced_text_pattern,
    file_to_rewrite,
    with_edit_contract,
)
from specchat.chat.events import Failed, Finished, TextDelta
from specchat.chat.request import AnswerFormat, Attachment, Request
from specchat.chat.request_kinds import parse_question
from specchat.chat.transcript import Turn
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Prompt, Sampling
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row

FILE, OTHER = Attachment("a.py", "abc abc abc\n"), Attachment("b.md", "```\ncode\n```")


def test_a_file_is_found_among_those_of_the_request_and_then_of_the_latest_turn():
    turns = [Turn("first", (Attachment("a.py", "old"),)), Turn("then", (FILE,))]

    assert FILE == file_to_rewrite(Request("go on", file_to_rewrite="a.py"), turns)
    assert OTHER == file_to_rewrite(Request("go on", (FILE, OTHER), file_to_rewrite="b.md"), turns)


def test_nothing_is_rewritten_unless_a_known_file_is_named():
    assert file_to_rewrite(Request("go on", (FILE,)), ()) is None
    assert file_to_rewrite(Request("go on", (FILE,), file_to_rewrite="c.py"), ()) is None


def test_the_fence_of_a_file_is_that_of_its_attachment():
    assert Fence("```python", "```") == fence_of(FILE)
    assert Fence("````markdown", "````") == fence_of(OTHER)
    assert Fence("```python", "```") == fence_of(Attachment("a.py", ""))


EDIT = Request("go on", (FILE,), task="edit", file_to_rewrite="a.py")
PREFILL, GRAMMAR, FREE = (Prompt(edit_answer=name) for name in ("prefill", "grammar", "free"))


def test_the_answer_of_an_edit_is_begun_with_the_fence_of_the_file_and_ends_at_it():
    begun = with_edit_contract(EDIT, (), PREFILL)
    later = with_edit_contract(Request("again", task="edit", file_to_rewrite="b.md"), [Turn("x", (OTHER,))], PREFILL)

    assert ("```python", ("\n```",)) == (begun.answer_prefix, begun.stop)
    assert ("````markdown", ("\n````",)) == (later.answer_prefix, later.stop)


@each_row(
    "request_",
    [
        Request("go on", (FILE,), file_to_rewrite="a.py"),
        Request("write a new file", task="edit"),
        Request("go on", (FILE,), task="edit", file_to_rewrite="a.py", answer_prefix="<<<<<<< SEARCH"),
    ],
)
def test_other_requests_keep_their_form(request_):
    assert request_ == with_edit_contract(request_, (), PREFILL)
    assert EDIT == with_edit_contract(EDIT, (), FREE)


@each_row(
    "answer, is_in_fence",
    [
        ("```python\nx = 1\n```", True),
        ("```python\n```", True),
        ("```python\n\n`x`\n``\n  ```\n```", True),
        ("```python\nx = 1\n```\nDone.", False),
        ("```python\nx = 1", False),
        ("Here it is:\n```python\nx = 1\n```", False),
        ("```python\nx\n```js\ny\n```", False),
    ],
)
def test_the_grammar_of_an_edit_is_fence_text_fence(answer, is_in_fence):
    assert is_in_fence == bool(re.fullmatch(fenced_text_pattern(Fence("```python", "```")), answer))


@pytest.fixture(scope="module")
def engine():
    return load_engine(load_profile("edit", {"models.target": "embedded", "limits.answer": 80}))


def edited(engine, file: Attachment, **prompt: str) -> tuple[str, str]:
    """The answer to an edit of this file, and why it ended."""
    profile = engine.models.profile.override({f"prompt.{name}": value for name, value in prompt.items()})
    request = Request("rename total to amount", (file,), task="edit", file_to_rewrite=file.name)
    with engine.create_session(profile=profile) as talked:
        *events, finished = talked.ask(request)
    assert isinstance(finished, Finished), finished
    return "".join(event.text for event in events if isinstance(event, TextDelta)), finished.finish_reason


@pytest.mark.dear
@pytest.mark.parametrize("text", ["total = 1\nprint(total)\n", '"""\n```\n"""\ntotal = 1\n'], ids=["plain", "fences"])
def test_an_edit_is_held_to_its_form(engine, text):
    file = Attachment("a.py", text)
    fence = fence_of(file)

    begun, ending = edited(engine, file, edit_answer="prefill")
    constrained, grammar_ending = edited(engine, file, edit_answer="grammar")

    assert ("stop", "stop") == (ending, grammar_ending)
    assert begun.startswith(f"{fence.opening}\n")
    assert f"\n{fence.closing}" not in begun
    assert re.fullmatch(fenced_text_pattern(fence), constrained)


BLOCKS = Request("rename total to amount", (FILE,), task="edit-blocks", file_to_rewrite="a.py")


def test_search_blocks_are_held_to_lines_of_the_file_by_a_grammar():
    formed = with_edit_contract(BLOCKS, (), PREFILL)

    assert ("lark", "", ()) == (formed.answer_format.kind, formed.answer_prefix, formed.stop)
    assert BLOCKS == with_edit_contract(BLOCKS, (), FREE)
    assert 0.0 == formed.sampling(Sampling(temperature=0.7)).temperature
    assert "edit" == parse_question(formed).task


def test_a_model_cannot_search_for_lines_that_the_file_does_not_have(engine):
    text = 'total = 1\n\nprint(total, "=======")\nother = "\\n"\n'
    request = Request("rename total", (Attachment("a.py", text),), 60, task="edit-blocks", file_to_rewrite="a.py")
    profile = engine.models.profile.override({"prompt.edit_answer": "prefill"})

    with engine.create_session(profile=profile) as talked:
        *events, finished = talked.ask(request)

    assert isinstance(finished, Finished), finished
    answer = "".join(event.text for event in events if isinstance(event, TextDelta))
    start, searched = answer.split("\n", 1)
    assert "<<<<<<< SEARCH" == start
    assert searched.partition("=======\n")[0] in text
    assert searched.partition("=======\n")[0]


@pytest.mark.parametrize("grammar", ["start: (", 'start: %regex {"substring_chunks": 3}'])
def test_an_invalid_grammar_is_an_error_of_one_line(engine, grammar):
    with engine.create_session() as talked:
        *_, failed = talked.ask(Request("x", answer_format=AnswerFormat.parse("lark", grammar)))

    assert isinstance(failed, Failed)
    assert failed.message.startswith("the grammar cannot be used: ")
    assert "\n" not in failed.message


def test_the_model_that_learned_edits_without_a_contract_is_left_free():
    profile = load_profile("edit", {"models.target": "embedded"})

    assert ("", "free") == (profile.system_prompt("edit"), profile.prompt.edit_answer)
    assert "prefill" == load_profile("edit", {"models.target": "org/other"}).prompt.edit_answer
