"""Where the text of an edit comes from and goes: a file on disk, a text without a file, a file of a workspace.

Knows no protocol and no SDK.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from specchat.app.edit_task import EditJob
from specchat.app.project_files import ProjectFiles
from specchat.chat.request import Request
from specchat.edit.atomic_write import check_writable
from specchat.edit.source_text import Source, read_source, refuse_notebook
from specchat.errors import BrokenEditError, InputError

CODE_FENCE, MARKDOWN_SUFFIXES = "```", (".md", ".markdown")


class EditedFile(Protocol):
    """Where the text of an edit comes from, and where it goes."""

    @property
    def path(self) -> Path: ...

    @property
    def is_new(self) -> bool: ...

    def read(self) -> Source: ...

    def check_writable(self) -> None:
        """SpecchatError when this process has to write the file and cannot."""

    def job(self, job: EditJob) -> EditJob:
        """The job for the model, as this file needs it."""
        ...


@dataclass(frozen=True)
class DiskFile:
    """A file that the user named."""

    path: Path
    is_new: bool = False

    def read(self) -> Source:
        return read_source(self.path)

    def check_writable(self) -> None:
        check_writable(self.path)

    def job(self, job: EditJob) -> EditJob:
        return job


@dataclass(frozen=True)
class HeldText:
    """A text that the caller has and takes back: of a pipe, or of a document in an editor."""

    source: Source
    is_new: bool = False

    @property
    def path(self) -> Path:
        return Path(self.source.name)

    def read(self) -> Source:
        refuse_notebook(self.source.name)
        return self.source

    def check_writable(self) -> None:
        """The caller writes it."""

    def job(self, job: EditJob) -> EditJob:
        return job


@dataclass
class WorkspaceFile:
    """One file of a workspace, which may not exist yet, and which an editor may have open."""

    path: Path
    files: ProjectFiles
    is_new: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_new = not os.path.lexists(self.path)

    @property
    def name(self) -> str:
        return self.files.name_of(self.path)

    @property
    def title(self) -> str:
        return f"{'Create' if self.is_new else 'Edit'} {self.name}"

    def read(self) -> Source:
        """The current content, empty for a new file. InputError for a file that cannot be edited."""
        return self.files.read_to_change(self.files.writable_path_of(self.name))

    def check_writable(self) -> None:
        if not self.is_new and not self.files.are_written_by_editor:
            check_writable(self.path)

    def job(self, job: EditJob) -> EditJob:
        """For a new file the prompt holds the name and the instruction only."""
        if not self.is_new:
            return job
        if job.region:
            raise InputError(f"{self.name}: there is no such file, so it has no lines")
        text = f"{job.instruction}\n\nWrite the whole text of the new file {self.name} and nothing else."
        request = Request(text, task="edit")
        return EditJob(
            job.source, job.instruction, job.window_tokens, check=self._check_no_fence, first_request=request
        )

    def _check_no_fence(self, text: str) -> None:
        """BrokenEditError for a fenced block with text around it. With an original text, `answer_check` does this."""
        if text.lstrip().startswith(CODE_FENCE) and self.path.suffix not in MARKDOWN_SUFFIXES:
            raise BrokenEditError(f"{self.name}: the answer is a code block within other text")
