"""Names that an edit leaves without a definition."""

import pytest

from specchat.edit.source_text import make_source
from specchat.edit.syntax_check import check_names, newly_undefined_names
from specchat.errors import BrokenEditError

OLD = """\
import os
from typing import List

LIMIT = 3


def helper(values: List[int]) -> int:
    return sum(value for value in values if value < LIMIT)


class Box:
    size = LIMIT

    def open(self):
        global state
        state = os.getcwd()
        return helper([self.size]), state, __name__
"""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("from typing import List\n", "", ["List"]),
        ("import os\n", "", ["os"]),
        ("def helper", "def assist", ["helper"]),
        ("LIMIT = 3\n", "", ["LIMIT"]),
        ("value < LIMIT", "value < maximum", ["maximum"]),
        ("LIMIT = 3", "LIMIT: int = len('abc')", []),
        ("        global state\n", "", []),
        ("import os\n", "try:\n    import os\nexcept ImportError as error:\n    raise error\n", []),
        ("import os\n", "from os import *\n", []),
        ("state = os.getcwd()", "match self.size:\n            case [state, *rest]:\n                return rest", []),
        ("return sum(", "return sum((", []),
    ],
)  # fmt: skip
def test_a_name_that_nothing_defines_any_more_is_found(old, new, names):
    assert old in OLD
    assert names == newly_undefined_names(OLD, OLD.replace(old, new, 1))


def test_of_a_part_of_a_file_only_lost_definitions_count():
    part = "def double(a):\n    return add(a, a)\n\n\ndef four(a):\n    return double(double(a))\n"

    assert [] == newly_undefined_names(part, part.replace("add(a, a)", "multiply(2, a)"))
    assert ["double"] == newly_undefined_names(part, part.replace("def double", "def twice"))


def test_an_undefined_name_breaks_an_edit_in_python_only():
    with pytest.raises(BrokenEditError, match=r"a\.py: the new text uses os, which nothing defines"):
        check_names(make_source(OLD.encode(), "a.py"), OLD.replace("import os\n", ""))
    check_names(make_source(OLD.encode(), "a.txt"), OLD.replace("import os\n", ""))
    check_names(make_source(OLD.encode(), "a.py"), OLD.replace("import os\n", ""), ignored="import os")
