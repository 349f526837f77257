"""The files of a project as tools see them: a path is inside after links are resolved, and only regular files are read.

A model may be told by a file to read `/etc/passwd`, a device that never ends, or a pipe without a writer. So a path
is resolved first, and `regular_file.py` reads it.

An editor may have a text that is not saved yet (`Buffers`). Tools read that one, and never write past it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.atomic_write import Replacement, read_content
from specchat.edit.source_text import Source, make_source, refuse_notebook
from specchat.edit.undo_store import apply_edit, record_edit, user_undo_store
from specchat.errors import FileChangedError, InputError
from specchat.regular_file import read_regular_file

UNSAVED = "the editor has {} that the user has not saved; nothing is changed before the user saves or drops it"


class Buffers(Protocol):
    """The texts that an editor has, saved or not."""

    @property
    def can_write(self) -> bool:
        """Whether the editor writes files itself."""
        ...

    def read(self, path: Path) -> str | None:
        """The text of a file; None when the editor does not say it."""
        ...

    def write(self, path: Path, text: str) -> None:
        """Let the editor write a file. After a SpecchatError it must not be written in another way."""
        ...


@dataclass(frozen=True)
class ProjectFiles:
    """The folders that tools work in. Every name that a model writes goes through `path_of`."""

    workspace: WorkspaceRoots
    buffers: Buffers | None = None  # None without an editor that gives its texts

    @property
    def root(self) -> Path:
        return self.workspace.main_root

    def path_of(self, name: str) -> Path:
        """The path with links resolved; InputError when it lies outside."""
        if "\0" in name or not name.strip():
            raise InputError(f"{name!r} is no path")
        path = self.workspace.path_of(name)
        if not self.workspace.contains(path):
            raise InputError(f"{name}: is outside the project folder {self.root}")
        return path.resolve()

    def writable_path_of(self, name: str) -> Path:
        """The path of a file that may be written or created; InputError when it must not."""
        path = self.path_of(name)
        self.workspace.check_writable(path)
        if not path.parent.is_dir():
            raise InputError(f"{name}: there is no folder {self.name_of(path.parent)}; 'run' can make it")
        if path.exists() and not path.is_file():
            raise InputError(f"{name}: not a regular file")
        return path

    def name_of(self, path: Path) -> str:
        """The name of a path for the model and the screen."""
        for root in (self.root, self.root.resolve()):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        return str(path)

    def read(self, path: Path) -> Source:
        """A text inside the project, which `path_of` returned; InputError when it is missing, too large or no text."""
        buffer = self._buffer_of(path)
        if buffer is not None and (buffer or path.exists()):  # some editors have an empty text for a missing file
            return make_source(buffer.encode(), self.name_of(path))
        return make_source(self.read_bytes(path), self.name_of(path))

    @property
    def are_written_by_editor(self) -> bool:
        return self.buffers is not None and self.buffers.can_write

    def read_to_change(self, path: Path) -> Source:
        """The text that a change will replace. InputError where text that is not saved would be lost."""
        name, buffer = self.name_of(path), self._buffer_of(path)
        if not path.exists():
            if buffer:
                raise InputError(f"{name}: {UNSAVED.format('a text of this name')}")
            return make_source(b"", name)
        refuse_notebook(name)
        on_disk = make_source(self.read_bytes(path), name)
        if self.are_written_by_editor:
            if buffer is None:
                raise InputError(f"{name}: the editor does not say its text, so the file is not changed")
            return make_source(buffer.encode(), name)
        if buffer is not None and make_source(buffer.encode(), name).text != on_disk.text:
            raise InputError(f"{name}: {UNSAVED.format('changes')}")
        return on_disk

    def check_unchanged(self, path: Path, source: Source, *, is_new: bool) -> None:
        """FileChangedError when a file, or its text in the editor, is no longer what was read."""
        if (is_new and os.path.lexists(path)) or self.read_to_change(path.resolve()).raw != source.raw:
            raise FileChangedError(f"{source.name}: was changed meanwhile; nothing is written, read it again")

    def write(self, path: Path, source: Source, new: str, instruction: str, *, is_new: bool) -> int:
        """Write a new text, by the editor if it does that. The number that undoes it; 0 while the editor does not save.

        Undo restores the text that the editor had, saved or not.
        """
        self.workspace.check_writable(path)  # a folder may have become a link since
        old, raw = None if is_new else source.raw, source.encode(new)
        if self.buffers is None or not self.are_written_by_editor:
            return apply_edit(user_undo_store(), instruction, [Replacement(path, old, raw)]).number
        saved = read_content(path)
        self.buffers.write(self._editor_path(path), raw.decode(source.codec))
        now = read_content(path)
        return 0 if now == saved else record_edit(user_undo_store(), instruction, [Replacement(path, old, now)]).number

    def _buffer_of(self, path: Path) -> str | None:
        return self.buffers.read(self._editor_path(path)) if self.buffers else None

    def _editor_path(self, path: Path) -> Path:
        """The path below the folder as the editor named it, which may be a link."""
        return self.root / self.name_of(path)

    def read_bytes(self, path: Path, max_bytes: int = MAX_ATTACHED_BYTES) -> bytes:
        """The bytes of a regular file; InputError for anything else."""
        return read_regular_file(path, max_bytes, self.name_of(path))


def subject_path(files: ProjectFiles, name: str) -> str:
    """The file that is meant, with links and `..` resolved; a path outside as it was written, which no tool takes."""
    try:
        return files.name_of(files.path_of(name))
    except InputError:
        return name
