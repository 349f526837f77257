"""What an answer is a new version of, as far as it was said. Knows no model and no drafter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from specchat.chat.attachments import with_attachments
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn


def original_of(request: Request, turns: Sequence[Turn]) -> str:
    """The file that a request has rewritten, as an answer shows it; "" when it names none that was ever attached."""
    earlier = (file for turn in reversed(turns) for file in turn.files)
    named = (file for file in chain(request.files, earlier) if request.rewrites and file.name == request.rewrites)
    return next(map(as_answered, named), "")


def as_answered(file: Attachment) -> str:
    """A file as an answer gives it: in the fence in which it was attached, without the line that names it."""
    return with_attachments("", [file]).lstrip().partition("\n")[2]
