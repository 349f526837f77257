"""Where the text of an edit comes from and goes: a file on disk, a buffer of an editor, a text without a file.

Knows no protocol and no SDK.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from specchat.chat.request import Request
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.atomic_write import check_writable
from specchat.edit.edit_plan import Region
from specchat.edit.edit_task import EditJob
from specchat.edit.source_text import Source, make_source, read_source
from specchat.errors import BrokenEditError, FileChangedError, InputError

CODE_FENCE, MARKDOWN_SUFFIXES = "```", (".md", ".markdown")


@dataclass(frozen=True)
class DiskFile:
    """A file that the user named."""

    path: Path
    is_new: bool = False

    def read(self) -> Source:
        return read_source(self.path)

    def check_writable(self) -> None:
        check_writable(self.path)

    def make_job(self, source: Source, instruction: str, window_tokens: int, region: Region | None) -> EditJob:
        return EditJob(source, instruction, window_tokens, region)


@dataclass(frozen=True)
class HeldText:
    """A text that the caller has and takes back: of a pipe, or of a document in an editor."""

    source: Source
    is_new: bool = False

    @property
    def path(self) -> Path:
        return Path(self.source.name)

    def read(self) -> Source:
        return self.source

    def check_writable(self) -> None:
        """The caller writes it."""

    def make_job(self, source: Source, instruction: str, window_tokens: int, region: Region | None) -> EditJob:
        return EditJob(source, instruction, window_tokens, region)


@dataclass
class EditTarget:
    """One file of a workspace, which may not exist yet. `read_buffer` returns its text in the editor, saved or not."""

    path: Path
    workspace: WorkspaceRoots
    read_buffer: Callable[[Path], str | None] = lambda _path: None
    is_written_by_editor: bool = False
    display_name: str = field(init=False)
    is_new: bool = field(init=False)

    def __post_init__(self) -> None:
        self.display_name = self.workspace.display_name(self.path)
        self.is_new = not os.path.lexists(self.path)

    @property
    def title(self) -> str:
        return f"{'Create' if self.is_new else 'Edit'} {self.display_name}"

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
        """SpecchatError when this process has to write the file and cannot."""
        if not self.is_new and not self.is_written_by_editor:
            check_writable(self.path)

    def make_job(self, source: Source, instruction: str, window_tokens: int, region: Region | None) -> EditJob:
        """The job for the model. For a new file the prompt holds the name and the instruction only."""
        if not self.is_new:
            return EditJob(source, instruction, window_tokens, region)
        if region:
            raise InputError(f"{self.display_name}: there is no such file, so it has no lines")
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
