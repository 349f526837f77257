"""Several files in one conversation, so that a name that is changed in one is changed in all: one answer for each.

The first question attaches every file; each answer is the whole of one of them, and sees those before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from specchat.chat.request import Attachment, Request
from specchat.edit.edit_plan import needed_tokens
from specchat.edit.edit_task import Job, most_tokens
from specchat.edit.source_text import Source
from specchat.errors import ContextError, UsageError


def together(sources: Sequence[Source], instruction: str, window: int) -> list[Job]:
    """A job for each file, to be done in this order in one conversation.

    ContextError, with the numbers, when the files and their new texts do not fit the window as a whole.
    """
    if len(sources) < 2:
        raise UsageError("--together is about several files; name another one, or leave it out")
    _check_room(sources, instruction, window)
    files = tuple(Attachment(source.name, source.text) for source in sources)
    first, *others = sources
    openings = [
        Request(f"{instruction}\n\n{_wish(first)}", files, most_tokens(first), task="edit", rewrites=first.name)
    ]
    for source in others:
        question = f"{instruction}\n\nThat was one of the files. {_wish(source)}"
        openings.append(Request(question, max_tokens=most_tokens(source), task="edit", rewrites=source.name))
    pairs = zip(sources, openings, strict=True)
    return [Job(source, instruction, window, opening=opening) for source, opening in pairs]


def _wish(source: Source) -> str:
    return f"Write the whole of `{source.name}` anew and nothing else; the other files come afterwards."


def _check_room(sources: Sequence[Source], instruction: str, window: int) -> None:
    needed = sum(needed_tokens(source.text, instruction) for source in sources)
    if needed > window:
        raise ContextError(
            f"reading and writing these {len(sources)} files together takes about {needed} tokens and the window holds "
            f"{window}; name fewer files, or leave out --together"
        )
