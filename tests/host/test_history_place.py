"""Where the history lies, and who may read it."""

from __future__ import annotations

import os
import stat

from specchat.history.history_writer import HistoryWriter
from specchat.host import spawn
from tests.each_row import each_row


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@each_row("exists", [False, True])
def test_only_the_user_may_read_the_history(tmp_path, exists):
    path = tmp_path / "history.db"
    if exists:
        HistoryWriter(path).close()
        path.chmod(0o644)
    umask = os.umask(0o022)
    history = HistoryWriter(path)
    history._add_statement("INSERT INTO profiles VALUES ('x', '{}')")
    history.flush()
    os.umask(umask)

    assert {mode(file) for file in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) > 2
    history.close()


def test_a_home_that_cannot_be_written_is_said_in_one_line(runtime, monkeypatch, tmp_path):
    home = tmp_path / "home"
    monkeypatch.delenv("SPECCHAT_RUNTIME")
    monkeypatch.setattr(spawn, "runtime_folder", lambda: runtime)
    monkeypatch.setattr(spawn, "data_folder", lambda: home / "missing")
    home.write_text("not a folder")

    path = spawn.history_path()

    assert path == runtime / "history.db"
    warning = spawn.history_place_warning(path)
    assert warning.startswith(f"{home / 'missing'} cannot be written, so conversations are stored in {path}")
    assert "\n" not in warning
    assert spawn.history_place_warning(home / "missing" / "history.db") == ""


def test_a_place_that_the_user_chose_needs_no_warning(runtime):
    assert spawn.history_place_warning(runtime / "history.db") == ""
