"""The file that an answer rewrites. Knows no model and no drafter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from specchat.chat.attachments import with_attachments
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn


def rewrite_original(request: Request, turns: Sequence[Turn]) -> str:
    """The file that a request rewrites, in the form of an answer; "" when it names no attached file."""
    earlier = (file for turn in reversed(turns) for file in turn.files)
    name = request.file_to_rewrite
    matches = (file for file in chain(request.files, earlier) if name and file.name == name)
    return next(map(as_answer_text, matches), "")


def as_answer_text(file: Attachment) -> str:
    """A file in the form of an answer: in the fence of its attachment, without the line with its name."""
    return with_attachments("", [file]).lstrip().partition("\n")[2]
