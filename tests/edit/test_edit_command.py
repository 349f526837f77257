"""`specchat edit` in all its forms: diff, review, `-y` and filter, with the documented exit codes."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from functools import partial

import pytest

from specchat.host import spawn
from specchat.host.client import connect
from tests.front import command
from tests.host.conftest import FAKE_HOST
from tests.host.test_spawn import ROOT, until

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def edit(monkeypatch):
    return partial(command, monkeypatch, "edit")


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(b"old = 1\r\nprint(old)\r\n")
    return file


def test_in_a_pipe_a_diff_is_printed_and_nothing_written(edit, file):
    ran = edit(str(file), "fence", "old", "new")

    assert (0, "") == (ran.code, ran.err)
    assert b"-print(old)\r\n+new = 1\r\n+print(new)\r\n" in ran.out
    assert b"old = 1" in file.read_bytes()


def test_yes_applies_and_keeps_mode_and_newlines(edit, file):
    file.chmod(0o640)

    ran = edit(str(file), "replace old new", "-y")

    assert (0, b"", b"new = 1\r\nprint(new)\r\n") == (ran.code, ran.out, file.read_bytes())
    assert 0o640 == stat.S_IMODE(file.stat().st_mode)
    assert ran.err.startswith(f"applied 1/1 hunks to {file} · 2 tokens · ")
    assert [file] == list(file.parent.iterdir())


def test_a_link_stays_a_link(edit, file):
    link = file.with_name("link.py")
    link.symlink_to(file)

    assert 0 == edit(str(link), "replace old new", "-y").code
    assert link.is_symlink()
    assert b"new = 1\r\nprint(new)\r\n" == file.read_bytes()


@pytest.mark.parametrize(
    ("keys", "code", "first"), [(b"y\n", 0, b"new"), (b"n\n", 8, b"old"), (b"q\n", 8, b"old"), (b"", 8, b"old")]
)
def test_on_a_terminal_the_person_decides(edit, file, keys, code, first):
    ran = edit(str(file), "replace old new", on_terminal=True, stdin=keys)

    assert code == ran.code
    assert b"+new = 1" in ran.out
    assert file.read_bytes().startswith(first)


@pytest.mark.parametrize(
    ("instruction", "code"),
    [("write # ... rest of the code", 3), ("write old = ", 4), ("fail", 6), ("replace absent x", 9), ("crash", 1)],
)
def test_every_failure_has_its_exit_code_and_shows_what_was_written_and_what_may_help(edit, file, instruction, code):
    before = file.read_bytes()

    ran = edit(str(file), instruction, "-y")

    assert (code, b"", before) == (ran.code, ran.out, file.read_bytes())
    assert (code in (3, 4)) == (f"{file}: the model wrote this, and nothing of it is taken\n@@" in ran.err)
    reason = ran.err.splitlines()[-1]
    assert reason.startswith("specchat: ")
    assert (code in (3, 4, 9)) == ("; next: fewer lines (-l FIRST-LAST), another model" in reason)


def test_the_help_names_the_profile_of_edits(edit):
    assert b"[default: edit]" in edit("--help").out


@pytest.mark.full
def test_regions_of_a_long_file_are_requested_one_by_one(edit, tmp_path):
    file, filler = tmp_path / "long.py", "".join(f"value_{number} = 'old_one'\n" for number in range(1500))
    file.write_text(f"def old_one():\n    pass\n\n\n{filler}\n\ndef new_two():\n    old_one()\n")

    assert 0 == edit(str(file), "replace old_one new_two", "-y").code

    assert f"def new_two():\n    pass\n\n\n{filler}\n\ndef new_two():\n    new_two()\n" == file.read_text()


def test_the_diff_of_a_text_in_latin_1_has_its_bytes(edit, tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xe4 old\n")

    assert edit(str(file), "replace old new").out.endswith(b"-\xe4 old\n+\xe4 new\n")


def test_a_missing_file_or_instruction_is_a_usage_error(edit, tmp_path, file):
    assert 2 == edit(str(tmp_path / "missing"), "replace a b").code
    assert 2 == edit(str(file)).code


def test_no_change_can_be_allowed(edit, file):
    assert 0 == edit(str(file), "replace absent x", "--allow-empty").code


def test_a_filter_prints_the_new_text_and_nothing_else(edit):
    ran = edit("-", "fence old new", stdin=b"\told\r\n  old")

    assert (0, b"\tnew\r\n  new", "") == (ran.code, ran.out, ran.err)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["write # ... rest of the code"], 3), (["write x = ", "--lang", "py"], 4), (["fail"], 6), (["replace no x"], 9),
     (["crash"], 1), ([], 2), (["--nonsense"], 2), (["--profile", "absent", "replace a b"], 2)],
)  # fmt: skip
def test_a_failing_filter_prints_its_input_and_no_message(edit, arguments, code):
    raw = b"x = 1\r\n\xc3\xa9 = 2"

    ran = edit("-", *arguments, stdin=raw)

    assert (code, raw, "") == (ran.code, ran.out, ran.err)


def test_a_filter_prints_binary_input_unchanged(edit):
    raw = b"\x00\xff binary"

    assert (2, raw, "") == tuple(getattr(edit("-", "replace a b", stdin=raw), part) for part in ("code", "out", "err"))


def test_a_filter_may_be_strict_and_loud(edit):
    ran = edit("-", "fail", "--strict", "--stderr", stdin=b"x")

    assert (6, b"", "specchat: too long") == (ran.code, ran.out, ran.err.splitlines()[-1])


def test_an_empty_text_stays_empty_without_a_model(edit, runtime):
    assert (0, b"") == (edit("-", "replace a b").code, edit("-", "replace a b").out)
    assert not (runtime / "host.sock").exists()


def test_the_reason_of_a_silent_failure_is_in_the_log(edit, runtime):
    edit("-", "fail", stdin=b"x")

    assert "too long" in (runtime / "edit.log").read_text()


def test_an_edit_is_cancelled_after_its_timeout(edit, file):
    before = file.read_bytes()

    ran = edit(str(file), "read", "-y", "--timeout", "0.2")
    filtered = edit("-", "read", "--timeout", "0.2", stdin=before)

    assert (3, f"specchat: {file}: no new text within 0.2 s\n", before) == (ran.code, ran.err, file.read_bytes())
    assert (3, "", before) == (filtered.code, filtered.err, filtered.out)


def test_an_edit_within_its_timeout_is_applied(edit, file):
    assert 0 == edit(str(file), "replace old new", "-y", "--timeout", "600").code
    assert 2 == edit(str(file), "replace old new", "-y", "--timeout", "0").code


def test_without_an_engine_the_file_and_the_text_stay(edit, file, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", ("false",))
    before = file.read_bytes()

    ran, filtered = edit(str(file), "replace old new", "-y"), edit("-", "replace old new", stdin=before)

    assert (7, before, 1) == (ran.code, file.read_bytes(), ran.err.count("\n"))
    assert (7, before, "") == (filtered.code, filtered.out, filtered.err)


@pytest.mark.dear
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_file_untouched_and_has_its_own_exit_code(file, runtime, number):
    script = f"""if True:
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from specchat.host import spawn
        from specchat.cli.main import COMMANDS, LazyCommand, run
        spawn.HOST_COMMAND = {FAKE_HOST!r}
        COMMANDS["edit"] = LazyCommand("specchat.cli.edit:edit", "")
        sys.exit(run(["edit", "-y", {str(file)!r}, "read"]))
    """
    before = file.read_bytes()
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as program:
        until(
            lambda: (
                (line := connect("test", starts_host=False)) is not None and line.call("stats", {})["live_turns"] == 1
            )
        )
        program.send_signal(number)
        said = program.stderr.read()

    assert (128 + number, b"specchat: stopped; nothing is written\n") == (program.returncode, said)
    assert before == file.read_bytes()
