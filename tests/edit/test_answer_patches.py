"""Unified diffs and search/replace blocks: applied exactly, or refused with the reason."""

from __future__ import annotations

import pytest

from specchat.edit.answer_blocks import choose_text
from specchat.edit.answer_check import AnswerProblem, UnusableAnswerError
from specchat.edit.answer_patches import PatchError, apply_diff, apply_search_blocks, is_diff
from specchat.edit.hunks import unified_diff
from specchat.edit.source_text import make_source
from tests.edit.scripted import new_text

OLD = "import os\n\n\ndef add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"
NEW = OLD.replace("import os\n", "import os\nimport sys\n").replace("return add(a, a)", "return 2 * a")
DIFF = unified_diff("a.py", OLD, NEW)
HUNK = "@@ -8,2 +8,2 @@ def double\n def double(a):\n-    return add(a, a)\n+    return 2 * a\n"
UNHEADED = "```diff\n-    return add(a, a)\n+    return 2 * a\n```"
BLOCK = "<<<<<<< SEARCH\n    return add(a, a)\n=======\n    return 2 * a\n>>>>>>> REPLACE\n"


def patched(diff: str, old: str = OLD) -> str:
    return apply_diff(old, "src/a.py", diff)


@pytest.mark.parametrize(
    "diff",
    [
        DIFF,
        DIFF.partition("+++ b/a.py\n")[2],
        "diff --git a/a.py b/a.py\nindex 12ab..34cd 100644\n" + DIFF,
        DIFF.replace("a/a.py", "src/a.py").replace("b/a.py", "src/a.py"),
        DIFF.replace("\n \n", "\n\n"),
    ],
    ids=["whole", "no file names", "of git", "other names", "blank lines without a space"],
)
def test_a_diff_is_applied(diff):
    assert is_diff(diff)
    assert NEW == patched(diff)


@pytest.mark.parametrize("header", ["@@ -8,2 +8,2 @@", "@@ -3,2 +3,2 @@", "@@ ... @@", "@@"])
def test_a_hunk_with_a_wrong_line_number_applies_where_its_lines_stand(header):
    assert NEW.replace("import sys\n", "") == patched(HUNK.replace("@@ -8,2 +8,2 @@ def double", header))


def test_lines_that_are_nearly_the_same_count_where_they_stand_once():
    """Blanks at line ends, the indentation of all lines, and up to two outer lines that stay may differ."""
    near = {
        "other lines around": HUNK.replace("def double(a)", "def double(b)"),
        "a blank at the end": HUNK.replace("-    return add(a, a)", "-    return add(a, a)  "),
        "at the margin": "@@\n-return add(a, a)\n+return 2 * a\n",
    }
    two = f"{OLD}\n\ndef triple(b):\n    return add(a, a)\n"

    assert {} == {name: diff for name, diff in near.items() if NEW.replace("import sys\n", "") != patched(diff)}
    for name, diff in near.items():
        if name != "a blank at the end":
            with pytest.raises(PatchError, match="in 2 places"):
                patched(diff, two)


def test_a_hunk_without_old_lines_is_an_insertion_at_its_line():
    assert "a\nx\nb\n" == patched("@@ -1,0 +2,1 @@\n+x\n", "a\nb\n")
    assert "x\na\nb\n" == patched("@@ -0,0 +1,1 @@\n+x\n", "a\nb\n")
    with pytest.raises(PatchError):
        patched("@@ @@\n+x\n", "a\nb\n")


def test_later_hunks_count_the_lines_of_earlier_ones():
    old = "".join(f"{number % 3}\n" for number in range(60))
    new = "x\ny\n" + old[:60] + "z\n" + old[62:]

    assert new == patched(unified_diff("a.py", old, new), old)


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        ("@@\n def  add(a, b):\n-    return add(a, b)\n+    return 2 * a\n", "nowhere"),
        (HUNK.replace("-    return add(a, a)", "-    return add(a,a)"), "nowhere"),
        ("@@ -30,1 +30,1 @@\n-x\n+y\n", "in 2 places"),
        (HUNK + "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-a\n+b\n", r"also changes b\.py"),
    ],
    ids=["another context", "another old line", "two places", "another file"],
)
def test_a_diff_that_does_not_say_what_the_file_says_is_refused(diff, reason):
    with pytest.raises(PatchError, match=reason):
        patched(diff, OLD if "places" not in reason else "x\na\nx\n")


@pytest.mark.parametrize("text", ["@@ is a decorator\nx = 1\n", "- a\n- b\n", "+1\n", "@@ -1 +1 @@\n a\n b\n", ""])
def test_other_texts_are_no_diffs(text):
    assert not is_diff(text)


def test_search_blocks_are_applied_one_after_the_other():
    second = "<<<<<<< SEARCH\nimport os\n=======\nimport os\nimport sys\n>>>>>>> REPLACE\n"
    again = "<<<<<<< SEARCH\nimport sys\n=======\n>>>>>>> REPLACE\n"

    assert NEW == apply_search_blocks(OLD, f"a.py\n```python\n{BLOCK}```\nand\n{second}")
    assert NEW.replace("import sys\n", "") == apply_search_blocks(OLD, BLOCK + second + again)


def test_a_search_is_of_the_old_text_even_if_another_block_writes_the_same_lines():
    first = "<<<<<<< SEARCH\nimport os\n=======\nimport os\n    return add(a, a)\n>>>>>>> REPLACE\n"

    assert OLD.replace("return add(a, a)", "return 2 * a").replace(
        "import os\n", "import os\n    return add(a, a)\n"
    ) == apply_search_blocks(OLD, first + BLOCK)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (BLOCK.replace("add(a, a)", "add(a,a)"), "nowhere"),
        ("<<<<<<< SEARCH\n\n=======\nx\n>>>>>>> REPLACE\n", "in 4 places"),
        ("<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE\n", "a search is empty"),
        (BLOCK + "<<<<<<< SEARCH\nimport os\n=======\n", "not complete"),
        (BLOCK.replace("=======", "=======\n======="), "two dividers"),
        (BLOCK + BLOCK, "nowhere"),
    ],
)
def test_a_search_that_does_not_have_one_place_is_refused(block, reason):
    with pytest.raises(PatchError, match=reason):
        apply_search_blocks(OLD, block)


@pytest.mark.parametrize(
    ("answer", "talk"),
    [
        (DIFF, ""),
        (f"I add the import:\n\n```diff\n{DIFF}```\nDone.", "I add the import:\n\nDone."),
        (f"```python\n{DIFF}```", ""),
        (f"First:\n{BLOCK}Then:\n```\n<<<<<<< SEARCH\nimport os\n=======\nimport os\nimport sys\n>>>>>>> REPLACE\n```",
         "First:\nThen:"),
        (f"```diff\n-import os\n+import os\n+import sys\n```\nand\n{UNHEADED}", "and"),
    ],
    ids=["bare", "amid talk", "in a fence of another language", "search blocks", "no hunk headers"],
)  # fmt: skip
def test_an_answer_of_changes_is_the_file_with_these_changes(answer, talk):
    source = make_source(OLD.encode(), "a.py")

    assert NEW == new_text(source, answer, "import sys")
    assert talk == choose_text(source, answer).talk


def test_changes_that_do_not_apply_are_an_unusable_answer_that_says_why():
    source = make_source(OLD.encode(), "a.py")

    with pytest.raises(UnusableAnswerError, match=r"return add\(a,a\).*nowhere") as caught:
        new_text(source, BLOCK.replace("add(a, a)", "add(a,a)"))

    assert AnswerProblem.PATCH == caught.value.problem


def test_the_whole_file_beside_a_diff_is_taken():
    source, answer = make_source(OLD.encode(), "a.py"), f"```diff\n{HUNK}```\nThe whole file:\n```python\n{NEW}```"

    assert NEW == new_text(source, answer)


def test_a_file_that_is_a_diff_itself_is_rewritten_as_a_text():
    source = make_source(DIFF.encode(), "a.patch")

    assert DIFF.replace("sys", "re") == new_text(source, DIFF.replace("sys", "re"))


def test_a_removed_function_in_a_diff_is_meant():
    new = OLD.replace("\n\ndef double(a):\n    return add(a, a)\n", "")

    assert new == new_text(make_source(OLD.encode(), "a.py"), unified_diff("a.py", OLD, new), "tidy up")
