"""Edits that a syntax tree does without a model: renamings, imports, removals, constants.

operations.py                        what can be done, as values
parse_instruction.py                 words -> operations, by a few English patterns
find_refactoring.py                  instruction, text -> Refactoring, or None when there is any doubt
splices.py                           changes by position; all else stays byte for byte
python_names.py, python_members.py   what every name and attribute of a Python text refers to
python_symbols.py                    what a name in an instruction means
python_rename.py, python_keywords.py, docstring_names.py    renaming in Python
identifier_rename.py, language_rules.py    renaming in other languages
joint_rename.py                      renaming in several files
python_imports.py, import_sections.py    imports, sorted or removed
removals.py                          prints, logging calls, comments, docstrings
values.py, literals.py               constants, defaults, new parameters
"""

from specchat.edit.refactoring.find_refactoring import (
    Refactoring,
    Refusal,
    find_missing_name,
    find_refactoring,
    plan_refactoring,
)

__all__ = ["Refactoring", "Refusal", "find_missing_name", "find_refactoring", "plan_refactoring"]
