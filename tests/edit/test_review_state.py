"""The review in a terminal: every key, and what is written at the end."""

from __future__ import annotations

import pytest

from specchat.app.hunk_review import Review
from specchat.edit.hunks import diff_hunks
from tests.edit.scripted import answers, say

pytestmark = pytest.mark.usefixtures("runtime")

OLD = "".join(f"line_{number} = {number}\n" for number in range(30))
NEW = (
    OLD.replace("line_2 ", "two ")
    .replace("line_4 ", "four ")
    .replace("line_15 ", "fifteen ")
    .replace("line_28 ", "last ")
)


def taken(*names: str) -> str:
    numbers = {"two": 2, "four": 4, "fifteen": 15, "last": 28}
    text = OLD
    for name in names:
        text = text.replace(f"line_{numbers[name]} ", f"{name} ")
    return text


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    file = tmp_path / "a.py"
    file.write_text(OLD)
    return file


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("yyy", ("two", "four", "fifteen", "last")),
        ("nyn", ("fifteen",)),
        ("a", ("two", "four", "fifteen", "last")),
        ("na", ("fifteen", "last")),
        ("yd", ("two", "four")),
        ("synd", ("two",)),
        ("ynuya", ("two", "four", "fifteen", "last")),
        ("yyuund", ()),
        ("suyd", ("two", "four")),
        ("s?nyssd", ("four",)),
        ("u!yd", ("two", "four")),
    ],
)
def test_every_letter_does_what_git_does(file, monkeypatch, keys, names):
    said = say(
        monkeypatch,
        answers(NEW),
        str(file),
        "rename",
        on_terminal=True,
        stdin="".join(f"{key}\n" for key in keys).encode(),
    )

    assert taken(*names) == file.read_text()
    assert (0 if names else 8) == said.ran.code


def test_quitting_writes_no_accepted_hunk(file, monkeypatch):
    said = say(monkeypatch, answers(NEW), str(file), "rename", on_terminal=True, stdin=b"y\ny\nq\n")

    assert (8, OLD) == (said.ran.code, file.read_text())


def test_a_hunk_can_be_edited_by_hand(file, monkeypatch, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/fifteen/XV/ "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))

    say(monkeypatch, answers(NEW), str(file), "rename", on_terminal=True, stdin=b"n\ne\nn\n")

    assert OLD.replace("line_15 ", "XV ") == file.read_text()


def test_a_comment_has_a_hunk_written_again(file, monkeypatch):
    again = "".join(OLD.splitlines(keepends=True)[13:18]).replace("line_15 ", "XV ")
    keys = b"n\nc\nRoman numbers please\ny\nn\n"

    said = say(monkeypatch, answers(NEW, again), str(file), "rename", on_terminal=True, stdin=keys)

    assert OLD.replace("line_15 ", "XV ") == file.read_text()
    assert "rename\n\nRoman numbers please" == said.asked[1]


def test_what_does_not_parse_in_part_is_decided_again(file, monkeypatch):
    old, new = f"{OLD}x = 1\n", f'text = """\n{OLD}"""\nx = 1\n'
    file.write_text(old)

    said = say(monkeypatch, answers(new), str(file), "quote it", on_terminal=True, stdin=b"y\nn\ny\n")

    assert (0, new) == (said.ran.code, file.read_text())
    assert "the new text does not parse: unterminated" in said.ran.err


def test_hunks_that_lose_a_comment_come_first(file, monkeypatch):
    file.write_text(OLD + "# the end\n")

    said = say(monkeypatch, answers(NEW), str(file), "rename", on_terminal=True, stdin=b"q\n")

    assert "`# the end` would be lost" in said.ran.err
    assert b"hunk 1/3" in said.ran.out.split(b"-# the end")[0]
    assert b"hunk 2/3" not in said.ran.out


def test_a_terminal_with_diff_shows_no_prompt(file, monkeypatch):
    said = say(monkeypatch, answers(NEW), str(file), "rename", "--diff", on_terminal=True)

    assert (0, OLD) == (said.ran.code, file.read_text())
    assert b"@@ -1,8 +1,8 @@" in said.ran.out


def test_a_review_goes_back_to_its_beginning():
    review = Review(OLD, diff_hunks(OLD, NEW))

    review.split()
    review.decide(is_accepted=True)
    review.replace_current(review.current_hunk.with_new_lines(review.old_lines, ["x\n"]), is_accepted=True)
    review.decide_remaining(is_accepted=False)
    assert OLD.replace("line_2 ", "two ").replace("line_4 = 4", "x") == review.text
    while review.undo():
        pass

    assert ((None, None, None), OLD) == (tuple(each.is_accepted for each in review.decisions), review.text)
