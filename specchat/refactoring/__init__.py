"""Edits that a syntax tree does without a model: renamings, imports, removals, constants.

Each is held to the contract of edits (`edit/contract.py`) when it runs, as an answer of a model is.

find_refactoring.py                  instruction, texts -> refactorings, a refusal, or none: that is for a model
operation_choices.py                 the operations that an instruction in any language may be, for a model to choose
splices.py                           changes by position; all else stays byte for byte
python_text.py                       Python files as jedi sees them: what each place of a name refers to
python_rename.py                     renaming in Python, in one or several files
python_dangers.py, project_mentions.py  by what other means a program, and other files, may reach a name
identifier_rename.py                 renaming in other languages
language_rules.py, .toml             what is known about each language and about comments for tools, as data
python_imports.py                    imports, sorted or removed by Ruff
removals.py                          calls, such as prints and logging, comments, docstrings, definitions
moves.py                             definitions and constants of Python in another place
values.py                            constants, defaults, new parameters
"""

from specchat.refactoring.find_refactoring import Refactoring, find_missing_name, make_refactoring, plan_refactorings
from specchat.refactoring.operation_choices import possible_operations
from specchat.refactoring.splices import RefusedError

__all__ = [
    "Refactoring", "RefusedError", "find_missing_name", "make_refactoring", "plan_refactorings", "possible_operations",
]  # fmt: skip
