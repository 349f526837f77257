"""From the content blocks of a prompt to a question: its text, attachments, and linked files.

Reads buffers through a callback; knows no model and no connection.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acp.schema import EmbeddedResourceContentBlock, ResourceContentBlock, TextContentBlock, TextResourceContents

from specchat.chat.attachments import decode_text, display_name
from specchat.chat.request import AnswerFormat, Attachment
from specchat.context.retrieve import ContextBudget, gather_context
from specchat.context.workspace_roots import WorkspaceRoots, path_of_uri
from specchat.errors import InputError, SpecchatError, UsageError

META_KEY = "specchat"  # our key in `_meta` of a text block
MAX_LINKED_FILE_BYTES = 256 * 2**10

ReadBuffer = Callable[[Path], str | None]


@dataclass
class Prompt:
    """The typed text, its attachments, linked files, and notices about what was not read."""

    workspace: WorkspaceRoots
    text: str = ""
    attachments: list[Attachment] = field(default_factory=list[Attachment])
    linked_paths: list[Path] = field(default_factory=list[Path])
    notices: list[str] = field(default_factory=list[str])
    structure: AnswerFormat | None = None

    def add_block(self, block: Any) -> None:
        """Add one block; UsageError for a type that the agent does not advertise."""
        match block:
            case TextContentBlock(text=text, field_meta=meta):
                self.text += text
                options = (meta or {}).get(META_KEY)
                if isinstance(options, dict):
                    self.structure = AnswerFormat.from_options(options) or self.structure
            case ResourceContentBlock(uri=uri, name=name):
                self._add_link(uri, name)
            case EmbeddedResourceContentBlock(resource=resource):
                self._add_resource(resource)
            case _:
                raise UsageError(f"only text and files can be read, not {block.type}")

    def _add_link(self, uri: str, name: str) -> None:
        path = path_of_uri(uri)
        label = self.workspace.display_name(path) if path else name or uri
        space = " " if self.text and not self.text[-1].isspace() else ""
        self.text += f"{space}`{display_name(Path(label))}`"
        if path is None or not path.is_absolute():
            self.notices.append(f"{uri} was not read: it is not a file")
        elif not self.workspace.contains(path):
            self.notices.append(f"{path} was not read: it is outside the folders of this session")
        elif os.path.isdir(path):  # noqa: PTH112 (a name that is too long raises no error)
            self.notices.append(f"{path} was not read: it is a folder; link single files")
        else:
            self.linked_paths.append(path)

    def _add_resource(self, resource: Any) -> None:
        path = path_of_uri(resource.uri)
        name = display_name(Path(self.workspace.display_name(path))) if path else resource.uri
        if isinstance(resource, TextResourceContents):
            self.attachments.append(Attachment(name, resource.text))
        else:
            self.notices.append(f"{name} was not read: it is not text")


def parse_blocks(blocks: Sequence[Any], workspace: WorkspaceRoots) -> Prompt:
    """Parse all blocks without opening a file. Without links, the existing files that the text names are linked."""
    prompt = Prompt(workspace)
    for block in blocks:
        prompt.add_block(block)
    if not prompt.linked_paths and not prompt.attachments:
        prompt.linked_paths += workspace.files_named_in(prompt.text)
    return replace(prompt, text=prompt.text.strip())


def attach_linked_files(prompt: Prompt, window_tokens: int, read_buffer: ReadBuffer) -> Prompt:
    """Attach the linked files: complete, or the relevant passages if they do not fit the window."""
    budget = ContextBudget.of_window(window_tokens)
    files, notices = list[Attachment](), list(prompt.notices)
    for path in prompt.linked_paths:
        try:
            text = read_file_text(path, read_buffer)
            files.append(Attachment(display_name(Path(prompt.workspace.display_name(path))), text))
        except SpecchatError as error:
            notices.append(f"{error}; it is not attached")
    if files and sum(len(each.text) for each in (*prompt.attachments, *files)) > budget.total_characters:
        context = gather_context([str(path) for path in prompt.linked_paths], prompt.text, budget)
        files = list(context.files)
        notices += filter(None, [context.notice, f"from {', '.join(context.sources)}" if context.sources else ""])
    return replace(prompt, attachments=[*prompt.attachments, *files], notices=notices)


def read_file_text(path: Path, read_buffer: ReadBuffer) -> str:
    """The text of a file from the editor's buffer or from disk; InputError when there is none."""
    if not os.path.exists(path):  # noqa: PTH110 (some editors return an empty text for a missing file)
        raise InputError(f"{path}: there is no such file")
    buffer = read_buffer(path)
    raw = buffer.encode() if buffer is not None else _read_bytes(path)
    if len(raw) > MAX_LINKED_FILE_BYTES:
        raise InputError(f"{path}: more than {MAX_LINKED_FILE_BYTES // 2**10} KiB; attach the relevant part")
    return buffer if buffer is not None else decode_text(raw, str(path))


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_LINKED_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
