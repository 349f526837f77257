"""Explains lines of a document: a normal question, and its answer as a Markdown page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished, TextDelta
from specchat.chat.request import Attachment, Request
from specchat.edit.edit_regions import Region
from specchat.editors.lsp.text_documents import Document
from specchat.errors import CancelledError, error_with_exit_code
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import runtime_folder

PROFILE = "chat"
QUESTION = "Explain what this code does."
PAGE_NAME = "explained.md"  # the next explanation replaces it


def explain_region(document: Document, region: Region, cancelled: Flag, on_event: Callable[[Event], None]) -> str:
    """The explanation. SpecchatError says why there is none. Blocks until it is complete."""
    request = Request(QUESTION, (Attachment(document.name, f"{document.region_text(region)}\n"),))
    parts = list[str]()
    with Conversation(SessionRequest(profile=PROFILE, kind="explain"), "lsp") as conversation:
        for event in conversation.ask(request, cancelled):
            on_event(event)
            match event:
                case TextDelta(text=text):
                    parts.append(text)
                case Failed(message=message, exit_code=code):
                    raise error_with_exit_code(message, code)
                case Finished(finish_reason="cancelled"):
                    raise CancelledError("stopped")
                case _:
                    pass
    return "".join(parts)


def write_page(document: Document, region: Region, text: str) -> Path:
    path = runtime_folder() / PAGE_NAME
    title = f"# {document.name}, lines {region.first} to {region.last}"
    path.write_text(f"{title}\n\n{text.strip()}\n", encoding="utf-8")
    return path
