"""From the content blocks of a prompt to a question: its text, attachments, and linked files.

Reads buffers through a callback; knows no model and no connection.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from acp.schema import EmbeddedResourceContentBlock, ResourceContentBlock, TextContentBlock, TextResourceContents

from specchat.app.question import Question
from specchat.chat.attachments import display_name, read_attachment
from specchat.chat.request import AnswerFormat, Attachment
from specchat.context.at_names import FileAccess
from specchat.context.workspace_roots import WorkspaceRoots, path_of_uri
from specchat.errors import InputError, SpecchatError, UsageError

META_KEY = "specchat"  # our key in `_meta` of a text block

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


def editor_files(workspace: WorkspaceRoots, read_buffer: ReadBuffer) -> FileAccess:
    """The files of a session: those in its folders, with the texts that the editor has of them."""

    @cache
    def read(path: Path) -> Attachment:
        if not os.path.exists(path):  # noqa: PTH110 (some editors return an empty text for a missing file)
            raise InputError(f"{path}: there is no such file")
        buffer = read_buffer(path)
        file = read_attachment(path) if buffer is None else Attachment("", buffer)
        return replace(file, name=display_name(Path(workspace.display_name(path))))

    return FileAccess(workspace.main_root, read, workspace.contains)


def make_question(prompt: Prompt, files: Sequence[Attachment], access: FileAccess) -> tuple[Question, list[str]]:
    """The question with these texts, and notices about links that cannot be read."""
    names, notices = list[str](), list(prompt.notices)
    for path in prompt.linked_paths:
        try:
            access.read(path)
            names.append(str(path))
        except SpecchatError as error:
            notices.append(f"{error}; it is not attached")
    texts = (*files, *prompt.attachments)
    return Question(prompt.text, tuple(names), texts, answer_format=prompt.structure), notices
