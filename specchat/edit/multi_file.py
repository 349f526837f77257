"""Edits several files in one conversation (--together), so that a change of a name reaches all of them.

The first request attaches every file. Each answer is one whole file and sees the answers before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from specchat.chat.request import Attachment, Request
from specchat.edit.edit_plan import needed_tokens
from specchat.edit.edit_task import EditJob, max_answer_tokens
from specchat.edit.source_text import Source
from specchat.errors import ContextError, UsageError


def multi_file_jobs(sources: Sequence[Source], instruction: str, window_tokens: int) -> list[EditJob]:
    """One job for each file, to be run in this order in one conversation.

    ContextError, with the numbers, when the files and their new texts do not fit the window together.
    """
    if len(sources) < 2:
        raise UsageError("--together needs several files; name another one, or leave --together out")
    _check_window(sources, instruction, window_tokens)
    files = tuple(Attachment(source.name, source.text) for source in sources)
    jobs = list[EditJob]()
    for source in sources:
        text = f"Write the whole of `{source.name}` anew and nothing else; the other files come afterwards."
        if jobs:
            text, files = f"That was one of the files. {text}", ()
        tokens = max_answer_tokens(source)
        request = Request(f"{instruction}\n\n{text}", files, tokens, task="edit", file_to_rewrite=source.name)
        jobs.append(EditJob(source, instruction, window_tokens, first_request=request))
    return jobs


def _check_window(sources: Sequence[Source], instruction: str, window_tokens: int) -> None:
    needed = sum(needed_tokens(source.text, instruction) for source in sources)
    if needed > window_tokens:
        raise ContextError(
            f"reading and writing these {len(sources)} files together takes about {needed} tokens and the window holds "
            f"{window_tokens}; name fewer files, or leave out --together"
        )
