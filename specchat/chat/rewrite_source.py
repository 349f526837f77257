"""What an answer is a new version of, as far as it was said. Knows no model and no drafter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from specchat.chat.attachments import with_attachments
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn


def rewrite_original(request: Request, turns: Sequence[Turn]) -> str:
    """The file that a request has rewritten, as an answer shows it; "" when it names none that was ever attached."""
    earlier = (file for turn in reversed(turns) for file in turn.files)
    named = (
        file
        for file in chain(request.files, earlier)
        if request.file_to_rewrite and file.name == request.file_to_rewrite
    )
    return next(map(as_answer_text, named), "")


def as_answer_text(file: Attachment) -> str:
    """A file as an answer gives it: in the fence in which it was attached, without the line that names it."""
    return with_attachments("", [file]).lstrip().partition("\n")[2]
