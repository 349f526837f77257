"""A renaming in several files, by the command. What is renamed where is in `cases.toml`."""

from __future__ import annotations

import pytest

from specchat.edit.source_text import make_source
from specchat.refactoring import RefusedError, plan_refactorings
from tests.edit.scripted import say


def rename(files: dict[str, str], instruction: str = "rename old to new") -> dict[str, str]:
    found = plan_refactorings([make_source(text.encode(), name) for name, text in files.items()], instruction)
    return {each.source.name: each.text for each in found}


def test_only_renamings_are_done_jointly():
    assert {} == rename({"a.py": "import b\nimport a\n", "b.py": "y = 1\n"}, "sort the imports")


def test_a_refusal_is_one_for_all_files():
    with pytest.raises(RefusedError, match=r"of line 1 of a\.py or the function of line 1 of b\.py"):
        rename({"a.py": "def old(): ...\n", "b.py": "def old(): ...\n"})


FILES = {"a.py": "def old(): ...\n", "b.py": "from a import old\nold()\n", "c.py": "old = 1\n"}


def test_the_command_renames_in_all_files_or_in_none(tmp_path, monkeypatch, runtime):
    paths = [tmp_path / name for name in FILES]
    for path, text in zip(paths, FILES.values(), strict=True):
        path.write_text(text)
    words = [*map(str, paths[:2]), "rename the function old to new"]

    plan = say(monkeypatch, [], *words, "--plan")
    failed = say(monkeypatch, [], *words, "-y", "--check", "grep -q old {}")
    before = [path.read_text() for path in paths]
    done = say(monkeypatch, [], *words, "-y", "--check", "grep -q new {}")

    assert (0, 2) == (plan.ran.code, plan.ran.out.count(b"by the syntax tree"))
    assert (4, [*FILES.values()]) == (failed.ran.code, before)
    assert (0, []) == (done.ran.code, done.asked)
    assert [FILES[name].replace("old", "new") for name in ("a.py", "b.py")] + [FILES["c.py"]] == [
        path.read_text() for path in paths
    ]
