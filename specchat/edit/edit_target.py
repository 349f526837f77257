"""The file of an edit: reads it, describes the job for the model, and writes the new text.

Used by editors and by scripts (`specchat script --edit`); knows no protocol and no SDK.
"""

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
from specchat.edit.undo_store import apply_edit, user_undo_store
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import BrokenEditError, FileChangedError, InputError

CODE_FENCE, MARKDOWN_SUFFIXES = "```", (".md", ".markdown")


@dataclass
class EditTarget:
    """One file, which may not exist yet. `read_buffer` returns its text in the editor, saved or not."""

    intent: EditIntent
    workspace: WorkspaceRoots
    read_buffer: Callable[[Path], str | None] = lambda _path: None
    path: Path = field(init=False)
    display_name: str = field(init=False)
    is_new: bool = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.intent.path
        self.display_name = self.workspace.display_name(self.path)
        self.is_new = not os.path.lexists(self.path)

    @property
    def title(self) -> str:
        return f"{'Create' if self.is_new else 'Edit'} {self.display_name}"

    @property
    def declined_message(self) -> str:
        return f"{self.display_name} was {'not created' if self.is_new else 'left as it was'}"

    def written_message(self, change_count: int, result: EditResult, hint: str) -> str:
        count = "created" if self.is_new else f"{change_count} change{'' if change_count == 1 else 's'} written"
        return f"{self.display_name}: {'; '.join(filter(None, [count, result.warnings.summary, hint]))}."

    def read(self) -> Source:
        """The current content, empty for a new file. InputError for a file that cannot be edited."""
        self.workspace.check_writable(self.path)
        if self.is_new and not os.path.lexists(self.path):  # some editors return an empty text for a missing file
            if not self.path.parent.is_dir():
                folder = self.workspace.display_name(self.path.parent)
                raise InputError(f"{self.display_name}: there is no folder {folder}")
            return Source(self.display_name, b"", "", "\n", "utf-8")
        source = read_source(self.path)  # a missing or binary file is an error in an editor, too
        buffer = self.read_buffer(self.path)
        if buffer is None:
            return Source(self.display_name, source.raw, source.text, source.newline, source.codec)
        if "\0" in buffer:
            raise InputError(f"{self.display_name}: a binary file")
        return make_source(buffer.encode(), self.display_name)

    def check_writable(self) -> None:
        """SpecchatError when this process cannot write the file."""
        if not self.is_new:
            check_writable(self.path)

    def make_job(self, source: Source, window_tokens: int) -> EditJob:
        """The job for the model. For a new file the prompt holds the name and the instruction only."""
        if not self.is_new:
            lines = parse_line_range(self.intent.line_range) if self.intent.line_range else None
            return EditJob(source, self.intent.instruction, window_tokens, lines)
        if self.intent.line_range:
            raise InputError(f"{self.display_name}: there is no such file, so it has no lines")
        instruction = self.intent.instruction
        text = f"{instruction}\n\nWrite the whole text of the new file {self.display_name} and nothing else."
        request = Request(text, task="edit")
        return EditJob(source, instruction, window_tokens, check=self._check_no_fence, first_request=request)

    def _check_no_fence(self, text: str) -> None:
        """BrokenEditError for a fenced block with text around it. With an original text, `answer_check` does this."""
        if text.lstrip().startswith(CODE_FENCE) and self.path.suffix not in MARKDOWN_SUFFIXES:
            raise BrokenEditError(f"{self.display_name}: the answer is a code block within other text")

    def check_unchanged(self, source: Source) -> None:
        """FileChangedError when the file or its buffer changed since it was read."""
        if (self.is_new and os.path.lexists(self.path)) or self.read().raw != source.raw:
            raise FileChangedError(f"{self.display_name} was changed meanwhile; nothing is written, try again")

    def write(self, source: Source, new: bytes) -> str:
        """Write the file. Returns a hint how to undo it."""
        old = None if self.is_new else source.raw
        edit = apply_edit(user_undo_store(), self.intent.instruction, [Replacement(self.path, old, new)])
        return f"`specchat undo {edit.number}` undoes it"
