"""`specchat apply`: a sketch from standard input goes the way of an edit."""

from __future__ import annotations

import json

import pytest

import tests.front
from specchat.cli.edit import edit
from specchat_apply.command import apply as apply_command
from tests.edit.scripted import CODE, answers
from tests.front import Bytes, command
from tests.scripted_session import ScriptedSession, play_host

pytestmark = pytest.mark.usefixtures("runtime")

GAP = "# ... existing code ...\n"
SKETCH = f"{GAP}def total(limit):\n    return sum(count(limit)) + START\n".encode()
NEW = CODE.replace("sum(count(limit))", "sum(count(limit)) + START")
UNCLEAR = f"{GAP}    return sum(count(limit)) + START\n".encode()


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(CODE)
    return file


@pytest.fixture
def apply(monkeypatch, file):
    monkeypatch.setitem(tests.front.FRONT_ENDS, "apply", "specchat_apply.command:apply")
    monkeypatch.setitem(tests.front.FRONT_ENDS, "undo", "specchat.cli.undo:undo")

    def apply(sketch, *arguments, model=(), path=file):
        session = ScriptedSession(answers(*model))
        with monkeypatch.context() as inner:
            play_host(inner, lambda _profile: session)
            return command(monkeypatch, "apply", str(path), *arguments, stdin=sketch), session

    return apply


def test_in_a_pipe_a_diff_is_printed_and_nothing_written(apply, file):
    ran, session = apply(SKETCH)

    assert (0, []) == (ran.code, session.requests)
    assert b"+    return sum(count(limit)) + START\n" in ran.out
    assert CODE == file.read_text()


def test_yes_writes_without_a_model_and_undo_takes_it_back(apply, file, monkeypatch):
    file.write_bytes(CODE.replace("\n", "\r\n").encode())

    ran, session = apply(SKETCH, "-y", "--check", "grep -q START {}")

    assert (0, []) == (ran.code, session.requests)
    assert NEW.replace("\n", "\r\n").encode() == file.read_bytes()
    assert 0 == command(monkeypatch, "undo", str(file)).code
    assert CODE.replace("\n", "\r\n").encode() == file.read_bytes()


def test_a_model_merges_what_is_not_certain_and_is_held_to_the_sketch(apply, file):
    lossy = NEW.replace("# Where the counting begins.\n", "")

    ran, session = apply(UNCLEAR, "add the start", "-y", "--json", model=[f"```python\n{lossy}```"])

    [request] = session.requests
    assert request.text.startswith("add the start\n\nWrite the file with the changes that the sketch below shows.")
    assert "    return sum(count(limit)) + START" in request.text
    assert NEW == file.read_text()
    assert ("whole", True) == ((said := json.loads(ran.out))["format"], "belongs" in said["failed_ways"][0])


def test_without_a_sure_place_and_a_model_that_merges_it_nothing_is_written(apply, file):
    for name, answer, code in [("unchanged", CODE, 9), ("elsewhere", CODE.replace("START = 1", "START = 2"), 9)]:
        ran, _session = apply(UNCLEAR, "-y", model=[answer] * 4)

        assert (name, code, CODE) == (name, ran.code, file.read_text()), ran.err


@pytest.mark.parametrize(
    ("sketch", "code", "said"),
    [
        (b"", 2, "the sketch is empty"),
        (b" \n\n", 2, "the sketch is empty"),
        (b"\0\1", 2, "a binary file"),
        (f"{GAP}{GAP}".encode(), 2, "only gaps"),
        (CODE.encode(), 9, "nothing to change"),
    ],
)
def test_bad_sketches_are_a_sentence_and_an_exit_code(apply, file, sketch, code, said):
    ran, session = apply(sketch, "-y")

    assert (code, [], CODE) == (ran.code, session.requests, file.read_text())
    assert said in ran.err


def test_its_profile_is_that_of_edits():
    of_apply, of_edit = ({each.name: each.default for each in command.params} for command in (apply_command, edit))

    assert ("edit", of_edit["profile"]) == (of_apply["profile"], "edit")


def test_a_sketch_that_breaks_the_file_is_not_written(apply, file):
    for name, line, said in [("syntax", "return (limit", "does not parse"), ("name", "return limits", "limits")]:
        diff = f"@@ -1 +1 @@\n-    return sum(count(limit))\n+    {line}\n"

        ran, session = apply(diff.encode(), "-y")

        assert (name, 4, [], CODE) == (name, ran.code, session.requests, file.read_text())
        assert said in ran.err


def test_bad_files_are_a_sentence_and_an_exit_code(apply, file, tmp_path):
    (binary := tmp_path / "b.py").write_bytes(b"\0\1")

    for path, said in ((tmp_path / "no.py", "no such file"), (binary, "binary"), (tmp_path, "")):
        ran, _session = apply(SKETCH, "-y", path=path)
        assert (2, True) == (ran.code, said in ran.err), ran.err
    assert 0 == apply(CODE.encode(), "--allow-empty")[0].code


def test_the_plan_says_what_is_not_certain(apply, file):
    sure, unsure = (apply(sketch, "--plan")[0].out.decode() for sketch in (SKETCH, UNCLEAR))

    assert f"{file}: 1. the sketch, merged by structure, without a model\n" == sure
    assert "1. " in unsure and "nothing says where it belongs" in unsure and "2. the whole text" in unsure


def test_a_person_answers_on_the_terminal_and_not_in_the_sketch(apply, file, monkeypatch):
    monkeypatch.setattr("specchat.cli.edit._is_interactive", lambda _options: True)
    for keys, code, text in ((b"n\n", 8, CODE), (b"y\n", 0, NEW)):
        monkeypatch.setattr("specchat_apply.command.open_terminal", lambda keys=keys: Bytes(keys, is_terminal=True))

        assert (code, text) == (apply(SKETCH)[0].code, file.read_text())
