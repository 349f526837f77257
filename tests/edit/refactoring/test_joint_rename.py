"""A renaming in several files: where the name is defined, and wherever it is the imported one."""

from __future__ import annotations

import pytest

from specchat.edit.refactoring import Refusal
from specchat.edit.refactoring.joint_rename import find_joint_refactoring
from specchat.edit.source_text import make_source
from tests.edit.scripted import say


def rename(files: dict[str, str], instruction: str = "rename old to new") -> dict[str, str] | str | None:
    found = find_joint_refactoring([make_source(text.encode(), name) for name, text in files.items()], instruction)
    if isinstance(found, Refusal) or found is None:
        return found and found.reason
    return {each.source.name: each.apply(each.source.text) for each in found}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from a import old\nold()\n", "from a import new\nnew()\n"),
        ("from a import old as x\nx()\n", "from a import new as x\nx()\n"),
        ("import a\na.old(), b.old()\n", "import a\na.new(), b.old()\n"),
        ("import a as x\nx.old()\n", "import a as x\nx.new()\n"),
        ("from . import a\na.old()\n", "from . import a\na.new()\n"),
        ("from .a import (\n    old,\n)\n__all__ = ['old']\n", "from .a import (\n    new,\n)\n__all__ = ['new']\n"),
        ("from other import old\nold()\n", "from other import old\nold()\n"),
        ("x.old()\nf(old=1)\n", "x.old()\nf(old=1)\n"),
    ],
)
def test_a_file_follows_where_it_imports_the_name(before, after):
    files = {"a.py": "def old(): ...\n", "b.py": before}

    assert {"a.py": "def new(): ...\n", "b.py": after} == rename(files)


def test_modules_of_packages_are_found_by_their_paths():
    files = {
        "pkg/a.py": "class old: ...\n",
        "pkg/sub/b.py": "from ..a import old\nimport pkg.a\npkg.a.old, old\n",
        "pkg/__init__.py": "from pkg.a import old\n",
        "c.py": "from pkg import old\nimport pkg\nold, pkg.old\n",
    }

    assert {name: text.replace("old", "new") for name, text in files.items()} == rename(files)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("def old(): ...\n", "def old(): ...\n", "several of the files"),
        ("def old(): ...\n", "from a import *\nold()\n", "imports everything"),
        ("def old(): ...\n", "from a import old\nnew = 1\n", "`new` is in use"),
        ("def old(): ...\n", "try:\n    from a import old\nexcept E:\n    old = 1\n", "several of the files"),
        ("def f(old): ...\n", "from a import f\nf(old=1)\n", "may use the parameter"),
        ("class C:\n    def old(self): ...\n", "from a import C\nC().old()\n", "may use the method"),
        ("x = 1\n", "y = 1\n", "does not define"),
    ],
)
def test_a_renaming_that_is_not_certain_is_refused(first, second, why):
    assert why in (rename({"a.py": first, "b.py": second}) or "")


def test_only_renamings_are_done_jointly():
    assert rename({"a.py": "x = 1\n", "b.py": "y = 1\n"}, "sort the imports") is None
    assert rename({"a.py": "old = 1\n"}) is None


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
