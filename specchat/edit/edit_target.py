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
from specchat.edit.edit_intent import EditIntent
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.edit_task import EditJob, EditResult
from specchat.edit.source_text import Source, make_source, read_source
from specchat.edit.undo_edits import apply_edit
from specchat.edit.undo_store import user_undo_store
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import BrokenEditError, FileChangedError, InputError

CODE_FENCE, MARKDOWN_SUFFIXES = "```", (".md", ".markdown")


def no_buffer(_path: Path) -> str | None:
    """The buffer of who has none."""
    return None


@dataclass
class EditTarget:
    """One file, which need not be there yet. `buffer` gives its text as an editor has it, saved or not."""

    intent: EditIntent
    workspace: WorkspaceRoots
    read_buffer: Callable[[Path], str | None] = no_buffer
    path: Path = field(init=False)
    display_name: str = field(init=False)
    is_new: bool = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.intent.path
        self.display_name = self.workspace.display_name(self.path)
        self.is_new = not os.path.lexists(self.path)

    @property
    def title(self) -> str:
        """What is being done."""
        return f"{'Create' if self.is_new else 'Edit'} {self.display_name}"

    @property
    def declined_message(self) -> str:
        """What came of it after a no."""
        return f"{self.display_name} was {'not created' if self.is_new else 'left as it was'}"

    def written_message(self, change_count: int, result: EditResult, hint: str) -> str:
        """What came of it after a yes, and what to look at."""
        count = "created" if self.is_new else f"{change_count} change{'' if change_count == 1 else 's'} written"
        return f"{self.display_name}: {'; '.join(filter(None, [count, result.warnings.summary, hint]))}."

    def read(self) -> Source:
        """How it is now; empty for one that is to be made. InputError for what cannot be edited."""
        self.workspace.check_writable(self.path)
        if self.is_new and not os.path.lexists(self.path):  # some editors read a missing file as an empty one
            if not self.path.parent.is_dir():
                raise InputError(
                    f"{self.display_name}: there is no folder {self.workspace.display_name(self.path.parent)}"
                )
            return Source(self.display_name, b"", "", "\n", "utf-8")
        source = read_source(self.path)  # what is missing or no text is so for an editor too
        buffer = self.read_buffer(self.path)
        if buffer is None:
            return Source(self.display_name, source.raw, source.text, source.newline, source.codec)
        if "\0" in buffer:
            raise InputError(f"{self.display_name}: a binary file")
        return make_source(buffer.encode(), self.display_name)

    def check_writable(self) -> None:
        """SpecchatError when we could not write it ourselves."""
        if not self.is_new:
            check_writable(self.path)

    def make_job(self, source: Source, window_tokens: int) -> EditJob:
        """What the model is to do; of a file that is not there it gets nothing but the name."""
        if not self.is_new:
            lines = parse_line_range(self.intent.line_range) if self.intent.line_range else None
            return EditJob(source, self.intent.instruction, window_tokens, lines)
        if self.intent.line_range:
            raise InputError(f"{self.display_name}: there is no such file, and so no lines of it")
        text = (
            f"{self.intent.instruction}\n\nWrite the whole text of the new file {self.display_name} and nothing else."
        )
        request = Request(text, task="edit")
        return EditJob(
            source, self.intent.instruction, window_tokens, check=self._check_no_fence, first_request=request
        )

    def _check_no_fence(self, text: str) -> None:
        """BrokenEditError for a block of code with something around it; only of an old text does one see what is."""
        if text.lstrip().startswith(CODE_FENCE) and self.path.suffix not in MARKDOWN_SUFFIXES:
            raise BrokenEditError(f"{self.display_name}: the answer is a block of code within other text")

    def check_unchanged(self, source: Source) -> None:
        """Somebody may have typed while the model wrote, or while a question stood there. FileChangedError then."""
        if (self.is_new and os.path.lexists(self.path)) or self.read().raw != source.raw:
            raise FileChangedError(f"{self.display_name} was changed meanwhile; nothing is written, ask again")

    def write(self, source: Source, new: bytes) -> str:
        """Put it on the disk. Returns how it can be taken back."""
        old = None if self.is_new else source.raw
        kept = apply_edit(user_undo_store(), self.intent.instruction, [Replacement(self.path, old, new)])
        return f"`specchat undo {kept.number}` takes it back"
