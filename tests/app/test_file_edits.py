"""File edits in the line mode: commands, review keys, writing and undo."""

from __future__ import annotations

import pytest

from specchat.app.command_registry import FILE_COMMANDS
from tests.front import command

pytestmark = pytest.mark.usefixtures("runtime")
OLD = "".join(f"name_{number} = total\n" if number in (2, 22) else f"line_{number} = 1\n" for number in range(30))


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.py"
    file.write_text(OLD)
    return file


def test_an_edit_is_reviewed_written_and_undone(file, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit @a.py replace total amount\ny\nn\n")

    assert OLD.replace("name_2 = total", "name_2 = amount") == file.read_text()
    assert b"a.py \xc2\xb7 hunk 1/2" in ran.out
    assert "applied 1/2 hunks to a.py" in ran.err

    assert "took back edit 1 of a.py" in command(monkeypatch, "chat", stdin=b"/undo\n").err
    assert OLD == file.read_text()


def test_a_pipe_that_ends_in_a_review_leaves_the_file(file, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit a.py replace total amount\ny\n")

    assert OLD == file.read_text()
    assert "specchat: a.py: left as it was" in ran.err


@pytest.fixture
def user(file):
    """A file that imports a function from the other one."""
    file.write_text("def total(a):\n    return a\n")
    path = file.with_name("user.py")
    path.write_text("from a import total\n\nprint(total(1))\n")
    return path


def test_a_name_that_one_file_imports_from_another_is_renamed_in_both(file, user, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit a.py user.py rename total to amount\na\na\n")

    assert "def amount(a):\n    return a\n" == file.read_text()
    assert "from a import amount\n\nprint(amount(1))\n" == user.read_text()
    assert "applied 2/2 hunks to a.py, user.py" in ran.err


def test_only_the_named_lines_are_edited(file, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit -l 20-25 a.py replace total amount\na\n")

    assert OLD.replace("name_22 = total", "name_22 = amount") == file.read_text()
    assert "applied 1/1 hunks to a.py" in ran.err


@pytest.mark.parametrize(("check", "is_written"), [("grep -q new {}", True), ("test -e absent", False)])
def test_a_check_decides_whether_a_text_is_taken(file, monkeypatch, check, is_written):
    text = file.with_name("a.txt")
    text.write_text("old\n")
    ran = command(monkeypatch, "chat", stdin=f"/edit --check '{check}' a.txt write new\na\n".encode())

    assert text.read_text().startswith("new\n" if is_written else "old\n")
    assert ("applied 1/1 hunks" if is_written else "test -e absent") in ran.err


def test_files_that_are_edited_together_are_written_in_one_conversation_before_the_first_review(file, monkeypatch):
    first, second = file.with_name("a.txt"), file.with_name("b.txt")
    for each in (first, second):
        each.write_text("old\n")

    ran = command(monkeypatch, "chat", stdin=b"/edit --together a.txt b.txt write new\na\na\n")

    assert first.read_text().startswith("new\n\nWrite the whole of `a.txt`")
    assert second.read_text().startswith("new\n\nThat was one of the files. Write the whole of `b.txt`")
    assert "applied 2/2 hunks to a.txt, b.txt" in ran.err


def test_the_ways_of_an_edit_are_listed_and_nothing_is_written(file, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit --plan a.py tidy it up\n")

    assert "a.py: the whole text\na.py: search/replace blocks\n" in ran.err
    assert OLD == file.read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/edit --chekc x a.py tidy", "/edit has no option --chekc; its options are -l FIRST-LAST"),
        ("/edit a.py -l", "-l needs a value"),
        ("/edit -l 9-3 a.py tidy", "9-3 is not a range of lines"),
        ("/edit -l 1-2 a.py b.py tidy", "-l FIRST-LAST is about one file"),
        ("/edit --together a.py tidy", "--together needs several files"),
    ],
)
def test_a_wrong_option_of_an_edit_is_named(file, monkeypatch, line, said):
    file.with_name("b.py").write_text("x = 1\n")

    assert said in command(monkeypatch, "chat", stdin=line.encode()).err


def test_what_cannot_be_taken_is_shown_with_the_reason_and_the_next_step(file, monkeypatch):
    file.write_text("x = 1\n")
    ran = command(monkeypatch, "chat", stdin=b"/edit a.py write x = (\n")

    assert file.read_text() == "x = 1\n"
    assert "a.py: the model wrote this, and nothing of it is taken\n@@" in ran.err
    assert "-x = 1\n+x = (\n" in ran.err
    assert "does not parse" in ran.err
    assert "next: fewer lines (/edit -l FIRST-LAST PATH ...), another model (/model NAME), or /edit --plan" in ran.err


def test_a_model_that_changes_nothing_is_told_with_the_next_step(file, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit a.py replace absent x\n")

    assert "a.py: the model changed nothing; next: fewer lines" in ran.err


def test_a_block_of_an_answer_becomes_a_file_and_the_loop_continues(file, monkeypatch):
    said = b'"""write ```python made.py\nx = 1\n```"""\n/apply\ny\n/edit gone.py x\n/help\ncount 2\n'
    ran = command(monkeypatch, "chat", stdin=said)

    assert "x = 1\n" == file.with_name("made.py").read_text()
    assert "created made.py" in ran.err
    assert "specchat: gone.py: there is no such file" in ran.err
    assert all(f"/{name} {each.arguments}" in ran.err for name, each in FILE_COMMANDS.items())
    assert b"word0 seed" in ran.out


def test_a_file_that_a_block_became_is_removed_by_an_undo_and_made_again_by_the_next(file, monkeypatch):
    made = file.with_name("made.py")
    command(monkeypatch, "chat", stdin=b'"""write ```python made.py\nx = 1\n```"""\n/apply\ny\n')
    assert made.exists()

    taken_back = command(monkeypatch, "chat", stdin=b"/undo\n").err
    assert not made.exists()
    command(monkeypatch, "chat", stdin=b"/undo 2\n")

    assert "took back edit 1 of made.py \xb7 /undo 2 applies it again" in taken_back
    assert "x = 1\n" == made.read_text()


def test_an_undo_leaves_a_new_file_that_was_changed_since(file, monkeypatch):
    made = file.with_name("made.py")
    command(monkeypatch, "chat", stdin=b'"""write ```python made.py\nx = 1\n```"""\n/apply\ny\n')
    made.write_text("mine")

    refused = command(monkeypatch, "chat", stdin=b"/undo\n").err

    assert f"{made}: was changed since the edit" in refused
    assert "mine" == made.read_text()
