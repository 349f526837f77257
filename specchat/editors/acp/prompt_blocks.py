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

from specchat.chat.answer_format import Structure
from specchat.chat.attachments import decode_text, shown_name
from specchat.chat.request import Attachment
from specchat.chat.retrieve import Room, gather
from specchat.editors.acp.workspace_roots import Places, path_of_uri
from specchat.errors import InputError, SpecchatError, UsageError

OURS = "specchat"  # what stands under this name in the `_meta` of a text is for us
MOST_LINKED_BYTES = 256 * 2**10

ReadBuffer = Callable[[Path], str | None]


@dataclass(frozen=True)
class Prompt:
    """What somebody typed, with the files that it points to by path, and what could not come along, in words."""

    text: str = ""
    attached: tuple[Attachment, ...] = ()
    linked: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    structure: Structure | None = None  # what form the answer must have


@dataclass
class Reading:
    """Blocks, one after the other."""

    places: Places
    text: str = ""
    attached: list[Attachment] = field(default_factory=list[Attachment])
    linked: list[Path] = field(default_factory=list[Path])
    notes: list[str] = field(default_factory=list[str])
    structure: Structure | None = None

    def take(self, block: Any) -> None:
        """One block; UsageError for what was never offered to be understood."""
        match block:
            case TextContentBlock(text=text, field_meta=meta):
                self.text += text
                wanted = (meta or {}).get(OURS)
                if isinstance(wanted, dict):
                    self.structure = Structure.among(wanted) or self.structure
            case ResourceContentBlock(uri=uri, name=name):
                self._take_link(uri, name)
            case EmbeddedResourceContentBlock(resource=resource):
                self._take_resource(resource)
            case _:
                raise UsageError(f"only text and files can be read, no {block.type}")

    def _take_link(self, uri: str, name: str) -> None:
        path = path_of_uri(uri)
        shown = self.places.shown(path) if path else name or uri
        gap = " " if self.text and not self.text[-1].isspace() else ""
        self.text += f"{gap}`{shown_name(Path(shown))}`"
        if path is None or not path.is_absolute():
            self.notes.append(f"{uri} was not read: it is no file")
        elif not self.places.holds(path):
            self.notes.append(f"{path} was not read: it lies outside the folders of this session")
        elif os.path.isdir(path):  # noqa: PTH112 (a name that is too long is no error)
            self.notes.append(f"{path} was not read: it is a folder; name the files that matter")
        else:
            self.linked.append(path)

    def _take_resource(self, resource: Any) -> None:
        path = path_of_uri(resource.uri)
        name = shown_name(Path(self.places.shown(path))) if path else resource.uri
        if isinstance(resource, TextResourceContents):
            self.attached.append(Attachment(name, resource.text))
        else:
            self.notes.append(f"{name} was not read: it is no text")


def read_blocks(blocks: Sequence[Any], places: Places) -> Prompt:
    """All blocks; no file is opened."""
    reading = Reading(places)
    for block in blocks:
        reading.take(block)
    return Prompt(
        reading.text.strip(),
        tuple(reading.attached),
        tuple(reading.linked),
        tuple(reading.notes),
        reading.structure,
    )


def with_files(prompt: Prompt, places: Places, window: int, read: ReadBuffer) -> Prompt:
    """The same with the texts of the linked files: whole, or the passages that matter where there is no room."""
    room = Room.of_window(window)
    texts, notes = list[Attachment](), list(prompt.notes)
    for path in prompt.linked:
        try:
            texts.append(Attachment(shown_name(Path(places.shown(path))), file_text(path, read)))
        except SpecchatError as error:
            notes.append(f"{error}; it was left out")
    if sum(len(each.text) for each in (*prompt.attached, *texts)) > room.whole and texts:
        found = gather([str(path) for path in prompt.linked], prompt.text, room)
        texts = list(found.files)
        notes += filter(None, [found.notice, f"from {', '.join(found.sources)}" if found.sources else ""])
    return replace(prompt, attached=(*prompt.attached, *texts), notes=tuple(notes))


def file_text(path: Path, read: ReadBuffer) -> str:
    """The text of a file as the editor has it, or as the disk has it; InputError when there is none."""
    if not os.path.exists(path):  # noqa: PTH110 (asked first: some editors read a missing file as an empty one)
        raise InputError(f"{path}: there is no such file")
    buffer = read(path)
    raw = buffer.encode() if buffer is not None else _bytes(path)
    if len(raw) > MOST_LINKED_BYTES:
        raise InputError(f"{path}: more than {MOST_LINKED_BYTES // 2**10} KiB; attach the part that matters")
    return buffer if buffer is not None else decode_text(raw, str(path))


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_LINKED_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
