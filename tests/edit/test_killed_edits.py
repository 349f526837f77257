"""An edit of several files that is killed at any moment: all files or none, no temporary file, no phantom record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specchat.edit.atomic_write import Replacement
from specchat.edit.undo_store import UndoStore, apply_edit, find_edit, undo_edit
from specchat.errors import UsageError

OLD, NEW = b"old\n", b"new\n"
KILLED = 9
SYSTEM_CALLS = (
    (os, "fsync"), (os, "link"), (os, "fchmod"), (Path, "replace"), (Path, "unlink"), (Path, "rename"),
)  # fmt: skip


def in_child_until(step: int, act) -> bool:
    """Run `act` in a child that dies before its system call number `step`; False when it ended before."""
    child = os.fork()
    if child == 0:
        calls = 0

        def dying(call):
            def counted(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls > step:
                    os._exit(KILLED)
                return call(*arguments, **options)

            return counted

        try:
            for owner, name in SYSTEM_CALLS:
                setattr(owner, name, dying(getattr(owner, name)))
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


BEFORE = {"a": OLD, "b": OLD, "gone": OLD}
AFTER = {"a": NEW, "b": NEW, "made": NEW}


def restart(folder: Path) -> UndoStore:
    store = UndoStore(folder.parent / "store")
    with store.lock():
        store.recover()
    return store


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.full)])
def test_an_edit_that_is_killed_at_any_system_call_changes_all_files_or_none(folder, stride):
    """Two files are replaced, one is created and one is removed."""

    def write() -> None:
        replacements = [Replacement(folder / name, OLD, NEW) for name in ("a", "b")]
        replacements += [Replacement(folder / "made", None, NEW), Replacement(folder / "gone", OLD, None)]
        apply_edit(UndoStore(folder.parent / "store"), "change all", replacements)

    step, outcomes = 0, []
    while True:
        for name in AFTER:
            (folder / name).unlink(missing_ok=True)
        for name, content in BEFORE.items():
            (folder / name).write_bytes(content)
        before = len(UndoStore(folder.parent / "store").edits())
        was_killed = in_child_until(step, write)
        store = restart(folder)
        assert contents(folder) in (BEFORE, AFTER), step
        is_whole = contents(folder) == AFTER
        assert len(store.edits()) == before + is_whole, step
        outcomes.append((is_whole, bool(store.notices)))
        if not was_killed:
            break
        step += stride

    assert step > 15
    assert {(False, False), (False, True), (True, False)} == set(outcomes)


@pytest.mark.full
def test_the_recovery_can_be_killed_as_well(folder):
    def write() -> None:
        replacements = [Replacement(folder / name, OLD, NEW) for name in ("a", "b", "c")]
        apply_edit(UndoStore(folder.parent / "store"), "change all", replacements)

    for step in range(20):
        for name in "abc":
            (folder / name).write_bytes(OLD)
        in_child_until(17, write)
        in_child_until(step, lambda: restart(folder))
        restart(folder)
        assert set(contents(folder).values()) in ({OLD}, {NEW})
        assert set(contents(folder)) == set("abc")


def test_a_file_that_was_changed_since_the_kill_keeps_the_change(folder):
    paths = [folder / name for name in "ab"]
    for path in paths:
        path.write_bytes(OLD)
    store = UndoStore(folder.parent / "store")
    with store.lock():
        store.add("change all", [Replacement(path, OLD, NEW) for path in paths])
    paths[0].write_bytes(b"by hand")
    paths[1].write_bytes(NEW)

    store = restart(folder)

    assert contents(folder) == {"a": b"by hand", "b": OLD}
    assert store.notices == ["an edit was killed after it had written 1 of 2 files; they have their old content again"]
    with pytest.raises(UsageError, match="no edit is left to undo"):
        find_edit(store, "")


def test_a_finished_edit_can_be_undone_after_its_process_was_killed_before_it_noted_the_end(folder):
    (folder / "a").write_bytes(OLD)
    store = UndoStore(folder.parent / "store")
    with store.lock():
        store.add("change it", [Replacement(folder / "a", OLD, NEW)])
    (folder / "a").write_bytes(NEW)

    store = restart(folder)
    undo_edit(store, find_edit(store, ""), is_forced=False)

    assert contents(folder) == {"a": OLD}
