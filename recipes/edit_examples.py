"""Makes edits of all kinds from real code: an instruction, the text before, the text after.

Renames, added parameters and removed docstrings change the real text. Prints, comments, unsorted imports, missing type
hints and flipped comparisons are reversed: the real text is the answer. Every pair differs, parses on both sides, and
its instruction is complete unless its kind says otherwise.
"""

from __future__ import annotations

from random import Random

from recipes.docstring_edits import add_docstring, remove_docstring
from recipes.edit_example import Edit, Maker
from recipes.import_edits import change_import, sort_imports
from recipes.inserted_line_edits import remove_lines, remove_print
from recipes.phrasing import comment_line
from recipes.rename_edits import class_names, function_names, local_names, parameter_names, rename, two_renames
from recipes.signature_edits import add_parameter, add_type_hints
from recipes.snippets import Snippet, parses
from recipes.value_edits import change_constant, fix_comparison

MAKERS: dict[str, Maker] = {
    "rename_local": rename("rename_local", "variable", local_names),
    "rename_parameter": rename("rename_parameter", "parameter", parameter_names),
    "rename_function": rename("rename_function", "function", function_names),
    "rename_class": rename("rename_class", "class", class_names),
    "constant": change_constant,
    "remove_print": remove_print,
    "remove_docstring": remove_docstring,
    "add_docstring": add_docstring,
    "type_hints": add_type_hints,
    "add_parameter": add_parameter,
    "sort_imports": sort_imports,
    "fix_comparison": fix_comparison,
    "remove_comments": remove_lines("remove_comments", comment_line, ("#",)),
    "change_import": change_import,
    "two_renames": two_renames,
}

# How often each kind is tried: the kinds that people use most, and those that teach copying with a gap.
SHARES: dict[str, float] = {
    "rename_local": 9,
    "rename_parameter": 7,
    "rename_function": 7,
    "rename_class": 6,
    "constant": 8,
    "remove_print": 8,
    "remove_docstring": 5,
    "add_docstring": 3,
    "type_hints": 5,
    "add_parameter": 4,
    "sort_imports": 3,
    "fix_comparison": 3,
    "remove_comments": 3,
    "change_import": 2,
    "two_renames": 2,
}


def make_edit(kind: str, snippet: Snippet, rng: Random) -> Edit | None:
    """An edit of this kind, verified, or nothing if the snippet offers none."""
    edit = MAKERS[kind](snippet, rng)
    if edit is None or edit.before == edit.after or not (parses(edit.before) and parses(edit.after)):
        return None
    return edit
