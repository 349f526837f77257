"""An answer that cannot become the file is ended at its beginning; every other one is read to its end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from specchat.app.edit_task import EditJob, run_edit
from specchat.edit.answer_check import AnswerProblem
from specchat.edit.answer_watch import AnswerWatch
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.source_text import make_source
from specchat.errors import NoUsableEditError
from tests.edit.scripted import CODE, NEW, ScriptedSession, answers
from tests.scripted_session import scripted_answer
from tools.answer_styles import STYLES

JAVASCRIPT = (
    "const fs = require('fs');\n\nfunction main() {\n  console.log(fs.readFileSync('x') === 'y');\n}\n\nmain();\n"
)
OTHER_PROGRAM = """\
class Stack(Generic[T]):
    items: deque[T] = field(default_factory=deque)

    def push(self, item: T) -> None:
        self.items.appendleft(item)

    def pop(self) -> T:
        return self.items.popleft()
"""


def ended_at(answer: str, instruction: str = "use a list", text: str = CODE, name: str = "a.py"):
    """The problem, and the part of the answer that was read; None for an answer that is read to its end."""
    watch = AnswerWatch(make_source(text.encode(), name), instruction)
    pieces = [*range(0, len(answer), 4), len(answer)]
    for start, end in pairwise(pieces):
        if problem := watch.feed(answer[start:end]):
            return problem, answer[:end]
    return None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("```python\nYou can use a list here, which is shorter and also faster than before.\n```", AnswerProblem.PROSE),
        ("```python\nI'm sorry, but I can't help with that request.", AnswerProblem.REFUSAL),
        ("I'm sorry, but I can't help with that request.", AnswerProblem.REFUSAL),
        (f"```python\n{JAVASCRIPT}```", AnswerProblem.OTHER_LANGUAGE),
        (f"```javascript\n{JAVASCRIPT}```", AnswerProblem.OTHER_LANGUAGE),
        (f"```python\n{OTHER_PROGRAM}```", AnswerProblem.UNLIKE),
    ],
    ids=["prose", "refusal in the fence", "refusal", "another language", "another fence", "another program"],
)
def test_an_answer_that_cannot_become_the_file_is_ended_at_its_beginning(answer, problem):
    found, read = ended_at(answer * 3)

    assert problem == found
    assert len(read.split()) <= 30


BLOCK = "<<<<<<< SEARCH\nSTART = 1\n=======\nSTART = 2\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (BLOCK.replace("SEARCH\nSTART = 1", "SEARCH\nSTART = 0"), AnswerProblem.PATCH),
        (f"I change the start:\n{BLOCK}{BLOCK}", AnswerProblem.LOOP),
        (BLOCK + BLOCK.replace("START = 1", "def total(limit):") * 2, AnswerProblem.LOOP),
    ],
    ids=["other lines", "twice the same", "twice the second"],
)
def test_search_blocks_that_cannot_apply_are_ended_where_it_shows(answer, problem):
    found, read = ended_at(f"{answer}\n{BLOCK * 9}")

    assert problem == found
    assert read.count("=======") == answer.count("=======")


def test_search_blocks_that_follow_from_one_another_are_read_to_their_end():
    again = BLOCK.replace("START = 2", "START = 3").replace("START = 1", "START = 2")

    assert ended_at(f"```\n{BLOCK}\n{again}```\nDone.") is None


@pytest.mark.parametrize("style", STYLES)
def test_a_right_answer_in_any_style_is_read_to_its_end(style):
    assert ended_at(STYLES[style]("a.py", CODE, NEW)) is None


@pytest.mark.parametrize(
    ("instruction", "answer"),
    [
        ("convert it to JavaScript", f"```javascript\n{JAVASCRIPT}```"),
        ("add a class Stack before the functions", f"```python\n{OTHER_PROGRAM}\n{CODE}```"),
        ("rewrite it as a class", f"```python\n{OTHER_PROGRAM}```"),
        ("document it", f'```python\n"""How numbers are counted, and what their sum is, in plain words."""\n{CODE}```'),
        ("use a list", f"```python\n# Copyright someone, with all rights reserved for a while\n{CODE}```"),
    ],
    ids=["asked for", "added before", "rewritten", "a docstring first", "a comment first"],
)
def test_what_the_instruction_asks_for_is_read_to_its_end(instruction, answer):
    assert ended_at(answer, instruction) is None


def test_prose_may_be_translated_and_a_new_file_may_be_anything():
    rules = "Our rules were always known for being rather strict, as everybody in town remembers.\n" * 3
    german = "Unsere Regeln waren immer streng, und jeder in der Stadt erinnert sich noch gut daran, wie es war.\n" * 3

    assert ended_at(f"```markdown\n{german}```", "translate it to German", rules, "a.md") is None
    assert ended_at(f"```python\n{OTHER_PROGRAM}```", "a stack", "", "new.py") is None


def test_what_is_ended_is_tried_another_way_that_is_named():
    script = [
        scripted_answer(["```python", "\n", "You can use a list here, which is shorter and faster.\n"] + ["x"] * 90)
    ]
    blocks = "<<<<<<< SEARCH\n    return sum(count(limit))\n=======\n    return sum([*count(limit)])\n>>>>>>> REPLACE"
    session, events = ScriptedSession([*script, *answers(blocks)]), []
    job = EditJob(make_source(CODE.encode(), "a.py"), "use a list", window_tokens=10_000)

    edited = result_of((run_edit(job, EditRun(session))), events.append)

    assert CODE.replace("sum(count(limit))", "sum([*count(limit)])") == edited.text
    assert ("blocks", ["edit", "edit-blocks"]) == (edited.plan.format, [each.task for each in session.requests])
    (named,) = [event.text for event in events if hasattr(event, "text") and "now trying" in event.text]
    assert "a.py: ended the answer (prose instead of the text)" in named
    assert named.endswith("; now trying search/replace blocks")


def test_at_most_three_ways_are_tried_and_the_first_failure_counts():
    prose = "```python\nYou should look at the function total, which could use a list instead.\n```"
    session = ScriptedSession(answers(*[prose] * 4))
    job = EditJob(make_source(CODE.encode(), "a.py"), "use a list in total()", window_tokens=10_000)

    with pytest.raises(NoUsableEditError, match=r"^a\.py: ended the answer"):
        result_of(run_edit(job, EditRun(session)))

    assert ["a.py", "lines 12-13 of a.py", "a.py"] == [each.files[0].name for each in session.requests]
