"""Imports of Python, sorted as Ruff sorts them and removed when nothing uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specchat.edit.refactoring.import_sections import ImportSections, Section
from specchat.edit.refactoring.operations import Removable, Remove
from specchat.edit.refactoring.python_imports import remove_unused_imports, sort_imports
from specchat.edit.refactoring.splices import RefusedError

UNSORTED = """\
\"\"\"Doc.\"\"\"
from .b import z, A, B2, B10, CONST
import sys
from typing import (
    Any,
    TYPE_CHECKING,
)
# about numpy
import numpy as np  # noqa: F401
from . import c
from __future__ import annotations
from .. import d
import os.path

if TYPE_CHECKING:
    from x import Y
    import json
"""


def sorted_text(text: str, sections: ImportSections | None = None) -> str:
    return sort_imports(text, sections or ImportSections()).apply(text)


def without_unused(text: str, name: str = "a.py") -> str:
    return remove_unused_imports(text, name, Remove(Removable.UNUSED_IMPORTS)).apply(text)


def test_sorted_imports_are_sorted_for_ruff(tmp_path):
    new = sorted_text(UNSORTED)
    (tmp_path / "a.py").write_text(new)
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--select", "I", "a.py"]

    checked = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 0 == checked.returncode, checked.stdout
    assert new.startswith('"""Doc."""\nfrom __future__ import annotations\n\nimport os.path\nimport sys\n')
    assert "\n# about numpy\nimport numpy as np  # noqa: F401\n" in new


def test_sorted_imports_stay():
    assert sorted_text(UNSORTED) == sorted_text(sorted_text(UNSORTED))


def test_code_and_comments_of_their_own_separate_imports():
    text = "import b\n\n# a note\n\nimport a\nx = 1\nimport d\nimport c\n"

    assert "import b\n\n# a note\n\nimport a\nx = 1\nimport c\nimport d\n" == sorted_text(text)


def test_what_the_file_begins_with_stays_at_the_beginning():
    assert "# licence\nimport a\nimport b\n" == sorted_text("# licence\nimport b\nimport a\n")


@pytest.mark.parametrize(
    "text",
    [
        "import b; import a\n",
        "import b  # isort: skip\nimport a\n",
        "from m import (\n    b,  # why\n    a,\n)\n",
        "x =",
    ],
)
def test_an_order_that_is_not_certain_is_refused(text):
    with pytest.raises(RefusedError):
        sorted_text(text)


def test_modules_of_the_project_come_after_those_of_others(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.ruff.lint.isort]\nknown-first-party = ["named"]\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.py").touch()
    (tmp_path / "a.py").touch()
    sections = ImportSections.of_file(tmp_path / "a.py")

    assert [Section.FIRST_PARTY] * 2 == [sections.section_of(name) for name in ("mine", "named.x")]
    assert [Section.STANDARD_LIBRARY, Section.THIRD_PARTY, Section.RELATIVE] == [
        sections.section_of(name) for name in ("os.path", "numpy", "..x")
    ]


def test_a_project_that_sorts_in_its_own_way_is_left_alone(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.isort]\nforce_sort_within_sections = true\n")
    (tmp_path / "a.py").touch()

    with pytest.raises(RefusedError, match="force_sort_within_sections"):
        ImportSections.of_file(tmp_path / "a.py")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os\nimport re\nre.x\n", "import re\nre.x\n"),
        ("from a import b, c as d, e\ne, b\n", "from a import b, e\ne, b\n"),
        ("from a import (\n    b,\n    c,\n)\nc\n", "from a import (\n    c,\n)\nc\n"),
        ("def f():\n    import os\n", "def f():\n    pass\n"),
        ("import os, re\nre\n", "import re\nre\n"),
        ("import a.b\n", ""),
        ("def f():\n    import os\n\n    return 1\n", "def f():\n    return 1\n"),
    ],
)
def test_imports_that_nothing_uses_go(before, after):
    assert after == without_unused(before)


@pytest.mark.parametrize(
    "text",
    [
        "import a.b\nimport a.c\na.b\n",
        "import a as x\nimport a.b\nx.b\n",
        "from a import b as b\n",
        "import os  # noqa\n",
        "from __future__ import annotations\n",
        "try:\n    import a\nexcept ImportError:\n    a = None\n",
        "from a import b\n__all__ = ['b']\n",
        "from a import B\ndef f(x: 'list[B]'): ...\n",
        "from a import b\ndef f():\n    '''Do.\n\n    >>> b()\n    '''\n",
        "from a import B\nx = []  # type: list[B]\n",
        "from a import *\n",
        "import os\ndel os\n",
    ],
)
def test_imports_that_something_needs_stay(text):
    assert text == without_unused(text)


@pytest.mark.parametrize("text", ["import a\neval('a')\n", "import a\n__all__ = make()\n", "import a("])
def test_a_program_that_may_use_any_name_is_refused(text):
    with pytest.raises(RefusedError):
        without_unused(text)


def test_one_unused_import_can_be_named():
    text = "import a\nimport b\nimport c\nc\n"
    name = lambda scope: Remove(Removable.UNUSED_IMPORTS, scope)

    assert "import a\nimport c\nc\n" == remove_unused_imports(text, "x.py", name("b")).apply(text)
    with pytest.raises(RefusedError):
        remove_unused_imports(text, "x.py", name("c"))


def test_the_imports_of_a_package_are_its_interface():
    with pytest.raises(RefusedError):
        without_unused("import a\n", "pkg/__init__.py")
