"""The file of an edit: how it is now, what the model is told of it, and how a new text gets to the disk.

For editors and for programs (`specchat script --edit`), so nothing here knows the protocol or its SDK.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from specchat.chat.request import Request
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.edit_plan import parse_lines
from specchat.edit.edit_task import Edited, Job
from specchat.edit.source_text import Source, make_source, read_source
from specchat.edit.undo_edits import apply
from specchat.edit.undo_store import kept_edits
from specchat.editors.acp.edit_intent import Wanted
from specchat.editors.acp.workspace_roots import Places
from specchat.errors import BrokenEditError, FileChangedError, InputError

FENCE, MARKDOWN = "```", (".md", ".markdown")


def no_buffer(_path: Path) -> str | None:
    """The buffer of who has none."""
    return None


@dataclass
class File:
    """One file, which need not be there yet. `buffer` gives its text as an editor has it, saved or not."""

    wanted: Wanted
    places: Places
    buffer: Callable[[Path], str | None] = no_buffer
    path: Path = field(init=False)
    shown: str = field(init=False)
    is_new: bool = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.wanted.path
        self.shown = self.places.shown(self.path)
        self.is_new = not os.path.lexists(self.path)

    @property
    def title(self) -> str:
        """What is being done."""
        return f"{'Create' if self.is_new else 'Edit'} {self.shown}"

    @property
    def when_not_taken(self) -> str:
        """What came of it after a no."""
        return f"{self.shown} was {'not created' if self.is_new else 'left as it was'}"

    def when_written(self, changes: int, edited: Edited, hint: str) -> str:
        """What came of it after a yes, and what to look at."""
        count = "created" if self.is_new else f"{changes} change{'' if changes == 1 else 's'} written"
        return f"{self.shown}: {'; '.join(filter(None, [count, edited.flags.words, hint]))}."

    def read(self) -> Source:
        """How it is now; empty for one that is to be made. InputError for what cannot be edited."""
        self.places.check_writable(self.path)
        if self.is_new and not os.path.lexists(self.path):  # some editors read a missing file as an empty one
            if not self.path.parent.is_dir():
                raise InputError(f"{self.shown}: there is no folder {self.places.shown(self.path.parent)}")
            return Source(self.shown, b"", "", "\n", "utf-8")
        source = read_source(self.path)  # what is missing or no text is so for an editor too
        buffer = self.buffer(self.path)
        if buffer is None:
            return Source(self.shown, source.raw, source.text, source.newline, source.codec)
        if "\0" in buffer:
            raise InputError(f"{self.shown}: a binary file")
        return make_source(buffer.encode(), self.shown)

    def check_writable(self) -> None:
        """SpecchatError when we could not write it ourselves."""
        if not self.is_new:
            check_writable(self.path)

    def job(self, source: Source, window: int) -> Job:
        """What the model is to do; of a file that is not there it gets nothing but the name."""
        if not self.is_new:
            lines = parse_lines(self.wanted.lines) if self.wanted.lines else None
            return Job(source, self.wanted.instruction, window, lines)
        if self.wanted.lines:
            raise InputError(f"{self.shown}: there is no such file, and so no lines of it")
        text = f"{self.wanted.instruction}\n\nWrite the whole text of the new file {self.shown} and nothing else."
        request = Request(text, task="edit")
        return Job(source, self.wanted.instruction, window, check=self._check_no_fence, opening=request)

    def _check_no_fence(self, text: str) -> None:
        """BrokenEditError for a block of code with something around it; only of an old text does one see what is."""
        if text.lstrip().startswith(FENCE) and self.path.suffix not in MARKDOWN:
            raise BrokenEditError(f"{self.shown}: the answer is a block of code within other text")

    def check_unchanged(self, source: Source) -> None:
        """Somebody may have typed while the model wrote, or while a question stood there. FileChangedError then."""
        if (self.is_new and os.path.lexists(self.path)) or self.read().raw != source.raw:
            raise FileChangedError(f"{self.shown} was changed meanwhile; nothing is written, ask again")

    def write(self, source: Source, new: bytes) -> str:
        """Put it on the disk. Returns how it can be taken back."""
        old = None if self.is_new else source.raw
        kept = apply(kept_edits(), self.wanted.instruction, [Replacement(self.path, old, new)])
        return f"`specchat undo {kept.number}` takes it back"
