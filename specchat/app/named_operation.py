"""The model names the operation that an instruction is: one of those that it may be, or none. The tree carries it out.

The answer is one short choice under a grammar. What is chosen is held to what the operation does, as one from words is.
The instruction confirms it, or a person. It does where a new name or value stands there as code (`plus`, 50), where the
verb is that of the operation, and no word joins, denies, compares or sets a condition. Everything else, as what removes
something or has no name, is for a person to see: a mistake about it is not in the instruction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import astuple

from specchat.chat.events import Event
from specchat.chat.request import OPERATION_TASK, SCHEMA, AnswerFormat, Request
from specchat.edit.answer_check import UnusableAnswerError
from specchat.edit.contract import EditWarnings
from specchat.edit.edit_plan import Region
from specchat.edit.edit_turn import EditRun, run_turn
from specchat.edit.operations import AddParameter, Operation, Rename, SetValue
from specchat.edit.source_text import Source
from specchat.errors import ContextError, DeclinedError, UsageError
from specchat.refactoring import Refactoring, RefusedError, code_in, make_refactoring, possible_operations

NONE = "none of these"
# What only a renaming, a new value or a new parameter is called, in the languages that were measured.
VERBS: Mapping[type[Operation], str] = {
    Rename: r"(?:renam|renombr|renomm)\w+|(?:um)?(?:be)?nenne?n?|heißen|(?:give|cambia|change)\b.*\b(?:name|nombre)",
    SetValue: "set|change|setzen?|ändern?|ändere|erhöhen?|senken?|cambia|pon|mets|passe|(?:should|ought to|must) be"
    "|have the value|increase|decrease|reduce|lower|bump|goes from",
    AddParameter: "param[eè]t(?:er|re)s?|parámetros?|arguments?|argumentos?",
}  # fmt: skip
MORE = re.compile(
    r"\b(?:and|or|not|no|never|but|than|if|whether|when|unless|only|und|oder|nicht|kein\w*|aber|als|ob|wenn|falls|nur"
    r"|y|o|ni|pero|que|si|cuando|sin|et|ou|ne|pas|mais|quand|sans|sauf|(?:n|qu|s)['’]\w+)\b",
    re.IGNORECASE,
)


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


def confirmation(operation: Operation, instruction: str) -> EditWarnings:
    """What a person has to see: an operation that the instruction does not confirm."""
    match operation:
        case Rename(new=new) | AddParameter(name=new) | SetValue(value=new) if new in code_in(instruction):
            is_confirmed = _has_only_words_of(operation, instruction)
        case _:
            is_confirmed = False
    return EditWarnings() if is_confirmed else EditWarnings(understood=str(operation))


def _has_only_words_of(operation: Operation, instruction: str) -> bool:
    """Whether the words beside the names and values are those of the operation, and of nothing more."""
    used = sorted((each for each in astuple(operation) if isinstance(each, str) and each), key=len, reverse=True)
    words = re.sub(rf"(?<!\w)(?:{'|'.join(map(re.escape, used))})(?!\w)", "` `", instruction)
    return bool(re.search(rf"\b(?:{VERBS[type(operation)]})\b", words, re.IGNORECASE)) and not MORE.search(words)
