"""The language server itself: which request goes where. Everything slow happens on other threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event as Flag
from typing import Any

from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from specchat import __version__
from specchat.chat.events import Event, Prefill, Text
from specchat.edit.rewrite_position import Alignment
from specchat.editors.lsp.code_actions import COMMAND, EXPLAIN, FIX, REWRITE, Wanted, offered, read_wanted
from specchat.editors.lsp.cursor_context import place_of
from specchat.editors.lsp.documents import Document, Documents
from specchat.editors.lsp.engine_connection import READY, Door
from specchat.editors.lsp.explain import explained, page
from specchat.editors.lsp.initialization_options import Settings, read_settings
from specchat.editors.lsp.inline_completion import Suggester, Suggestion
from specchat.editors.lsp.request_guard import GuardedProtocol
from specchat.editors.lsp.rewrite_edits import rewritten, workspace_edit
from specchat.editors.lsp.work_done_progress import Bar, begin
from specchat.errors import CancelledError, NoChangeError, SpecchatError
from specchat.host.client import Wish

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25  # between two looks whether the models are loaded
LOADING_SECONDS = 600.0
ANSWER_SECONDS = 10.0  # for an editor to apply an edit


class Server(LanguageServer):
    """pygls' server, which keeps its own trouble to the log."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Note it; the user of an editor can do nothing about it."""
        log.warning("%s: %s", getattr(source, "__name__", source), error)


class Serving:
    """One editor, served."""

    def __init__(self) -> None:
        self.server = Server("specchat", __version__, protocol_cls=GuardedProtocol, converter_factory=get_converter)
        assert isinstance(self.server.protocol, GuardedProtocol)
        self.protocol: GuardedProtocol = self.server.protocol
        self.settings, self.documents = Settings(), Documents()
        self.suggester: Suggester | None = None
        self.is_gone = Flag()  # set when the editor is: whatever is on its way has nobody to go to
        self._door: Door | None = None
        self._edits = ThreadPoolExecutor(1, "lsp-edit")
        self._watch: asyncio.Task[None] | None = None
        self._register()

    def leave(self) -> None:
        """Stop everything that is on its way."""
        self.is_gone.set()
        if self.suggester:
            self.suggester.end()

    def _register(self) -> None:
        self._serve(types.INITIALIZE, self.initialize)
        self._serve(types.INITIALIZED, self.initialized)
        self._serve(types.TEXT_DOCUMENT_DID_OPEN, self.did_open)
        self._serve(types.TEXT_DOCUMENT_DID_CHANGE, self.did_change)
        self._serve(types.TEXT_DOCUMENT_DID_CLOSE, self.did_close)
        self._serve(types.TEXT_DOCUMENT_INLINE_COMPLETION, self.inline_completion, types.InlineCompletionOptions())
        options = types.CodeActionOptions([REWRITE, FIX], resolve_provider=True)
        self._serve(types.TEXT_DOCUMENT_CODE_ACTION, self.code_actions, options)
        self._serve(types.CODE_ACTION_RESOLVE, self.resolve)
        self.server.command(COMMAND)(partial(self.edit))
        self.server.command(EXPLAIN)(partial(self.explain))

    def _serve(self, method: str, handler: Callable[..., Any], options: Any = None) -> None:
        """Have pygls call a method of ours; it wants to write on what it calls, which methods do not allow."""
        self.server.feature(method, options)(partial(handler))

    def initialize(self, params: types.InitializeParams) -> None:
        """Get to know the editor. Nothing is started and nobody is asked."""
        self.settings = read_settings(params.initialization_options)
        self.documents.encoding = str(getattr(encoding := self._encoding(), "value", encoding))
        self._door = Door(Wish(profile=self.settings.profile, kind="completion"))
        self.suggester = Suggester(self._door, self.settings)
        if self.settings.has_completion:
            self._serve(types.TEXT_DOCUMENT_COMPLETION, self.completion, types.CompletionOptions())

    def _encoding(self) -> Any:
        return self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16

    async def initialized(self, _params: types.InitializedParams) -> None:
        """The editor is ready: now the engine may be started, behind its back."""
        self._watch_models()

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """A text is shown."""
        self.documents.open(params.text_document)

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Somebody types, so what was suggested before is too late."""
        self.documents.change(params)
        if self.suggester:
            self.suggester.end()

    def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """A text is shown no longer."""
        self.documents.close(params.text_document.uri)

    async def inline_completion(self, params: types.InlineCompletionParams) -> types.InlineCompletionList:
        """Grey text at the cursor."""
        context = params.context
        is_asked = context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
        found = await self._suggested(params, context.selected_completion_info, is_asked=is_asked)
        if found is None:
            return types.InlineCompletionList([])
        texts = [found.whole, *([found.first_line] if is_asked and found.first_line else [])]
        return types.InlineCompletionList([types.InlineCompletionItem(text, range=found.range) for text in texts])

    async def completion(self, params: types.CompletionParams) -> types.CompletionList:
        """The same as an entry of a list."""
        kind = params.context.trigger_kind if params.context else types.CompletionTriggerKind.Invoked
        found = await self._suggested(params, None, is_asked=kind == types.CompletionTriggerKind.Invoked)
        if found is None:
            return types.CompletionList(is_incomplete=True, items=[])
        item = types.CompletionItem(
            found.whole.strip().partition("\n")[0], kind=types.CompletionItemKind.Text, detail="specchat",
            filter_text=found.place.typed or None, text_edit=types.TextEdit(found.range, found.whole),
        )  # fmt: skip
        return types.CompletionList(is_incomplete=True, items=[item])

    async def _suggested(
        self,
        params: types.InlineCompletionParams | types.CompletionParams,
        selected: types.SelectedCompletionInfo | None,
        *,
        is_asked: bool,
    ) -> Suggestion | None:
        document = self.documents.find(params.text_document.uri)
        if document is None or self.suggester is None:
            return None
        found = await self.suggester.suggest(place_of(document, params.position, selected), is_asked=is_asked)
        if self.suggester.is_waiting_for_models:
            self._watch_models()
        return found

    def _watch_models(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._show_loading())

    async def _show_loading(self) -> None:
        """One progress bar from the first look until the models are there, and none if they are there already."""
        assert self._door is not None
        bar: Bar | None = None
        for _ in range(int(LOADING_SECONDS / LOOK_SECONDS)):
            state = await self._door.state()
            if state != "loading":
                break
            bar = bar or await begin(self.server, "specchat: loading the model")
            await asyncio.sleep(LOOK_SECONDS)
        else:
            state = "still loading"
        if bar:
            bar.end("" if state == READY else state)

    def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """What can be done here; no model is asked before one is chosen."""
        document = self.documents.find(params.text_document.uri)
        if document is None:
            return []
        only = [str(getattr(each, "value", each)) for each in params.context.only or ()]
        return offered(
            document, params.range, only, self.settings, can_resolve=self._can_resolve, can_show=self._can_show
        )

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """The edit of an entry that was chosen; without one, a message says why."""
        edit = await self._rewritten(read_wanted(action.data))
        action.edit, action.data = edit, None
        return action

    async def edit(self, *arguments: Any) -> None:
        """The command: rewrite, and have the editor apply it."""
        edit = await self._rewritten(read_wanted(arguments[0] if arguments else None))
        if edit is None:
            return
        answer = self.server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label="specchat"))
        result = await _within(ANSWER_SECONDS, answer)
        if result is not None and not result.applied:
            self._say(types.MessageType.Warning, f"the edit was not applied: {result.failure_reason or 'no reason'}")

    async def explain(self, *arguments: Any) -> None:
        """The command: say in words what lines do, as a page beside the text."""
        wanted = read_wanted(arguments[0] if arguments else None)
        document = self.documents.find(wanted.uri)
        if document is None:
            self._say(types.MessageType.Warning, "the text is not open")
            return
        cancelled = Flag()
        bar = await begin(self.server, f"specchat: explaining {document.name}", cancelled)
        try:
            text = await self._explained(document, wanted, cancelled, bar)
        except CancelledError:
            return
        except SpecchatError as error:
            self._say(types.MessageType.Error, str(error))
            return
        finally:
            cancelled.set()  # whoever gave up leaves nobody working for it
            bar.end()
        shown = types.ShowDocumentParams(page(document, wanted.region, text).as_uri(), take_focus=False)
        await _within(ANSWER_SECONDS, self.server.window_show_document_async(shown))

    async def _explained(self, document: Document, wanted: Wanted, cancelled: Flag, bar: Bar) -> str:
        loop = asyncio.get_running_loop()

        def hear(event: Event) -> None:
            if isinstance(event, Prefill):
                loop.call_soon_threadsafe(bar.report, 0.0, "reading")
            if self.is_gone.is_set():
                cancelled.set()

        return await loop.run_in_executor(self._edits, explained, document, wanted.region, cancelled, hear)

    async def _rewritten(self, wanted: Wanted) -> types.WorkspaceEdit | None:
        """The edit that makes it so, None after a message."""
        document = self.documents.find(wanted.uri)
        if document is None or (wanted.version is not None and document.version != wanted.version):
            return self._say(types.MessageType.Warning, "the text was changed meanwhile; nothing is edited")
        cancelled = Flag()
        bar = await begin(self.server, f"specchat: {wanted.instruction[:60]}", cancelled)
        try:
            edits = await self._edits_of(document, wanted, cancelled, bar)
        except CancelledError:
            return None
        except NoChangeError as error:
            return self._say(types.MessageType.Info, str(error))
        except SpecchatError as error:
            return self._say(types.MessageType.Error, str(error))
        except asyncio.CancelledError:
            cancelled.set()
            raise
        finally:
            bar.end()
        if (now := self.documents.find(wanted.uri)) is None or now.version != document.version:
            return self._say(types.MessageType.Warning, f"{document.name} was changed meanwhile; nothing is edited")
        return workspace_edit(document, edits, is_versioned=self._knows_versions)

    async def _edits_of(self, document: Document, wanted: Wanted, cancelled: Flag, bar: Bar) -> list[types.TextEdit]:
        loop, written = asyncio.get_running_loop(), Alignment(document.text)

        def hear(event: Event) -> None:
            if isinstance(event, Text):
                written.feed(event.text)
                loop.call_soon_threadsafe(bar.report, written.share)
            elif isinstance(event, Prefill):
                loop.call_soon_threadsafe(bar.report, 0.0, "reading")
            if self.is_gone.is_set():
                cancelled.set()

        profile = self.settings.edit_profile
        return await loop.run_in_executor(self._edits, rewritten, document, wanted, profile, cancelled, hear)

    def _say(self, kind: types.MessageType, text: str) -> None:
        self.server.window_show_message(types.ShowMessageParams(kind, f"specchat: {text}"))

    @property
    def _can_resolve(self) -> bool:
        """Whether the editor comes back for the edit, with our data."""
        text = self.server.client_capabilities.text_document
        actions = text.code_action if text else None
        resolves = actions.resolve_support if actions else None
        return bool(actions and actions.data_support and resolves and "edit" in resolves.properties)

    @property
    def _can_show(self) -> bool:
        """Whether the editor opens a page that we name."""
        window = self.server.client_capabilities.window
        return bool(window and window.show_document and window.show_document.support)

    @property
    def _knows_versions(self) -> bool:
        workspace = self.server.client_capabilities.workspace
        return bool(workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes)


async def _within(seconds: float, answer: Coroutine[Any, Any, Any]) -> Any:
    """What an editor answers, None when it does not."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except (TimeoutError, JsonRpcException):
        return None
