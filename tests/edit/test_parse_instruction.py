"""Which words are an operation, and which are not."""

from __future__ import annotations

import pytest

from specchat.edit.operations import (
    AddParameter,
    Move,
    NameKind,
    Removable,
    Remove,
    RemoveDefinition,
    Rename,
    SetValue,
    SortImports,
)
from specchat.edit.parse_instruction import parse_instruction

PLUS = Rename("add", "plus")
FUNCTION = Rename("add", "plus", NameKind.FUNCTION)


CLEAR = (
    ("rename add to plus", PLUS),
    ("Rename `add` to `plus`.", PLUS),
    ("rename add() into plus()", PLUS),
    ("please rename add -> plus everywhere, thanks!", PLUS),
    ("Could you rename 'add' to 'plus' in this file?", PLUS),
    ("rename add to plus and update all references", PLUS),
    ("rename add to plus in a.py", PLUS),
    ("In `src/a.py`, rename add to plus", PLUS),
    ("call add plus instead", PLUS),
    ("change the name of add to plus", PLUS),
    ("rename the function add to plus", FUNCTION),
    ("rename the add function to plus", FUNCTION),
    ("change the function name from add to plus", FUNCTION),
    ("rename Parser.feed to push", Rename("feed", "push", scope="Parser")),
    ("rename Parser.feed to Parser.push", Rename("feed", "push", scope="Parser")),
    ("rename self.x to self.y", Rename("x", "y", NameKind.ATTRIBUTE)),
    ("rename the method feed of Parser to push", Rename("feed", "push", NameKind.METHOD, "Parser")),
    ("rename the parameter n of count to limit", Rename("n", "limit", NameKind.PARAMETER, "count")),
    ("rename the variable x to y in count", Rename("x", "y", NameKind.VARIABLE, "count")),
    ("rename `field` to column", Rename("field", "column")),
    ("sort the imports", SortImports()),
    ("Sort imports alphabetically", SortImports()),
    ("put the imports in alphabetical order", SortImports()),
    ("remove all print statements", Remove(Removable.PRINTS)),
    ("delete the prints", Remove(Removable.PRINTS)),
    ("get rid of every print() call from count", Remove(Removable.PRINTS, "count")),
    ("remove the print", Remove(Removable.PRINTS, is_single=True)),
    ("remove all logging calls", Remove(Removable.LOGGING)),
    ("strip all comments", Remove(Removable.COMMENTS)),
    ("remove the docstring of Parser.feed", Remove(Removable.DOCSTRINGS, "Parser.feed", is_single=True)),
    ("remove unused imports", Remove(Removable.UNUSED_IMPORTS)),
    ("remove the function add", RemoveDefinition("add", NameKind.FUNCTION)),
    ("please delete the `Parser.feed` method", RemoveDefinition("feed", NameKind.METHOD, "Parser")),
    ("remove imports that are not used", Remove(Removable.UNUSED_IMPORTS)),
    ("set TIMEOUT to 30", SetValue("TIMEOUT", "30")),
    ("change the constant NAME from 'a' to 'b'", SetValue("NAME", "'b'", NameKind.CONSTANT, "", "'a'")),
    ("set the default of limit in count to -1.5", SetValue("limit", "-1.5", NameKind.PARAMETER, "count")),
    ("change limit's default to None", SetValue("limit", "none", NameKind.PARAMETER)),
    ("use `60 * 60` as the value of TIMEOUT", SetValue("TIMEOUT", "60 * 60")),
    ("add a parameter verbose with default False to count", AddParameter("count", "verbose", "false")),
    ("add a parameter `all: bool = False` to Parser.feed", AddParameter("Parser.feed", "all", "false", "bool")),
    ("in count, rename the variable x to y", Rename("x", "y", NameKind.VARIABLE, "count")),
    ("TIMEOUT = 30", SetValue("TIMEOUT", "30")),
    ("set max-size to 5", SetValue("max-size", "5")),
)


def test_clear_words_are_an_operation():
    found = {instruction: parse_instruction(instruction, "src/a.py") for instruction, _operation in CLEAR}

    assert {instruction: (operation,) for instruction, operation in CLEAR} == found


CODE = "def f(value, name, item): ...\n\nMAX_SIZE = 1\n__version__ = '0.1.0'\nline-length = 5\nconsole.log(1)\nf(2)\n"
CODE += "now = 3\n"
IN_A_TEXT = (  # words that are names, or mean one, because the text has them
    ("rename value to amount", Rename("value", "amount")),
    ("rename name to text", Rename("name", "text")),
    ("rename the parameter name to label", Rename("name", "label", NameKind.PARAMETER)),
    ("rename item to value", Rename("item", "value")),
    ("rename it to value", None),
    ("rename the variable now in f to ticks", Rename("now", "ticks", NameKind.VARIABLE, "f")),
    ("rename the variable this to that", None),
    ("rename now to ticks", None),
    ("rename the static item to row", Rename("item", "row", NameKind.CONSTANT)),
    ("rename the file to value", None),
    ("rename the local function f to g", Rename("f", "g", NameKind.FUNCTION)),
    ("in f rename item to row", Rename("item", "row", scope="f")),
    ("rename all uses of item to row", Rename("item", "row")),
    ("the parameter item should be called row", Rename("item", "row", NameKind.PARAMETER)),
    ("s/item/row/g", Rename("item", "row")),
    (r"s/\bitem\b/row/", Rename("item", "row")),
    ("item -> row", Rename("item", "row")),
    ("left -> right", None),
    ("s/left/right/", None),
    ("MAX_SIZE=5", SetValue("MAX_SIZE", "5")),
    ("make MAX_SIZE 5", SetValue("MAX_SIZE", "5")),
    ("MAX_SIZE should be 5", SetValue("MAX_SIZE", "5")),
    ("the line-length of tool should be 88", SetValue("line-length", "88", scope="tool")),
    ("set the max size to 5", SetValue("MAX_SIZE", "5")),
    ("set the line length to 88", SetValue("line-length", "88")),
    ("set the tab width to 88", None),
    ("set tool.x.line-length to 88", SetValue("line-length", "88", scope="tool.x")),
    ("bump the version to 0.2.0", SetValue("__version__", "0.2.0")),
    ("bump the package version from 0.1.0 to 1.0.0-rc1", SetValue("__version__", "1.0.0-rc1", old_value="0.1.0")),
    ("remove the console.log calls", Remove(Removable.CALLS, called="console.log")),
    ("remove console.log", Remove(Removable.CALLS, called="console.log")),
    ("remove all calls to f in main", Remove(Removable.CALLS, "main", called="f")),
    ("remove the call of f", Remove(Removable.CALLS, is_single=True, called="f")),
    ("remove the debug calls", None),
    ("move f before MAX_SIZE", Move("f", "MAX_SIZE")),
    ("please move the function `f` below the constant MAX_SIZE", Move("f", "MAX_SIZE", is_before=False)),
    ("put f above MAX_SIZE.", Move("f", "MAX_SIZE")),
    ("move f to the top", None),
    ("move f before the loop", None),
    ("move it before f", None),
    ("move f after the imports", None),
    ("move f before MAX_SIZE and rename it", None),
    ("remove the first function", None),
    ("remove the last method", None),
)


def test_words_are_names_where_the_text_has_them():
    found = {instruction: parse_instruction(instruction, "a.py", CODE) for instruction, _operation in IN_A_TEXT}

    assert {instruction: (operation,) if operation else () for instruction, operation in IN_A_TEXT} == found


@pytest.mark.parametrize(
    ("instruction", "operations"),
    [
        ("remove the comments and docstrings", (Remove(Removable.COMMENTS), Remove(Removable.DOCSTRINGS))),
        ("rename a to b and c to d", (Rename("a", "b"), Rename("c", "d"))),
        ("remove unused imports, then sort the imports", (Remove(Removable.UNUSED_IMPORTS), SortImports())),
    ],
)
def test_several_operations_are_done_one_after_the_other(instruction, operations):
    assert operations == parse_instruction(instruction)


OTHER = (
    "",
    "rename add to plus and make it faster",
    "rename add to plus, but keep an alias",
    "rename add to plus. It is used in main.",
    "rename variables to snake_case",
    "rename it to something better",
    "rename the class method to f",
    "rename add",
    "rename the file to b.py",
    "rename Parser.feed to Lexer.push",
    "rename x to y in this function",
    "sort the list of imports by length",
    "sort imports and exports",
    "clean up the imports",
    "remove debug prints",
    "remove all comments except the license",
    "remove the comment about limits",
    "remove commented-out code",
    "remove unused imports and variables",
    "remove all comments from this function",
    "remove add",
    "set the timeout to 30 seconds",
    "change mode to fast",
    "change the parser to use regular expressions",
    "make x private",
    "add a parameter verbose to count",
    "replace all prints with logging",
    "explain how to rename add to plus",
    "benenne add in plus um",
    "don't rename add to plus",
    "why was add renamed to plus?",
    "rename add to plus " * 40,
)


def test_everything_else_is_left_to_the_model():
    assert not [instruction for instruction in OTHER if parse_instruction(instruction, "src/a.py")]


def test_another_file_is_no_place_in_this_one():
    assert (Rename("add", "plus", scope="b.py"),) == parse_instruction("rename add to plus in b.py", "a.py")
