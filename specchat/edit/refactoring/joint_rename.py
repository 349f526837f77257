"""Renames a name of Python in several files: where it is defined, and wherever others use it."""

from __future__ import annotations

from collections.abc import Sequence

from specchat.edit.refactoring.find_refactoring import Refactoring, Refusal, find_refusal
from specchat.edit.refactoring.operations import Rename
from specchat.edit.refactoring.parse_instruction import parse_instruction
from specchat.edit.refactoring.python_rename import rename_in_python
from specchat.edit.refactoring.splices import RefusedError
from specchat.edit.source_text import Source
from specchat.errors import DeclinedError
from specchat.syntax import language_of


def joint_refactorings(sources: Sequence[Source], instruction: str) -> list[Refactoring]:
    """The renaming that an instruction clearly is in several files, one refactoring for each; none where it is none.

    DeclinedError says why a renaming is not certain.
    """
    found = find_joint_refactoring(sources, instruction)
    if isinstance(found, Refusal):
        raise DeclinedError(f"{', '.join(each.name for each in sources)}: refused, as {found.reason}")
    return found or []


def find_joint_refactoring(sources: Sequence[Source], instruction: str) -> list[Refactoring] | Refusal | None:
    """As `joint_refactorings`, with the reason as a value; None when it is no renaming, or in a language not known."""
    operations = parse_instruction(instruction, sources[0].name)
    is_python = all(language_of(each.name, each.text) == "python" for each in sources)
    if len(sources) < 2 or len(operations) != 1 or not isinstance(operations[0], Rename) or not is_python:
        return None
    try:
        steps = rename_in_python({each.name: each.text for each in sources}, operations[0])
    except RefusedError as refused:
        return Refusal(str(refused))
    found = [Refactoring(each, (steps[each.name],)) for each in sources]
    reason = next(filter(None, map(find_refusal, found)), "")
    return Refusal(reason) if reason else found
