"""A file has its old or its new content, whatever happens: never half of it, and never a lost concurrent change."""

from __future__ import annotations

import os
import random
import signal
import stat
import time
from pathlib import Path

import pytest

from specchat.edit import atomic_write
from specchat.edit.atomic_write import Replacement, write_files
from specchat.edit.source_text import read_source
from specchat.errors import FileChangedError, SpecchatError, UsageError

OLD, NEW = b"old\n" * 5000, b"new\n" * 5000


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(OLD)
    return file


@pytest.fixture
def files(tmp_path):
    files = [tmp_path / name for name in ("a", "b", "c")]
    for each in files:
        each.write_bytes(OLD)
    return files


def replacements(files: list[Path]) -> list[Replacement]:
    return [Replacement(file, OLD, NEW) for file in files]


def write_until_killed(file: Path) -> None:
    """In a process of its own, back and forth for ever."""
    while True:
        write_files([Replacement(file, OLD, NEW)])
        write_files([Replacement(file, NEW, OLD)])


@pytest.mark.parametrize("kills", [10, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(file, kills):
    dice = random.Random(kills)
    for _ in range(kills):
        file.write_bytes(OLD)
        child = os.fork()
        if not child:
            try:
                write_until_killed(file)
            finally:
                os._exit(1)
        time.sleep(dice.random() / 100)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

        assert file.read_bytes() in (OLD, NEW)
        assert 0o644 == stat.S_IMODE(file.stat().st_mode) | 0o644


def test_a_file_that_changed_meanwhile_is_left_alone(file):
    source = read_source(file)
    file.write_text("somebody else")

    with pytest.raises(FileChangedError):
        write_files([Replacement(file, source.raw, b"mine")])

    assert "somebody else" == file.read_text()
    assert [file] == list(file.parent.iterdir())


def test_a_missing_file_is_an_error(file):
    file.unlink()

    with pytest.raises(OSError, match="No such file"):
        write_files(replacements([file]))


def test_all_files_are_looked_at_before_the_first_is_written(files):
    files[2].write_text("somebody else")

    with pytest.raises(FileChangedError):
        write_files(replacements(files))

    assert [OLD, OLD, b"somebody else"] == [file.read_bytes() for file in files]
    assert 3 == len(list(files[0].parent.iterdir()))


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk", "Ctrl-C"])
def test_when_one_file_cannot_be_replaced_all_get_their_old_content_back(files, monkeypatch, failing, error):
    replace, calls = Path.replace, []

    def sometimes(path, target):
        calls.append(target)
        if len(calls) == failing + 1:
            raise error
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", sometimes)
    with pytest.raises(type(error)):
        write_files(replacements(files))

    assert [OLD] * 3 == [file.read_bytes() for file in files]
    assert 3 == len(list(files[0].parent.iterdir()))


def test_a_full_disk_leaves_the_old_file_and_no_other(file, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_files(replacements([file]))

    assert OLD == file.read_bytes()
    assert [file] == list(file.parent.iterdir())


def test_links_and_modes_stay(file):
    file.chmod(0o751)
    link = file.with_name("link")
    link.symlink_to(file.name)

    write_files([Replacement(link, OLD, NEW)])

    assert (True, NEW, 0o751) == (link.is_symlink(), file.read_bytes(), stat.S_IMODE(file.stat().st_mode))


def test_a_read_only_file_is_not_replaced(file):
    file.chmod(0o400)

    with pytest.raises(SpecchatError, match="read-only"):
        write_files(replacements([file]))

    assert OLD == file.read_bytes()


def test_one_file_under_two_names_is_not_written(file):
    link = file.with_name("link")
    link.symlink_to(file.name)

    with pytest.raises(UsageError):
        write_files(replacements([file, link]))

    assert OLD == file.read_bytes()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_file_has_the_mode_that_new_files_have(file, mask):
    new = file.with_name("new")
    before = os.umask(mask)
    try:
        write_files([Replacement(new, None, NEW)])
    finally:
        os.umask(before)

    assert (NEW, 0o666 & ~mask) == (new.read_bytes(), stat.S_IMODE(new.stat().st_mode))
    assert {file, new} == set(file.parent.iterdir())


def test_a_file_that_was_created_meanwhile_is_not_replaced_by_a_new_one(file):
    with pytest.raises(FileChangedError):
        write_files([Replacement(file, None, NEW)])

    assert OLD == file.read_bytes()


def test_a_link_that_leads_nowhere_is_no_free_name(file):
    link = file.with_name("link")
    link.symlink_to("nowhere")

    with pytest.raises(FileChangedError):
        write_files([Replacement(link, None, NEW)])

    assert link.is_symlink()


def test_a_new_file_is_made_where_there_are_no_hard_links(file, monkeypatch):
    def refuse(_old, _new):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    new = file.with_name("new")

    write_files([Replacement(new, None, NEW)])

    assert NEW == new.read_bytes()
    assert {file, new} == set(file.parent.iterdir())


def test_a_file_is_removed_and_nothing_of_it_stays_in_the_folder(file):
    write_files([Replacement(file, OLD, None)])

    assert [] == list(file.parent.iterdir())


def test_a_link_is_removed_and_not_what_it_leads_to(file):
    link = file.with_name("link")
    link.symlink_to(file.name)

    write_files([Replacement(link, OLD, None)])

    assert ([file], OLD) == (list(file.parent.iterdir()), file.read_bytes())


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_when_one_file_cannot_be_put_in_place_new_and_removed_ones_are_as_before(files, monkeypatch, failing):
    new, inode = files[0].with_name("new"), files[0].stat().st_ino
    sync, calls = atomic_write._sync_folder, []

    def sometimes(folder):
        calls.append(folder)
        if len(calls) == failing + 1:
            raise OSError(28, "No space left on device")
        sync(folder)

    monkeypatch.setattr(atomic_write, "_sync_folder", sometimes)
    with pytest.raises(OSError, match="No space"):
        write_files([Replacement(files[0], OLD, None), Replacement(new, None, NEW), Replacement(files[1], OLD, NEW)])

    assert [OLD] * 3 == [file.read_bytes() for file in files]
    assert (inode, set(files)) == (files[0].stat().st_ino, set(new.parent.iterdir()))


def test_a_file_with_hard_links_is_refused_because_a_rename_would_separate_them(file):
    (file.parent / "other").hardlink_to(file)

    with pytest.raises(SpecchatError, match="has 2 hard links"):
        write_files(replacements([file]))

    assert file.samefile(file.parent / "other")
    assert OLD == file.read_bytes()
