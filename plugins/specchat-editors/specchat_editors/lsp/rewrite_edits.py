"""What the model does for a code action: a rewrite as text edits, or an explanation as a Markdown page.

A rewrite is generated and checked as in `specchat edit`, then split into changed lines.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag

from lsprotocol import types

from specchat.app.consent import EditConsent
from specchat.app.edit import rewrite_text
from specchat.app.edit_events import EditOrder
from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edited_files import HeldText
from specchat.chat.events import Event, Failed, Finished, TextDelta
from specchat.chat.request import Attachment, Request
from specchat.edit.edit_plan import Region
from specchat.edit.hunks import diff_lines, split_lines
from specchat.edit.source_text import Source, make_source
from specchat.errors import CancelledError, InputError, error_with_exit_code
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import runtime_folder
from specchat.profile.settings import Settings
from specchat_editors.lsp.code_actions import EditRequest
from specchat_editors.lsp.text_documents import Document

MakeSettings = Callable[[], Settings]
NEXT_STEPS = "next: fewer lines, or another profile (editProfile in the settings)"
QUESTION = "Explain what this code does."
PAGE_NAME = "explained.md"  # the next explanation replaces it


def document_source(document: Document) -> Source:
    try:
        return make_source(document.text.encode(), document.name)
    except UnicodeEncodeError:
        raise InputError(f"{document.name}: holds a lone surrogate; save and reopen it") from None


def compute_rewrite(
    document: Document,
    request: EditRequest,
    settings: MakeSettings,
    cancelled: Flag,
    on_event: Callable[[object], None],
) -> list[types.TextEdit]:
    """The text edits for an instruction. SpecchatError says why there are none. Blocks until the text is complete."""
    source = document_source(document)
    order = EditOrder(request.instruction, (HeldText(source),), request.region, writes=False, next_steps=NEXT_STEPS)
    consent = EditConsent(can_ask=False, way_out="nothing is edited")  # the editor applies it without a question
    with EditSession(edit_request(SessionRequest(settings=settings())), cancelled, "lsp") as session:
        return text_edits(document, source, rewrite_text(order, session, consent, on_event).text)


def text_edits(document: Document, source: Source, text: str) -> list[types.TextEdit]:
    """The changed lines. A text with single "\\r" is replaced as a whole: editors count its lines differently."""
    if "\r" in source.text:
        return [types.TextEdit(_line_range(document, 0, len(document.line_starts)), text.replace("\n", source.newline))]
    changes = diff_lines(split_lines(source.text), split_lines(text))
    return [
        types.TextEdit(_line_range(document, each.first, each.end), "".join(each.new).replace("\n", source.newline))
        for each in changes
    ]


def workspace_edit(document: Document, edits: list[types.TextEdit], *, is_versioned: bool) -> types.WorkspaceEdit:
    """The edits of one document, bound to its version if the editor supports that."""
    if not is_versioned:
        return types.WorkspaceEdit(changes={document.uri: edits})
    identifier = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(identifier, edits)])


def _line_range(document: Document, first: int, end: int) -> types.Range:
    """Complete lines, from 0; the line after the last one is the end of the text."""
    offsets = (document.offset(types.Position(line, 0)) for line in (first, end))
    return types.Range(*(document.position(offset) for offset in offsets))


def explain_region(
    document: Document, region: Region, settings: MakeSettings, cancelled: Flag, on_event: Callable[[Event], None]
) -> str:
    """The explanation. SpecchatError says why there is none. Blocks until it is complete."""
    request = Request(QUESTION, (Attachment(document.name, f"{document.region_text(region)}\n"),))
    parts = list[str]()
    with Conversation(SessionRequest(settings=settings(), kind="explain"), "lsp") as conversation:
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
