"""What lines of a text do, in words: asked as any question is, and put where an editor can show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished, Text
from specchat.chat.request import Attachment, Request
from specchat.edit.scope import Region
from specchat.editors.lsp.documents import Document
from specchat.errors import CancelledError, failure
from specchat.host.client import Conversation, Wish
from specchat.host.spawn import runtime_folder

PROFILE = "chat"
QUESTION = "Explain what this code does."
NAME = "explained.md"  # one file, which the next explanation takes over


def explained(document: Document, region: Region, cancelled: Flag, hear: Callable[[Event], None]) -> str:
    """The explanation. SpecchatError says why there is none. Blocks while it is written."""
    request = Request(QUESTION, (Attachment(document.name, f"{document.lines(region)}\n"),))
    said = list[str]()
    with Conversation(Wish(profile=PROFILE, kind="explain"), "lsp") as conversation:
        for event in conversation.ask(request, cancelled):
            hear(event)
            match event:
                case Text(text=text):
                    said.append(text)
                case Failed(message=message, exit_code=code):
                    raise failure(message, code)
                case Finished(reason="cancelled"):
                    raise CancelledError("stopped")
                case _:
                    pass
    return "".join(said)


def page(document: Document, region: Region, text: str) -> Path:
    """The explanation as a file; editors show files best."""
    path = runtime_folder() / NAME
    title = f"# {document.name}, lines {region.first} to {region.last}"
    path.write_text(f"{title}\n\n{text.strip()}\n", encoding="utf-8")
    return path
