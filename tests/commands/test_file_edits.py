"""File edits in the line mode: commands, review keys, writing and undo."""

from __future__ import annotations

import pytest

from specchat.commands.command_registry import FILE_COMMANDS
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

    assert "undid edit 1 of a.py" in command(monkeypatch, "chat", stdin=b"/undo\n").err
    assert OLD == file.read_text()


def test_a_pipe_that_ends_in_a_review_leaves_the_file(file, monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"/edit a.py replace total amount\ny\n")

    assert OLD == file.read_text()
    assert "specchat: a.py: left as it was" in ran.err


def test_a_name_that_one_file_imports_from_another_is_renamed_in_both(file, monkeypatch):
    file.write_text("def total(a):\n    return a\n")
    user = file.with_name("user.py")
    user.write_text("from a import total\n\nprint(total(1))\n")

    ran = command(monkeypatch, "chat", stdin=b"/edit a.py user.py rename total to amount\na\na\n")

    assert "def amount(a):\n    return a\n" == file.read_text()
    assert "from a import amount\n\nprint(amount(1))\n" == user.read_text()
    assert "applied 2/2 hunks to a.py, user.py" in ran.err


def test_a_joint_renaming_is_written_to_all_files_or_to_none(file, monkeypatch):
    file.write_text("def total(a):\n    return a\n")
    user = file.with_name("user.py")
    user.write_text("from a import total\n\nprint(total(1))\n")

    ran = command(monkeypatch, "chat", stdin=b"/edit a.py user.py rename total to amount\na\nq\n")

    assert "def total(a):\n    return a\n" == file.read_text()
    assert "from a import total\n\nprint(total(1))\n" == user.read_text()
    assert "left as it was" in ran.err


def test_a_block_of_an_answer_becomes_a_file_and_the_loop_continues(file, monkeypatch):
    said = b'"""write ```python made.py\nx = 1\n```"""\n/apply\ny\n/edit gone.py x\n/help\ncount 2\n'
    ran = command(monkeypatch, "chat", stdin=said)

    assert "x = 1\n" == file.with_name("made.py").read_text()
    assert "created made.py" in ran.err
    assert "specchat: gone.py: cannot be read" in ran.err
    assert all(f"/{name} {each.arguments}" in ran.err for name, each in FILE_COMMANDS.items())
    assert b"word0 seed" in ran.out


def test_a_file_that_a_block_became_is_removed_by_an_undo_and_made_again_by_the_next(file, monkeypatch):
    made = file.with_name("made.py")
    command(monkeypatch, "chat", stdin=b'"""write ```python made.py\nx = 1\n```"""\n/apply\ny\n')
    assert made.exists()

    taken_back = command(monkeypatch, "chat", stdin=b"/undo\n").err
    assert not made.exists()
    command(monkeypatch, "chat", stdin=b"/undo 2\n")

    assert "undid edit 1 of made.py \xb7 /undo 2 applies it again" in taken_back
    assert "x = 1\n" == made.read_text()


def test_an_undo_leaves_a_new_file_that_was_changed_since(file, monkeypatch):
    made = file.with_name("made.py")
    command(monkeypatch, "chat", stdin=b'"""write ```python made.py\nx = 1\n```"""\n/apply\ny\n')
    made.write_text("mine")

    refused = command(monkeypatch, "chat", stdin=b"/undo\n").err

    assert f"{made}: was changed since the edit" in refused
    assert "mine" == made.read_text()
