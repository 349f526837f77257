"""`specchat edit` with an instruction that is a refactoring: the model is not asked, all else is as for other edits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specchat.edit.source_text import make_source
from tests.edit.scripted import answers, say
from tests.front import command

pytestmark = pytest.mark.usefixtures("runtime")

BODY = b"    print(limit)\r\n" + 6 * b"    # on and on\r\n" + b"    return limit\r\n"
CODE = b"# count of all\r\ndef count(limit):\r\n" + BODY + b"\r\n\r\ncount(limit=3)"
NEW = CODE.replace(b"def count", b"def total").replace(b"\ncount(", b"\ntotal(")


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(CODE)
    return file


def test_the_tree_renames_without_the_model_and_every_other_byte_stays(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "rename count to total", "-y")

    assert (0, b"", NEW, []) == (said.ran.code, said.ran.out, file.read_bytes(), said.asked)
    assert "rename function `count` to `total`: 2 places; 1 mention in strings and comments left" in said.ran.err
    assert "applied 2/2 hunks" in said.ran.err


def test_it_is_undone_as_other_edits_are(file, monkeypatch):
    say(monkeypatch, [], str(file), "rename count to total", "-y")

    assert 0 == command(monkeypatch, "undo", str(file)).code
    assert CODE == file.read_bytes()


def test_it_is_reviewed_hunk_by_hunk(file, monkeypatch):
    say(monkeypatch, [], str(file), "rename count to total", stdin=b"y\nn\n", on_terminal=True)

    assert CODE.replace(b"def count", b"def total") == file.read_bytes()


def test_a_failed_check_leaves_the_file_and_keeps_the_text(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "rename count to total", "-y", "--check", "grep -c 'def count' {}")

    assert (4, CODE, []) == (said.ran.code, file.read_bytes(), said.asked)
    assert "the text is saved in" in said.ran.err


def test_the_report_names_the_format(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "remove all prints", "--json")

    report = json.loads(said.ran.out)
    assert ("proposed", "refactoring", 0) == (report["status"], report["format"], report["spec"]["turns"])
    assert "    print(limit)\n" == report["hunks"][0]["old"]


def test_lost_comments_are_no_warning_when_they_were_to_go(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "remove all comments", "-y")

    assert (0, CODE.replace(b"# count of all\r\n", b"").replace(b"    # on and on\r\n", b"")) == (
        said.ran.code,
        file.read_bytes(),
    )


def test_nothing_to_do_is_no_change(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "remove all docstrings", "-y")

    assert (9, CODE, []) == (said.ran.code, file.read_bytes(), said.asked)
    assert "a.py: nothing to change (remove 0 docstrings)" in said.ran.err


@pytest.mark.parametrize("name", ["absent", "Table.absent", "`absent`"])
def test_a_name_that_the_file_does_not_have_is_not_invented_by_a_model(file, monkeypatch, name):
    said = say(monkeypatch, answers("x = 1\n"), str(file), f"rename {name} to total", "-y", "--allow-shrink")

    assert (9, CODE, []) == (said.ran.code, file.read_bytes(), said.asked)
    assert "a.py: nothing to rename: the file has no `absent`" in said.ran.err


def test_a_name_in_another_case_is_not_guessed(file, monkeypatch):
    said = say(monkeypatch, answers("x = 1\n"), str(file), "rename COUNT to total", "-y", "--allow-shrink")

    assert (8, CODE, []) == (said.ran.code, file.read_bytes(), said.asked)
    assert "a.py: refused, as the file does not define `COUNT`" in said.ran.err


def test_a_doubt_leaves_it_to_the_model(file, monkeypatch):
    said = say(
        monkeypatch, answers("x = 1\n"), str(file), "rename count to limit and document it", "-y", "--allow-shrink"
    )

    assert 1 == len(said.asked)


def test_the_filter_prints_the_new_text(monkeypatch):
    said = say(monkeypatch, [], "-", "rename count to total", "--lang", "py", stdin=CODE)

    assert (0, NEW, "", []) == (said.ran.code, said.ran.out, said.ran.err, said.asked)


def test_lines_limit_what_is_removed(file, monkeypatch):
    file.write_bytes(b"print(1)\nprint(2)\nprint(3)\n")

    removed = say(monkeypatch, [], str(file), "remove the prints", "-l", "2-3", "-y")

    assert (0, b"print(1)\n") == (removed.ran.code, file.read_bytes())


def test_a_renaming_that_is_refused_stops_there_with_its_reason(file, monkeypatch):
    said = say(monkeypatch, answers("def total(limit):\n"), str(file), "rename count to total", "-l", "2-2", "-y")

    assert (8, [], CODE) == (said.ran.code, said.asked, file.read_bytes())
    assert "a.py: refused, as line 13 would change, too" in said.ran.err


def test_a_name_that_a_file_beside_it_uses_is_renamed_with_it_or_not_at_all(file, monkeypatch):
    (file.parent / "pyproject.toml").touch()
    (file.parent / "target").mkdir()
    for name in ("b.py", ".hidden.py", "target/b.py"):
        beside = file.parent / name
        beside.write_text("from a import count\n\ncount(1)\n")
        said = say(monkeypatch, answers("x = 1\n"), str(file), "rename count to total", "-y")
        beside.unlink()

        assert (8, [], CODE) == (said.ran.code, said.asked, file.read_bytes()), name
        assert f"{beside.name} uses `count`; name both files" in said.ran.err


def test_a_large_file_beside_it_is_looked_at_too(file, monkeypatch):
    (file.parent / "pyproject.toml").touch()
    (file.parent / "b.py").write_text("from a import count\n" + "# and so on\n" * 100_000)

    said = say(monkeypatch, [], str(file), "rename count to total", "-y")

    assert (8, CODE) == (said.ran.code, file.read_bytes())
    assert "b.py names `count` and cannot be read" in said.ran.err


def test_a_name_is_not_renamed_where_the_project_has_too_many_files_to_look_at(file, monkeypatch):
    for name in ("b.py", "c.py"):
        (file.parent / name).touch()
    limit_files(monkeypatch, 2)

    said = say(monkeypatch, [], str(file), "rename count to total", "-y")
    (file.parent / "c.py").unlink()
    fewer = say(monkeypatch, [], str(file), "rename count to total", "-y")

    assert (8, 0) == (said.ran.code, fewer.ran.code)
    assert "the project has more than 2 files" in said.ran.err


def limit_files(monkeypatch, limit: int) -> None:
    for module in ("refactoring.project_mentions", "refactoring.python_text", "context.file_listing"):
        monkeypatch.setattr(f"specchat.{module}.MAX_FILES", limit)


def test_a_large_project_is_walked_to_the_limit_and_a_local_name_is_renamed_there(file, monkeypatch):
    file.write_text("def count(old):\n    local = old\n    return local\n")
    for number in range(20):
        (file.parent / f"p{number}").mkdir()
        (file.parent / f"p{number}" / "b.py").touch()
    limit_files(monkeypatch, 2)
    walked, walk = list[str](), os.walk
    monkeypatch.setattr(
        os, "walk", lambda *given, **named: (walked.append(each[0]) or each for each in walk(*given, **named))
    )

    local = say(monkeypatch, [], str(file), "rename local to inner", "-y")
    parameter = say(monkeypatch, [], str(file), "rename old to new", "-y")

    assert (0, 8) == (local.ran.code, parameter.ran.code)
    assert "the project has more than 2 files" in parameter.ran.err
    assert len([each for each in walked if Path(each).name.startswith("p")]) < 20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_what_the_walk_of_a_project_leaves_out_is_not_looked_at(file, monkeypatch):
    for name in (".venv", "node_modules"):
        (file.parent / name).mkdir()
        os.mkfifo(file.parent / name / "evil.py")

    said = say(monkeypatch, [], str(file), "rename count to total", "-y")

    assert (0, NEW) == (said.ran.code, file.read_bytes())


def test_a_name_of_many_files_is_not_renamed_and_the_next_step_is_named(file, monkeypatch):
    for name in ("b.py", "c.py"):
        (file.parent / name).write_text("count = 1\n")
    monkeypatch.setattr("specchat.refactoring.project_mentions.MAX_MENTIONING_FILES", 1)

    said = say(monkeypatch, [], str(file), "rename count to total", "-y")

    assert "2 other files name `count`, too many to check; rename it in an editor" in " ".join(said.ran.err.split())


def test_names_in_other_languages_are_renamed_where_no_other_file_has_them(tmp_path, monkeypatch):
    text = "int twice(int a) { return 2 * a; }\n"
    (tmp_path / "a.c").write_text(text)

    alone = say(monkeypatch, [], str(tmp_path / "a.c"), "rename twice to double_of", "-y")
    (tmp_path / "a.h").write_text("int double_of(int a);\n")
    shared = say(monkeypatch, answers(text), str(tmp_path / "a.c"), "rename double_of to twice", "-y")
    header = say(monkeypatch, answers(text), str(tmp_path / "a.h"), "rename double_of to twice", "-y")

    assert (0, text.replace("twice", "double_of")) == (alone.ran.code, (tmp_path / "a.c").read_text())
    assert [(8, []), (8, [])] == [(each.ran.code, each.asked) for each in (shared, header)]


def test_what_the_tree_makes_is_held_to_the_contract_as_an_answer_is(monkeypatch):
    from specchat.refactoring import RefusedError, find_refactoring
    from specchat.refactoring.splices import Splice, Step

    text = "import os\n\nprint(1)\nos.sync()\n"
    broken = lambda *_arguments: Step("remove prints", (Splice(11, len(text), ""),))
    monkeypatch.setattr(find_refactoring, "remove_things", broken)

    with pytest.raises(RefusedError, match=r"line 4: `os.sync\(\)` would be lost"):
        find_refactoring.plan_refactorings([make_source(text.encode(), "a.py")], "remove the prints")
