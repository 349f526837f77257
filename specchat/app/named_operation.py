"""The model names the operation that an instruction is: one of those that it may be, or none. The tree carries it out.

The answer is one short choice under a grammar. What is chosen is held to what the operation does, as one from words is,
and a person has to see it: nothing that is written down says that the model understood the instruction.
"""

import json
from collections.abc import Generator

from specchat.chat.events import Event
from specchat.chat.request import OPERATION_TASK, SCHEMA, AnswerFormat, Request
from specchat.edit.answer_check import UnusableAnswerError
from specchat.edit.edit_plan import Region
from specchat.edit.edit_turn import EditRun, run_turn
from specchat.edit.operations import Operation
from specchat.edit.source_text import Source
from specchat.errors import ContextError, DeclinedError, UsageError
from specchat.refactoring import Refactoring, RefusedError, make_refactoring, possible_operations

NONE = "none of these"


def name_operation(
    source: Source, instruction: str, window_tokens: int, edit_run: EditRun
) -> Generator[Event, object, Operation | None]:
    """The operation that the model says that the instruction is; None for none, and without an answer."""
    choices = {str(each): each for each in possible_operations(source, instruction)}
    sentences = [*choices, NONE]
    listed = "\n".join(f"- {each}" for each in sentences)
    schema = {
        "type": "object", "additionalProperties": False, "required": ["operation"],
        "properties": {"operation": {"enum": sentences}},
    }  # fmt: skip
    request = Request(
        f"An instruction about the file `{source.name}`: {instruction}\n\nWhich one of these is it?\n{listed}",
        max_tokens=max(len(each.encode()) for each in sentences) + 32,
        task=OPERATION_TASK,
        answer_format=AnswerFormat.parse(SCHEMA, schema),
    )
    try:
        answer = yield from run_turn(source.name, request, window_tokens, edit_run, lambda _text: None)
        return choices.get(json.loads(answer)["operation"])
    except (ContextError, UnusableAnswerError, UsageError, ValueError, KeyError, TypeError):
        return None  # a server may know no schema


def refactoring_of(source: Source, operation: Operation, region: Region | None) -> Refactoring:
    """What the tree makes of it. DeclinedError where it is not certain: there a model could only be wrong."""
    try:
        return make_refactoring(source, [operation], (region.first, region.last) if region else None)
    except RefusedError as refused:
        raise DeclinedError(f'{source.name}: understood as "{operation}" and refused, as {refused}') from refused
