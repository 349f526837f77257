"""From an instruction about a text to the refactoring that does it, when words and tree leave no doubt.

An instruction that is, or may be, something else is left to a model, and so is one in a language that the tree does not
know. One that clearly is an operation is refused with its reason where the operation is not certain.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

from specchat.edit import operations as ops
from specchat.edit.contract import find_warnings
from specchat.edit.parse_instruction import parse_instruction
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import check_syntax
from specchat.errors import BrokenEditError
from specchat.refactoring.identifier_rename import rename_identifier
from specchat.refactoring.language_rules import PYTHON
from specchat.refactoring.moves import move_statement
from specchat.refactoring.python_imports import remove_unused_imports, sort_imports
from specchat.refactoring.python_rename import rename_in_part, rename_in_python
from specchat.refactoring.removals import remove_definition, remove_things
from specchat.refactoring.splices import Area, RefusedError, Step, UnknownLanguageError, line_area, whole_area
from specchat.refactoring.values import add_parameter, set_value
from specchat.syntax import language_of


@dataclass(frozen=True)
class Refactoring:
    """Operations on one text, one after the other."""

    source: Source
    steps: tuple[Step, ...]
    operations: tuple[ops.Operation, ...]

    @property
    def text(self) -> str:
        """The new text."""
        return self.texts[-1]

    @property
    def texts(self) -> list[str]:
        """The text before the first operation, and after each one."""
        return list(accumulate(self.steps, lambda text, step: step.apply(text), initial=self.source.text))

    def describe(self) -> str:
        """What is done, as one line: "rename function `add` to `plus`: 4 places"."""
        return "; ".join(step.summary for step in self.steps)


def plan_refactorings(
    sources: Sequence[Source], instruction: str, lines: tuple[int, int] | None = None
) -> list[Refactoring]:
    """The refactoring that an instruction clearly is, one for each of these texts; none leaves it to a model.

    Of several texts that is a renaming in all of them. `lines` limits it to these, counted from 1. RefusedError for an
    instruction that is an operation, and that the tree cannot do with certainty.
    """
    operations = parse_instruction(instruction, sources[0].name, "\n".join(each.text for each in sources))
    try:
        match operations:
            case ():
                return []
            case _ if len(sources) == 1:
                return [make_refactoring(sources[0], operations, lines)]
            case (ops.Rename() as rename,) if all(each.language == PYTHON for each in sources):
                steps = rename_in_python({each.name: each.text for each in sources}, rename)
                return [_checked(Refactoring(each, (steps[each.name],), (rename,))) for each in sources]
            case _:
                return []
    except UnknownLanguageError:
        return []


def find_missing_name(source: Source, instruction: str) -> str:
    """The name that is to be renamed and that the text does not have, in any case of letters; "" if there is none."""
    text = source.text.casefold()
    operations = parse_instruction(instruction, source.name, source.text)
    renamed = (each.old for each in operations if isinstance(each, ops.Rename))
    return next((name for name in renamed if re.split(r"\W+", name)[-1].casefold() not in text), "")


def make_refactoring(
    source: Source, operations: Sequence[ops.Operation], lines: tuple[int, int] | None = None
) -> Refactoring:
    """The operations as one refactoring. RefusedError says why it is not certain."""
    text, steps = source.text, list[Step]()
    for operation in operations:
        area = line_area(text, *lines) if lines else whole_area(text)
        step = _make_step(source, text, operation, area)
        if outside := [each for each in step.splices if not area.holds(each.start, each.end)]:
            line = text.encode().count(b"\n", 0, outside[0].start) + 1
            raise RefusedError(f"line {line} would change, too")
        steps.append(step)
        new_text = step.apply(text)
        lines = lines and (lines[0], lines[1] + new_text.count("\n") - text.count("\n"))
        text = new_text
    return _checked(Refactoring(source, tuple(steps), tuple(operations)))


def _checked(refactoring: Refactoring) -> Refactoring:
    """RefusedError for a text that no longer parses, or that breaks the contract which a model has to keep, too."""
    source, texts = refactoring.source, refactoring.texts
    for operation, (before, after) in zip(refactoring.operations, pairwise(texts), strict=True):
        if (found := find_warnings(replace(source, text=before), after, operation)).worst_problem:
            raise RefusedError(found.summary)
    try:
        if refactoring.text != source.text:
            check_syntax(source, refactoring.text)
    except BrokenEditError as broken:
        raise RefusedError(str(broken)) from broken
    return refactoring


def _make_step(source: Source, text: str, operation: ops.Operation, area: Area) -> Step:
    language, path = language_of(source.name, text), Path(source.name).absolute()
    match operation:
        case ops.Rename():
            return (
                rename_in_part(source.name, text, operation, area)
                if language == PYTHON
                else rename_identifier(text, language, operation, area, path)
            )
        case (
            ops.Remove(what=ops.Removable.UNUSED_IMPORTS) | ops.SortImports() | ops.Move()
            | ops.RemoveDefinition() | ops.AddParameter()
        ) if language != PYTHON:  # fmt: skip
            raise UnknownLanguageError("only imports, definitions and parameters of Python are known")
        case ops.Remove(what=ops.Removable.UNUSED_IMPORTS):
            return remove_unused_imports(text, source.name, operation, area)
        case ops.Remove():
            return remove_things(text, language, operation, area)
        case ops.RemoveDefinition():
            return remove_definition(text, operation, path)
        case ops.SortImports():
            return sort_imports(text, source.name, area)
        case ops.SetValue():
            return set_value(text, language, operation, area)
        case ops.AddParameter():
            return add_parameter(text, operation, area, path)
        case ops.Move():
            return move_statement(text, operation)
