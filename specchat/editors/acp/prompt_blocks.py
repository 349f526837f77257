"""From the blocks of a prompt to a question: what was said, the texts that come along, and the files it points to.

Knows how to read a file by a function that is given to it, and neither a model nor a connection.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acp.schema import EmbeddedResourceContentBlock, ResourceContentBlock, TextContentBlock, TextResourceContents

from specchat.chat.answer_format import AnswerFormat
from specchat.chat.attachments import decode_text, display_name
from specchat.chat.request import Attachment
from specchat.chat.retrieve import ContextBudget, gather_context
from specchat.edit.workspace_roots import WorkspaceRoots, path_of_uri
from specchat.errors import InputError, SpecchatError, UsageError

META_KEY = "specchat"  # what stands under this name in the `_meta` of a text is for us
MAX_LINKED_FILE_BYTES = 256 * 2**10

ReadBuffer = Callable[[Path], str | None]


@dataclass(frozen=True)
class Prompt:
    """What somebody typed, with the files that it points to by path, and what could not come along, in words."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    linked_paths: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()
    structure: AnswerFormat | None = None  # what form the answer must have


@dataclass
class PromptBuilder:
    """Blocks, one after the other."""

    workspace: WorkspaceRoots
    text: str = ""
    attachments: list[Attachment] = field(default_factory=list[Attachment])
    linked_paths: list[Path] = field(default_factory=list[Path])
    notices: list[str] = field(default_factory=list[str])
    structure: AnswerFormat | None = None

    def add_block(self, block: Any) -> None:
        """One block; UsageError for what was never offered to be understood."""
        match block:
            case TextContentBlock(text=text, field_meta=meta):
                self.text += text
                wanted = (meta or {}).get(META_KEY)
                if isinstance(wanted, dict):
                    self.structure = AnswerFormat.from_options(wanted) or self.structure
            case ResourceContentBlock(uri=uri, name=name):
                self._add_link(uri, name)
            case EmbeddedResourceContentBlock(resource=resource):
                self._add_resource(resource)
            case _:
                raise UsageError(f"only text and files can be read, no {block.type}")

    def _add_link(self, uri: str, name: str) -> None:
        path = path_of_uri(uri)
        shown = self.workspace.display_name(path) if path else name or uri
        gap = " " if self.text and not self.text[-1].isspace() else ""
        self.text += f"{gap}`{display_name(Path(shown))}`"
        if path is None or not path.is_absolute():
            self.notices.append(f"{uri} was not read: it is no file")
        elif not self.workspace.contains(path):
            self.notices.append(f"{path} was not read: it lies outside the folders of this session")
        elif os.path.isdir(path):  # noqa: PTH112 (a name that is too long is no error)
            self.notices.append(f"{path} was not read: it is a folder; name the files that matter")
        else:
            self.linked_paths.append(path)

    def _add_resource(self, resource: Any) -> None:
        path = path_of_uri(resource.uri)
        name = display_name(Path(self.workspace.display_name(path))) if path else resource.uri
        if isinstance(resource, TextResourceContents):
            self.attachments.append(Attachment(name, resource.text))
        else:
            self.notices.append(f"{name} was not read: it is no text")


def parse_blocks(blocks: Sequence[Any], workspace: WorkspaceRoots) -> Prompt:
    """All blocks; no file is opened."""
    reading = PromptBuilder(workspace)
    for block in blocks:
        reading.add_block(block)
    return Prompt(
        reading.text.strip(),
        tuple(reading.attachments),
        tuple(reading.linked_paths),
        tuple(reading.notices),
        reading.structure,
    )


def attach_linked_files(
    prompt: Prompt, workspace: WorkspaceRoots, window_tokens: int, read_buffer: ReadBuffer
) -> Prompt:
    """The same with the texts of the linked files: whole, or the passages that matter where there is no room."""
    room = ContextBudget.of_window(window_tokens)
    texts, notes = list[Attachment](), list(prompt.notices)
    for path in prompt.linked_paths:
        try:
            texts.append(
                Attachment(display_name(Path(workspace.display_name(path))), read_file_text(path, read_buffer))
            )
        except SpecchatError as error:
            notes.append(f"{error}; it was left out")
    if sum(len(each.text) for each in (*prompt.attachments, *texts)) > room.total_characters and texts:
        found = gather_context([str(path) for path in prompt.linked_paths], prompt.text, room)
        texts = list(found.files)
        notes += filter(None, [found.notice, f"from {', '.join(found.sources)}" if found.sources else ""])
    return replace(prompt, attached=(*prompt.attachments, *texts), notes=tuple(notes))


def read_file_text(path: Path, read_buffer: ReadBuffer) -> str:
    """The text of a file as the editor has it, or as the disk has it; InputError when there is none."""
    if not os.path.exists(path):  # noqa: PTH110 (asked first: some editors read a missing file as an empty one)
        raise InputError(f"{path}: there is no such file")
    buffer = read_buffer(path)
    raw = buffer.encode() if buffer is not None else _read_bytes(path)
    if len(raw) > MAX_LINKED_FILE_BYTES:
        raise InputError(f"{path}: more than {MAX_LINKED_FILE_BYTES // 2**10} KiB; attach the part that matters")
    return buffer if buffer is not None else decode_text(raw, str(path))


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_LINKED_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
