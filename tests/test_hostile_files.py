"""Files of a folder that may be hostile: none is waited for without an end, and none fills the memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specchat.app.agent.read_tools import ReadTool, SearchTool
from specchat.app.project_files import ProjectFiles
from specchat.app.welcome import git_branch
from specchat.chat.attachments import decode_bytes
from specchat.context.file_listing import matches_glob
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.source_text import read_source
from specchat.errors import InputError
from specchat.profile.project_file import find_project_file
from specchat.refactoring.project_mentions import files_with
from specchat.refactoring.python_text import open_python
from specchat.refactoring.removals import parsed
from specchat.refactoring.splices import RefusedError
from specchat.regular_file import read_regular_file
from specchat.syntax.parse import syntax_tree
from tests.each_row import each_row

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
HUGE_BYTES = 2**40  # of a file without a block on the disk
SECONDS = 300  # a child that takes longer waits for ever


def plant(path: Path, kind: str) -> Path:
    """What an unpacked archive may have in the place of a file."""
    match kind:
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case "a huge file":
            path.touch()
            os.truncate(path, HUGE_BYTES)
        case "a folder":
            path.mkdir()
        case "itself":
            path.symlink_to(path.name)
    return path


KINDS = ("a pipe", "a device", "a huge file", "a folder", "itself", "nothing")
WEDGING = KINDS[:3]


def in_child(code: str, folder: Path) -> str:
    """Run it with the folder as `root` and little memory; a pipe that is waited for ends the test, not its process."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\nroot = {str(folder)!r}\n{code}"
    ran = subprocess.run(
        [sys.executable, "-c", limited], cwd=Path(__file__).parents[1], capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    return ran.stdout or ran.stderr


READERS = """
from pathlib import Path
from tests.test_hostile_files import *
print([f"{name}: {reads(Path(root))}" for name, reads in READS.items()])
"""


def refusal_of(read) -> str:
    try:
        return f"read {read()!r:.60}"
    except (InputError, RefusedError) as error:
        return str(error)


def search(folder: Path) -> str:
    tool = SearchTool(ProjectFiles(WorkspaceRoots(folder)), 2000)
    return tool.run({"pattern": "x", "folder": "evil.py"}, threading.Event()).text


def rename(folder: Path) -> str:
    code = "import evil\n\n\ndef add(a):\n    return evil.x + a\n"
    (folder / "a.py").write_text(code)
    with open_python({str(folder / "a.py"): code}) as files:
        return str([token.keys for token in files[0].tokens("add")])


READS = {
    "edit": lambda folder: refusal_of(lambda: read_source(folder / "evil.py")),
    "read": lambda folder: ReadTool(ProjectFiles(WorkspaceRoots(folder)), 9).run({"path": "evil.py"}, None).text,
    "search": search,
    "mentions": lambda folder: refusal_of(lambda: list(files_with(folder / "b.py", (".py",), "x"))),
    "jedi": lambda folder: refusal_of(lambda: rename(folder)),
    "branch": lambda folder: git_branch(folder) or "no branch",
    "settings": lambda folder: find_project_file(folder / "settings") if (folder / "settings").is_dir() else None,
}


@each_row("kind", WEDGING, shares=3)
def test_no_reader_of_a_project_waits_for_ever_or_fills_the_memory(tmp_path, kind):
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / ".git").mkdir()
    for name in ("evil.py", ".git/HEAD"):
        plant(tmp_path / name, kind)

    said = in_child(READERS, tmp_path)

    assert said.startswith("["), said
    assert "edit: " in said and "no branch" in said
    assert "jedi: evil.py is no regular file, or too large to be read" in said
    assert "Traceback" not in said and "MemoryError" not in said, said


@each_row("kind", KINDS)
def test_what_is_no_regular_file_or_too_large_is_a_sentence(tmp_path, kind):
    with pytest.raises(InputError) as caught:
        read_regular_file(plant(tmp_path / "file", kind), 2**20)

    assert str(caught.value).startswith(f"{tmp_path / 'file'}: ") and "\n" not in str(caught.value)


def test_a_file_is_read_to_its_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 10)

    assert read_regular_file(tmp_path / "file", 10) == b"x" * 10
    with pytest.raises(InputError, match="more than"):
        read_regular_file(tmp_path / "file", 9)


def test_an_encoding_of_quadratic_time_is_not_used():
    """A mebibyte in it would take a quarter of an hour."""
    for codec in ("idna", "IDNA", "punycode"):
        raw = f"# coding: {codec}\n.xn--".encode() + b"abc9" * 250_000 + b".\xe9\n"

        assert decode_bytes(raw, "a.py")[1] == "latin-1"


@each_row(
    "pattern expected",
    [
        ("**/" * 30 + "z", False),
        ("**/a/" * 20 + "z", False),
        ("**/a/" * 20 + "**", True),
        ("**", True),
        ("a/**/a", True),
        ("**/*", True),
        ("*", False),
    ],
)
def test_a_pattern_with_many_folders_is_decided_at_once(pattern, expected):
    assert matches_glob(["a"] * 40, pattern.split("/")) is expected


@each_row("pattern", ["a{99999999999999999999}", "(", "x" * 10])
def test_a_search_that_cannot_be_is_a_sentence(tmp_path, pattern):
    (tmp_path / "evil.py").write_text("y\n")

    tool = SearchTool(ProjectFiles(WorkspaceRoots(tmp_path)), 2000)

    assert "Traceback" not in tool.run({"pattern": pattern}, threading.Event()).text


@each_row(
    "language, nested",
    [
        ("javascript", "const a = " + "x => {" * 40_000 + "}" * 40_000),
        ("javascript", "const a = " + "(" * 100_000 + "1" + ")" * 100_000),
        ("typescript", "const a = 1" + " + 1" * 100_000),
        ("rust", "fn f() { a" + ".b()" * 100_000 + "; }"),
        ("json", "[" * 100_000 + "]" * 100_000),
        ("python", "a = " + "[" * 100_000 + "]" * 100_000),
    ],
    shares=3,
)
def test_a_tree_that_is_nested_too_deeply_is_none_and_a_renaming_is_refused(language, nested):
    assert syntax_tree(nested, language) is None
    if language != "json":
        with pytest.raises(RefusedError, match="too deeply nested"):
            parsed(nested, language)


def test_a_long_text_of_many_short_statements_has_a_tree():
    assert syntax_tree("a = [1, [2, (3)]]\n" * 20_000, "python") is not None


@each_row("deep", ["-" * 100_000 + "1", "a." * 100_000 + "b", "(" * 100_000, "1+" * 100_000 + "1"])
def test_python_that_is_nested_too_deeply_is_refused(deep):
    with pytest.raises(RefusedError, match="does not parse"), open_python({"a.py": f"x = {deep}\n"}):
        pass
