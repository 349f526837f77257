"""`/summarize FILE`: a question about all of a file, however long it is.

`part_reader.py` reads a file that does not fit, when the request is sent.
"""

from __future__ import annotations

from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.question import Question
from specchat.context.at_names import resolve_names, unquoted_name
from specchat.errors import UsageError

DEFAULT_QUESTION = "Summarize this file."


def summarize(chat: ChatState, argument: str) -> CommandResult:
    """Attach the file with all of its text."""
    name, question = _split_argument(argument)
    named, listing = resolve_names([name], access=chat.access)
    if len(named) != 1 or listing.files:
        raise UsageError("/summarize reads one file; attach a folder with @, which finds the matching passages")
    return CommandResult(request=Question(question, files=(named[0],), has_mentions=False))


def _split_argument(argument: str) -> tuple[str, str]:
    """The name, which may be in quotes and after an @, and the question."""
    typed = argument.strip().removeprefix("@")
    if typed.startswith('"') and '"' in typed[1:]:
        name, _, question = typed[1:].partition('"')
    else:
        name, _, question = typed.partition(" ")
    if not name:
        raise UsageError("/summarize needs a file, and perhaps a question about it")
    return unquoted_name(name), question.strip() or DEFAULT_QUESTION
