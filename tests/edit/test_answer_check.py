"""From an answer to a new text: what is unwrapped, which problems are found, which warnings are given."""

from __future__ import annotations

import pytest

from specchat.edit.answer_check import (
    AnswerProblem,
    UnusableAnswerError,
    find_problem,
)
from specchat.edit.contract import EditWarnings, find_warnings
from specchat.edit.source_text import make_source
from specchat.errors import NoChangeError, NoUsableEditError
from tests.edit.scripted import new_text

CODE = """\
import os
from tests.edit.scripted import new_text

# Where the counting begins.
START = 1


def count(limit):
    \"\"\"Numbers up to a limit.\"\"\"
    for number in range(START, limit):
        yield number  # one at a time
"""


def edited(raw: bytes, answer: str, name: str = "a.txt") -> bytes:
    source = make_source(raw, name)
    return source.encode(new_text(source, answer))


def test_a_method_at_the_margin_stays_in_its_class_also_with_blank_lines_above_it():
    method, wanted = "    def a(self):\n        if x:\n            return 1\n", "    def a(self):\n        return 2\n"
    for above in ("", "\n", "\n\n"):
        for answer in ("def a(self):\n    return 2\n", "\ndef a(self):\n    return 2\n"):
            assert (above + wanted).encode() == edited((above + method).encode(), answer), (above, answer)


def test_the_indentation_of_a_selection_is_kept():
    assert b"    if y:\n\n        pass\n" == edited(b"    if x:\n\n        pass\n", "if y:\n\n    pass\n")
    assert b"    if y:\n" == edited(b"    if x:\n", "    if y:\n")
    assert b"    if y:\n        go\n" == edited(b"    if x:\n        pass\n", "if y:\n        go\n")


@pytest.mark.parametrize(
    "answer",
    ["", "  \n", "```\n```", "I'm sorry, I cannot do that.", "x = 1\n# ... rest of the code ...\n", "x = 1\n// …\n",
     "<!-- remaining code unchanged -->", "# ... existing code ..."],
)  # fmt: skip
def test_an_answer_that_is_no_file_is_refused(answer):
    with pytest.raises(NoUsableEditError):
        edited(b"x = 2\n", answer)


def test_an_ellipsis_that_was_there_before_may_stay():
    assert b"# ...\ny\n" == edited(b"# ...\nx\n", "# ...\ny\n")


def test_an_unchanged_text_says_so():
    with pytest.raises(NoChangeError):
        edited(b"x = 1\r\n", "x = 1")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("\n\n", AnswerProblem.EMPTY),
        ("I'm sorry, but I can't help with that.", AnswerProblem.REFUSAL),
        (CODE.replace("for number", "# ... rest of the code ...\n    for number"), AnswerProblem.OMISSION),
        (CODE + "// unchanged\n", AnswerProblem.OMISSION),
        (CODE + "# ...\n", AnswerProblem.OMISSION),
        (f"Here is the updated file:\n\n```python\n{CODE}```", AnswerProblem.PROSE),
        (f"```python\n{CODE}```\n\nI renamed it.", AnswerProblem.PROSE),
        ("You should rename the function in your editor, and then run all tests.", AnswerProblem.PROSE),
        (CODE.replace("count", "numbers"), None),
        ("def other():\n    return 0\n", None),
    ],
)  # fmt: skip
def test_every_way_to_be_no_file_has_its_name(answer, verdict):
    assert verdict == find_problem(make_source(CODE.encode(), "a.py"), answer)


def test_a_placeholder_may_stay_but_not_multiply():
    source = make_source(b"a\n# ... existing code ...\nb\n", "a.py")

    assert find_problem(source, "c\n# ... existing code ...\nd\n") is None
    assert AnswerProblem.OMISSION == find_problem(source, "# ... existing code ...\n# ... existing code ...\n")


@pytest.mark.parametrize("answer", ["The new rules are strict.\n", "Die Regeln sind streng.\n"])
def test_prose_may_be_rewritten_as_prose(answer):
    old = b"Our rules were always known for being rather strict, as everybody in town remembers.\n"

    assert find_problem(make_source(old, "a.md"), answer) is None
    assert AnswerProblem.PROSE == find_problem(make_source(old, "a.md"), f"Here is the text:\n{answer}")


def test_lost_comments_are_flagged_and_reworded_ones_are_not():
    source = make_source(CODE.encode(), "a.py")

    reworded = CODE.replace("Where the counting begins", "Where all the counting begins")
    without = CODE.replace("  # one at a time", "").replace('    """Numbers up to a limit."""\n', "")

    assert EditWarnings() == find_warnings(source, reworded)
    lost = ['"""Numbers up to a limit."""', "# one at a time"]
    assert lost == [each.old for each in find_warnings(source, without).deviations]
    assert AnswerProblem.DEVIATION == find_warnings(source, without).worst_problem


@pytest.mark.parametrize(
    ("instruction", "lost"),
    [
        ("make it faster", ("def count(limit)",)),
        ("Count the words instead", ("def count(limit)",)),
        ("let it be called count_all", ()),
        ("it should be count_all", ()),
        ("use names that say what they are", ()),
        ("turn it into something better", ()),
    ],
)
def test_a_function_under_a_name_that_nobody_asked_for_is_lost(instruction, lost):
    source = make_source(CODE.encode(), "a.py")

    found = find_warnings(source, CODE.replace("count(", "count_all("), instruction).deviations
    assert lost == tuple(each.old for each in found)


def test_comments_that_are_to_go_are_no_loss():
    source = make_source(CODE.encode(), "a.py")

    assert EditWarnings() == find_warnings(source, CODE.replace("  # one at a time", ""), "remove all comments")


def test_a_text_that_lost_many_lines_is_flagged():
    source = make_source(b"a\n" * 10, "a.txt")

    assert find_warnings(source, "a\n" * 6).worst_problem is None
    assert AnswerProblem.MUCH_SHORTER == find_warnings(source, "a\n" * 5).worst_problem


def test_a_rejected_answer_is_an_unusable_edit_with_an_excerpt():
    with pytest.raises(UnusableAnswerError, match="rest of the code") as caught:
        edited(b"x\n", "# rest of the code\n")

    assert 3 == caught.value.exit_code


TALKED = f"Sure! I renamed it:\n\n```python\n{CODE.replace('count', 'numbers')}```\n\nDo not forget the tests."


def test_a_file_amid_talk_is_taken_and_an_excerpt_of_it_is_not():
    assert CODE.replace("count", "numbers").encode() == edited(CODE.encode(), TALKED, "a.py")
    with pytest.raises(UnusableAnswerError, match="only a part") as caught:
        edited(CODE.encode(), "Change this line:\n```python\nSTART = 2\n```\nand save it.", "a.py")
    assert AnswerProblem.EXCERPT == caught.value.problem


SHAPES = """\
def area(a):
    return a * a


def volume(a):
    return area(a) * a


def edge(a):
    return 4 * a
"""


@pytest.mark.parametrize(
    ("instruction", "old", "new", "is_taken"),
    [
        ("use ** in area", "a * a\n\n\ndef volume", "a ** 2\n\n\ndef volume", True),
        ("use ** in area", "    return area(a) * a\n\n\ndef edge(a):\n", "    b = a\n    c = b\n    d = c\n", False),
        ("rename the function edge to side", "edge", "side", True),
        ("remove edge", "\n\ndef edge(a):\n    return 4 * a\n", "", True),
        ("delete the last function", "\n\ndef edge(a):\n    return 4 * a\n", "", True),
        ("give it a docstring", "\n\ndef edge(a):\n    return 4 * a\n", "", False),
        ("call it something else", "edge", "side", True),
        ("add a function side", "edge", "side", False),
        ("rename volume to content", "volume(a):\n    return area(a) * a\n\n\ndef edge(a)", "content(a)", False),
    ],
)
def test_a_block_amid_talk_that_lacks_a_definition_is_an_excerpt(instruction, old, new, is_taken):
    source, answer = make_source(SHAPES.encode(), "a.py"), f"Here:\n```python\n{SHAPES.replace(old, new)}\n```\nDone."

    if is_taken:
        assert SHAPES.replace(old, new).strip() == new_text(source, answer, instruction).strip()
    else:
        with pytest.raises(UnusableAnswerError, match=r"edge.* missing"):
            new_text(source, answer, instruction)


@pytest.mark.parametrize(
    "answer",
    [
        "You can rename the function `count` with your editor: search for it, and replace every place.",
        "The code is correct, but it does not handle negative numbers. Consider a check of the limit at the start.",
        "def f is a function that takes a limit and yields numbers from START up to the limit, one at a time.",
    ],
)
def test_talk_never_becomes_a_text_of_an_unknown_language(answer):
    with pytest.raises(UnusableAnswerError, match="prose"):
        edited(CODE.encode(), answer, "stdin")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\n", "b\n"),
        ("x = 1\ny = 2\n", "x = 1\ny = 3\n"),
        (CODE, CODE.replace("count", "numbers")),
        ("me and him was late for the train again on monday\n", "He and I were late for the train again on Monday.\n"),
    ],
)
def test_a_new_version_in_an_unknown_language_needs_no_fence(old, new):
    assert new.encode() == edited(old.encode(), new, "stdin")


def test_a_translation_in_an_unknown_language_has_to_be_asked_for():
    source = make_source(b"Our rules were always known for being rather strict.\n", "stdin")
    new = "Unsere Regeln waren immer streng.\n"

    for answer in (new, f"```\n{new}```"):
        assert new == new_text(source, answer, "translate this to German")
        with pytest.raises(UnusableAnswerError, match="prose"):
            new_text(source, answer, "fix the spelling")


def test_a_new_code_fence_in_an_unknown_language_is_talk():
    source = make_source(b"me and him was late\nfor the train again\n", "stdin")
    answer = "me and him was late\nfor the train again\n```\nx\n"

    with pytest.raises(UnusableAnswerError, match="only a part"):
        new_text(source, answer, "rewrite it")


def test_functions_without_the_rest_of_the_file_take_the_place_of_the_old_ones():
    source = make_source(f"import os\n\n\n{SHAPES}".encode(), "a.py")
    edge, area = "def edge(a):\n    return 4.0 * a\n", "@cache\ndef area(a):\n    # squared\n    return a**2\n"

    new = new_text(source, f"Only this changes:\n```python\n{edge}\n{area}```\nNothing else.", "use floats")

    whole = source.text.replace("def edge(a):\n    return 4 * a\n", edge)
    assert whole.replace("def area(a):\n    return a * a\n", area) == new


def test_a_function_without_the_imports_that_it_uses_takes_the_place_of_the_old_one():
    old = "import math\nfrom typing import List\n\n\ndef norm(a: List[float]) -> float:\n    return math.hypot(*a)\n"
    source, new = (
        make_source(old.encode(), "a.py"),
        "def norm(a: List[float]) -> float:\n    return math.hypot(*a, 1)\n",
    )

    for answer in (new, f"```python\n{new}", f"Here:\n```python\n{new}```"):
        assert old.replace("*a", "*a, 1") == new_text(source, answer, "make it one longer")
    assert new_text(source, f"{new}\n\nLIMIT = 3\n", "make it one longer").startswith("def norm")  # not this alone


@pytest.mark.parametrize(
    "excerpt",
    [
        "def corner(a):\n    return 0\n",
        "def edge(a):\n    return 4.0 * a\n\n\nprint(edge(1))\n",
        "def edge(a):\n    return 1\n\n\ndef edge(a):\n    return 2\n",
        "class Box:\n    def open(self):\n        return 1\n",
    ],
    ids=["an unknown name", "other lines", "two versions", "a class that lacks a method"],
)
def test_an_excerpt_whose_place_is_not_certain_is_refused(excerpt):
    box = "class Box:\n    def open(self):\n        return 0\n\n    def close(self):\n        return 0\n"
    source = make_source(f"import os\n\n\n{SHAPES}\n\n{box}".encode(), "a.py")

    with pytest.raises(UnusableAnswerError, match="only a part"):
        new_text(source, f"Here:\n```python\n{excerpt}```\n", "make it better")


def test_a_model_that_was_told_what_is_missing_and_insists_means_it():
    source, new = make_source(SHAPES.encode(), "a.py"), SHAPES.replace("\n\ndef edge(a):\n    return 4 * a\n", "")
    with pytest.raises(UnusableAnswerError, match="edge, volume missing"):
        new_text(source, "def area(a):\n    return a\n\n\nx = 1\n", "tidy up", is_excerpt_meant=True)

    with pytest.raises(UnusableAnswerError, match="edge missing"):
        new_text(source, new, "tidy up")

    assert new == new_text(source, new, "tidy up", is_excerpt_meant=True)
    assert ["def edge(a)"] == [each.old for each in find_warnings(source, new).deviations]


@pytest.mark.parametrize(
    ("instruction", "is_refused"),
    [
        ("add a docstring to count", True),
        ("please insert a check of the limit", True),
        ("remove the second print", False),
        ("stop printing the sum; do not add anything", False),
    ],
)
def test_an_edit_that_only_removes_lines_adds_nothing(instruction, is_refused):
    source = make_source(b"def count(limit):\n    return limit\n\n\nprint(count(2))\nprint(count(3))\n", "a.py")

    warnings = find_warnings(source, "def count(limit):\n    return limit\n\n\nprint(count(2))\n", instruction)

    assert (AnswerProblem.DEVIATION if is_refused else None) == warnings.worst_problem
    is_beside = find_warnings(source, source.text + "print(count(4))\n", instruction).worst_problem is not None
    assert is_beside == is_refused  # it is neither a docstring nor a check
