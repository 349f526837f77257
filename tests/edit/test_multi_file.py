"""Several files in one conversation: each answer sees the others, and all are written or none."""

from __future__ import annotations

import pytest

from specchat.app.edit_task import multi_file_jobs
from specchat.edit.source_text import make_source
from specchat.errors import ContextError, UsageError
from tests.edit.scripted import Said, answers, say

pytestmark = pytest.mark.usefixtures("runtime")

DEFINES, USES = "def old():\n    return 1\n", "from a import old\n\nprint(old())\n"


@pytest.fixture
def files(tmp_path):
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file, text in zip(files, (DEFINES, USES), strict=True):
        file.write_text(text)
    return files


@pytest.fixture
def rename(files, monkeypatch):
    def rename(*texts: str, flags: tuple[str, ...] = (), **how: object) -> Said:
        return say(
            monkeypatch, answers(*texts), *map(str, files), "say new wherever it says old", "--together", *flags, **how
        )

    return rename


def new(text: str) -> str:
    return text.replace("old", "new")


def test_an_edit_spans_files_that_are_shown_once_and_answered_one_by_one(files, rename):
    said = rename(new(DEFINES), new(USES), flags=("-y",))

    assert (0, [new(DEFINES), new(USES)]) == (said.ran.code, [file.read_text() for file in files])
    first, second = said.session.requests
    assert ([DEFINES, USES], ()) == ([file.text for file in first.files], second.files)
    assert [str(file) for file in files] == [first.file_to_rewrite, second.file_to_rewrite]
    assert str(files[1]) in second.text


@pytest.mark.parametrize(("broken", "code"), [("def new(", 4), ("I'm sorry, I cannot do that.", 3)])
def test_one_answer_that_is_no_good_leaves_all_files_alone(files, rename, broken, code):
    said = rename(new(DEFINES), *[broken] * 3, flags=("-y",))

    assert (code, [DEFINES, USES]) == (said.ran.code, [file.read_text() for file in files])


def test_a_check_sees_all_new_files_at_once(files, rename):
    check = 'sh -c "! grep -l old a.py b.py"'

    failed = rename(new(DEFINES), USES + "\n\n", flags=("-y", "--check", check))
    before = [file.read_text() for file in files]
    passed = rename(new(DEFINES), new(USES), flags=("-y", "--check", check))

    assert (4, [DEFINES, USES]) == (failed.ran.code, before)
    assert (0, new(USES)) == (passed.ran.code, files[1].read_text())


def test_one_file_is_not_several(files, monkeypatch):
    assert 2 == say(monkeypatch, [], str(files[0]), "rename old to new", "--together").ran.code


def test_files_that_do_not_fit_together_are_an_error_with_the_numbers():
    sources = [make_source(b"x = 1\n" * 100, name) for name in ("a.py", "b.py")]

    with pytest.raises(ContextError, match=r"2 files together takes about \d+ tokens and the window holds 700"):
        multi_file_jobs(sources, "rename x", 700)
    with pytest.raises(UsageError):
        multi_file_jobs(sources[:1], "rename x", 700)
    assert 2 == len(multi_file_jobs(sources, "rename x", 1000))
