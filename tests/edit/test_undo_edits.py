"""Every edit and every undo can be undone; no content of a file is ever lost."""

from __future__ import annotations

from functools import partial

import pytest

from specchat.edit import undo_store
from specchat.edit.atomic_write import Replacement
from specchat.edit.undo_store import UndoStore, apply_edit, find_edit, undo_edit, user_undo_store
from specchat.errors import FileChangedError, NoChangeError, UsageError
from tests.edit.scripted import answers, say
from tests.front import command

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def kept(tmp_path):
    return UndoStore(tmp_path / "kept")


@pytest.fixture
def files(tmp_path):
    files = [tmp_path / name for name in ("a.py", "b.py")]
    for file in files:
        file.write_bytes(b"x = 1\r\n")
    return files


@pytest.fixture
def undo(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return partial(command, monkeypatch, "undo")


def write(kept, *files, new=b"x = 2\r\n"):
    return apply_edit(kept, "set x", [Replacement(file, file.read_bytes(), new) for file in files])


def create(kept, file, new=b"x = 1\r\n"):
    return apply_edit(kept, "make it", [Replacement(file, None, new)])


@pytest.fixture
def made(tmp_path):
    """A file that an edit could make."""
    return tmp_path / "made.py"


def test_the_last_edit_is_undone_and_then_the_one_before(kept, files):
    write(kept, files[0])
    write(kept, files[0], new=b"x = 3\r\n")

    for expected in (b"x = 2\r\n", b"x = 1\r\n"):
        undo_edit(kept, find_edit(kept, ""), is_forced=False)
        assert expected == files[0].read_bytes()
    with pytest.raises(UsageError, match="no edit is left"):
        find_edit(kept, "")


def test_the_last_edit_is_that_of_the_project(kept, tmp_path):
    ours, theirs = tmp_path / "ours" / "a.py", tmp_path / "theirs" / "b.py"
    for file in (ours, theirs):
        file.parent.mkdir()
        file.write_bytes(b"x = 1\n")
    edits = [write(kept, ours), write(kept, ours, theirs, new=b"x = 3\n"), write(kept, theirs, new=b"x = 4\n")]

    assert edits[0].number == find_edit(kept, "", ours.parent).number
    assert edits[2].number == find_edit(kept, "").number
    assert edits[1].number == find_edit(kept, str(ours), theirs.parent).number
    undo_edit(kept, find_edit(kept, "3"), is_forced=False)
    with pytest.raises(UsageError, match=rf"no edit in .*; edit 2 changed {ours}; its number or --all"):
        find_edit(kept, "", theirs.parent)


def test_an_undo_is_undone_by_its_number(kept, files):
    edit = write(kept, *files)
    undone = undo_edit(kept, edit, is_forced=False)

    undo_edit(kept, find_edit(kept, str(undone.number)), is_forced=False)

    assert [b"x = 2\r\n"] * 2 == [file.read_bytes() for file in files]
    assert edit.number == find_edit(kept, "").number


def test_one_file_of_an_edit_can_be_undone(kept, files):
    write(kept, *files)
    write(kept, files[1], new=b"x = 3\r\n")

    undo_edit(kept, find_edit(kept, str(files[0])), is_forced=False)

    assert [b"x = 1\r\n", b"x = 3\r\n"] == [file.read_bytes() for file in files]
    with pytest.raises(UsageError):
        find_edit(kept, "absent")


def test_a_file_that_changed_since_is_undone_by_force_only(kept, files):
    edit = write(kept, *files)
    files[1].write_bytes(b"mine")
    with pytest.raises(FileChangedError):
        undo_edit(kept, edit, is_forced=False)
    assert [b"x = 2\r\n", b"mine"] == [file.read_bytes() for file in files]

    done = undo_edit(kept, edit, is_forced=True)

    assert [b"x = 1\r\n"] * 2 == [file.read_bytes() for file in files]
    assert b"mine" == kept.content_before(done.files[1])


def test_what_was_put_back_by_hand_needs_no_undo(kept, files):
    edit = write(kept, files[0])
    files[0].write_bytes(b"x = 1\r\n")

    with pytest.raises(NoChangeError):
        undo_edit(kept, edit, is_forced=False)


def test_a_new_file_is_removed_and_made_again(kept, made):
    undone = undo_edit(kept, create(kept, made), is_forced=False)
    assert not made.exists()

    again = undo_edit(kept, undone, is_forced=False)
    assert b"x = 1\r\n" == made.read_bytes()

    undo_edit(kept, again, is_forced=False)
    assert not made.exists()


def test_a_new_file_that_was_edited_is_undone_in_two_steps(kept, made):
    create(kept, made)
    write(kept, made)

    undo_edit(kept, find_edit(kept, str(made)), is_forced=False)
    assert b"x = 1\r\n" == made.read_bytes()

    undo_edit(kept, find_edit(kept, ""), is_forced=False)
    assert not made.exists()
    with pytest.raises(UsageError, match="no edit is left"):
        find_edit(kept, "")


def test_a_new_file_that_was_empty_is_another_thing_than_no_file(kept, made):
    made.touch()
    write(kept, made)

    undo_edit(kept, find_edit(kept, ""), is_forced=False)

    assert b"" == made.read_bytes()


def test_a_new_file_that_changed_since_is_removed_by_force_only_and_kept(kept, made):
    edit = create(kept, made)
    made.write_bytes(b"mine")
    with pytest.raises(FileChangedError, match="was changed since"):
        undo_edit(kept, edit, is_forced=False)
    assert b"mine" == made.read_bytes()

    done = undo_edit(kept, edit, is_forced=True)

    assert not made.exists()
    assert b"mine" == kept.content_before(done.files[0])


def test_a_link_in_the_place_of_a_new_file_stays(kept, made):
    edit = create(kept, made)
    moved = made.rename(made.with_name("moved.py"))
    made.symlink_to(moved.name)

    with pytest.raises(FileChangedError):
        undo_edit(kept, edit, is_forced=False)

    assert made.is_symlink()


def test_a_new_file_that_was_deleted_needs_no_undo(kept, made):
    edit = create(kept, made)
    made.unlink()

    with pytest.raises(NoChangeError):
        undo_edit(kept, edit, is_forced=False)


def test_a_file_that_exists_meanwhile_is_not_created_again(kept, made):
    undone = undo_edit(kept, create(kept, made), is_forced=False)
    made.write_bytes(b"theirs")

    with pytest.raises(FileChangedError, match="was changed since"):
        undo_edit(kept, undone, is_forced=False)

    assert b"theirs" == made.read_bytes()


def test_a_file_that_was_deleted_is_restored_by_force_only(kept, files):
    edit = write(kept, files[0])
    files[0].unlink()
    with pytest.raises(FileChangedError, match="does not exist any more"):
        undo_edit(kept, edit, is_forced=False)

    undo_edit(kept, edit, is_forced=True)

    assert b"x = 1\r\n" == files[0].read_bytes()


def test_a_new_file_and_a_changed_one_are_undone_together(kept, files, made):
    both = [Replacement(files[0], b"x = 1\r\n", b"x = 2\r\n"), Replacement(made, None, b"new")]
    edit = apply_edit(kept, "both", both)

    undo_edit(kept, edit, is_forced=False)

    assert (b"x = 1\r\n", False) == (files[0].read_bytes(), made.exists())


def test_a_new_file_needs_no_space_in_the_store(kept, made, tmp_path):
    create(kept, made)

    assert [] == list((tmp_path / "kept" / "images").iterdir())


def test_an_edit_that_fails_is_not_kept(kept, files):
    with pytest.raises(FileChangedError):
        apply_edit(kept, "x", [Replacement(files[0], b"something else", b"new")])

    assert [] == kept.edits()


def test_old_edits_are_evicted_by_number_and_by_size(kept, files, monkeypatch):
    monkeypatch.setattr(undo_store, "MAX_EDITS", 3)
    for number in range(5):
        write(kept, files[0], new=f"x = {number}".encode())
    assert [3, 4, 5] == [edit.number for edit in kept.edits()]

    monkeypatch.setattr(undo_store, "MAX_STORED_BYTES", 10)
    write(kept, files[0], new=b"long" * 10)
    assert [5, 6] == [edit.number for edit in kept.edits()]
    write(kept, files[0], new=b"x")

    assert [7] == [edit.number for edit in kept.edits()]
    assert 1 == len(list((files[0].parent / "kept" / "images").iterdir()))


def test_a_damaged_note_is_passed_over(kept, files, tmp_path):
    write(kept, files[0])
    (tmp_path / "kept" / "notes" / "9.json").write_text('{"number": 9')

    assert [1] == [edit.number for edit in kept.edits()]


def test_equal_contents_are_kept_once(kept, files, tmp_path):
    write(kept, *files)

    assert 1 == len(list((tmp_path / "kept" / "images").iterdir()))


def test_the_undo_command_undoes_the_edit_command(files, monkeypatch, undo):
    edited = say(monkeypatch, answers("x = 2\n"), str(files[0]), "set x to two", "-y")
    assert edited.ran.err.endswith("specchat undo 1 undoes it\n")
    listed = undo("--list").out.decode()
    shown = undo("--diff").out
    assert b"-x = 2\r\n+x = 1\r\n" in shown
    assert files[0].read_bytes() == b"x = 2\r\n"

    done = undo()

    assert (0, b"", b"x = 1\r\n") == (done.code, done.out, files[0].read_bytes())
    assert "set x to two" in listed
    assert done.err.endswith("specchat undo 2 applies it again\n")
    assert b"undone" in undo("--list").out.splitlines()[0]


def test_the_command_shows_the_diff_of_a_removed_and_of_a_created_file(made, undo):
    create(user_undo_store(), made, b"x = 1\r\ny = 2")

    gone, removed = undo("--diff").out, undo()
    come = undo("2", "--diff").out

    name = str(made).lstrip("/").encode()
    assert b"--- a/%s\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x = 1\r\n-y = 2\n" % name in gone
    assert b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1,2 @@\n+x = 1\r\n+y = 2\n" % name in come
    assert (0, False) == (removed.code, made.exists())
    assert f"took back edit 1 of {made.name} · specchat undo 2 applies it again\n" == removed.err


def test_the_command_undoes_no_edit_of_another_project_unless_asked(made, monkeypatch, undo, tmp_path):
    create(user_undo_store(), made)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert (2, 2, True) == (undo().code, undo("1", "--all").code, made.exists())
    assert (0, False) == (undo("--all").code, made.exists())


def test_the_command_refuses_to_remove_what_changed_in_one_line(made, undo):
    create(user_undo_store(), made)
    made.write_text("mine")

    refused = undo()

    assert (5, 1, "mine") == (refused.code, refused.err.count("\n"), made.read_text())


def test_the_command_has_the_exit_codes_of_the_table(files, monkeypatch, undo):
    assert 2 == undo().code
    say(monkeypatch, answers("x = 2\n"), str(files[0]), "set x to two", "-y")
    assert 2 == undo("7").code
    files[0].write_text("mine")
    assert 5 == undo().code
    assert (0, "mine") == (undo("--force").code, "mine")
    assert 2 == undo().code
