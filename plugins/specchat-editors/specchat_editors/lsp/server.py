"""The language server: the handlers of the protocol. Everything slow runs on other threads."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event as Flag
from typing import Any, TypeVar

from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from specchat import __version__
from specchat.app.edit_progress import RewriteAlignment
from specchat.chat.events import Notice, Routed, Stage, TextDelta
from specchat.errors import CancelledError, NoChangeError, SpecchatError
from specchat.host.client import SessionRequest
from specchat.plugins.discovery import find_extensions
from specchat.plugins.own_plugins import install_line
from specchat.profile.profile_files import DEFAULT_PROFILE
from specchat.profile.settings import Settings
from specchat_editors.lsp.code_actions import (
    EDIT_COMMAND,
    EXPLAIN_COMMAND,
    QUICK_FIX_KIND,
    REWRITE_KIND,
    EditRequest,
    list_code_actions,
    parse_edit_request,
)
from specchat_editors.lsp.cursor_context import cursor_context
from specchat_editors.lsp.editor_window import EditorWindow
from specchat_editors.lsp.initialization_options import InitializationOptions, parse_initialization_options
from specchat_editors.lsp.inline_completion import EngineConnection, Suggester, Suggestion
from specchat_editors.lsp.model_watch import ModelWatch
from specchat_editors.lsp.request_guard import GuardedProtocol
from specchat_editors.lsp.rewrite_edits import compute_rewrite, explain_region, workspace_edit, write_page
from specchat_editors.lsp.text_documents import Documents
from specchat_editors.lsp.work_done_progress import begin_progress

log = logging.getLogger(__name__)

Result = TypeVar("Result")
SettingsOf = Callable[[str], Settings]

CLIENT_TIMEOUT_SECONDS = 10.0  # for an editor to answer a request


class LoggingLanguageServer(LanguageServer):
    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log the error; the user of an editor can do nothing about it."""
        log.warning("%s: %s", getattr(source, "__name__", source), error)


class SpecchatLanguageServer:
    def __init__(self, settings_of: SettingsOf) -> None:
        self._settings_of = settings_of  # the settings of a profile here
        self.server = LoggingLanguageServer(
            "specchat", __version__, protocol_cls=GuardedProtocol, converter_factory=get_converter
        )
        assert isinstance(self.server.protocol, GuardedProtocol)
        self.protocol: GuardedProtocol = self.server.protocol
        self.options, self.documents = InitializationOptions(), Documents()
        self.suggester: Suggester | None = None
        self.is_disconnected = Flag()  # cancels everything in progress
        self.window = EditorWindow(self.server)
        self._models: ModelWatch | None = None
        self._edit_executor = ThreadPoolExecutor(1, "lsp-edit")
        self._register_handlers()

    def stop(self) -> None:
        self.is_disconnected.set()
        if self.suggester:
            self.suggester.cancel()

    def _register_handlers(self) -> None:
        self._register_handler(types.INITIALIZE, self.initialize)
        self._register_handler(types.INITIALIZED, self.initialized)
        self._register_handler(types.TEXT_DOCUMENT_DID_OPEN, self.did_open)
        self._register_handler(types.TEXT_DOCUMENT_DID_CHANGE, self.did_change)
        self._register_handler(types.TEXT_DOCUMENT_DID_CLOSE, self.did_close)
        self._register_handler(
            types.TEXT_DOCUMENT_INLINE_COMPLETION, self.inline_completion, types.InlineCompletionOptions()
        )
        options = types.CodeActionOptions([REWRITE_KIND, QUICK_FIX_KIND], resolve_provider=True)
        self._register_handler(types.TEXT_DOCUMENT_CODE_ACTION, self.code_actions, options)
        self._register_handler(types.CODE_ACTION_RESOLVE, self.resolve)
        self.server.command(EDIT_COMMAND)(partial(self.edit))
        self.server.command(EXPLAIN_COMMAND)(partial(self.explain))

    def _register_handler(self, method: str, handler: Callable[..., Any], registration_options: Any = None) -> None:
        """Register a method. pygls sets attributes on a handler, which bound methods do not allow; hence `partial`."""
        self.server.feature(method, registration_options)(partial(handler))

    def initialize(self, params: types.InitializeParams) -> None:
        """Read the options of the editor. Starts no process."""
        self.options = parse_initialization_options(params.initialization_options)
        encoding = self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16
        self.documents.encoding = str(getattr(encoding, "value", encoding))
        engine = EngineConnection(
            lambda: SessionRequest(settings=self._settings_of(self.options.profile), kind="completion")
        )
        self.suggester, self._models = Suggester(engine, self.options), ModelWatch(self.window, engine)
        if self.options.offers_completion_list:
            self._register_handler(types.TEXT_DOCUMENT_COMPLETION, self.completion, types.CompletionOptions())

    async def initialized(self, _params: types.InitializedParams) -> None:
        """The editor is ready: start the engine process in the background."""
        if self._models:
            if not find_extensions("completers"):
                missing = f"completions need a plugin: {install_line('completions')}"
                self.window.show_message(types.MessageType.Warning, missing)
            self._models.start()

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self.documents.open(params.text_document)

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Apply a change. It makes the pending suggestion obsolete."""
        self.documents.change(params)
        if self.suggester:
            self.suggester.cancel()

    def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self.documents.close(params.text_document.uri)

    async def inline_completion(self, params: types.InlineCompletionParams) -> types.InlineCompletionList:
        context = params.context
        is_invoked = context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
        suggestion = await self._suggest(params, context.selected_completion_info, is_invoked=is_invoked)
        if suggestion is None:
            return types.InlineCompletionList([])
        texts = [suggestion.insert_text, *filter(None, [suggestion.first_line if is_invoked else ""])]
        return types.InlineCompletionList([types.InlineCompletionItem(text, range=suggestion.range) for text in texts])

    async def completion(self, params: types.CompletionParams) -> types.CompletionList:
        kind = params.context.trigger_kind if params.context else types.CompletionTriggerKind.Invoked
        suggestion = await self._suggest(params, None, is_invoked=kind == types.CompletionTriggerKind.Invoked)
        if suggestion is None:
            return types.CompletionList(is_incomplete=True, items=[])
        item = types.CompletionItem(
            suggestion.insert_text.strip().partition("\n")[0], kind=types.CompletionItemKind.Text, detail="specchat",
            filter_text=suggestion.context.typed_prefix or None,
            text_edit=types.TextEdit(suggestion.range, suggestion.insert_text),
        )  # fmt: skip
        return types.CompletionList(is_incomplete=True, items=[item])

    async def _suggest(
        self,
        params: types.InlineCompletionParams | types.CompletionParams,
        selected: types.SelectedCompletionInfo | None,
        *,
        is_invoked: bool,
    ) -> Suggestion | None:
        document = self.documents.get(params.text_document.uri)
        if document is None or self.suggester is None or self._models is None:
            return None
        context = cursor_context(document, params.position, selected)
        suggestion = await self.suggester.suggest(context, is_invoked=is_invoked)
        if self.suggester.is_waiting_for_models:
            self._models.start()
        self._models.announce_kind(self.suggester.kind_explanation)
        return suggestion

    def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """The code actions here. The model is used only when one is chosen."""
        document = self.documents.get(params.text_document.uri)
        if document is None:
            return []
        only = [str(getattr(each, "value", each)) for each in params.context.only or ()]
        return list_code_actions(
            document,
            params.range,
            only,
            self.options,
            can_resolve=self.window.can_resolve,
            can_show_document=self.window.can_show_document,
        )

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """Compute the edit of a chosen code action; if there is none, a message says why."""
        edit = await self._compute_workspace_edit(parse_edit_request(action.data))
        action.edit, action.data = edit, None
        return action

    async def edit(self, *arguments: Any) -> None:
        """The command: compute an edit and have the editor apply it."""
        edit = await self._compute_workspace_edit(parse_edit_request(arguments[0] if arguments else None))
        if edit is None:
            return
        request = self.server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label="specchat"))
        result = await _with_timeout(CLIENT_TIMEOUT_SECONDS, request)
        if result is not None and not result.applied:
            reason = result.failure_reason or "no reason"
            self.window.show_message(types.MessageType.Warning, f"the edit was not applied: {reason}")

    async def explain(self, *arguments: Any) -> None:
        request = parse_edit_request(arguments[0] if arguments else None)
        document = self.documents.get(request.uri)
        if document is None:
            self.window.show_message(types.MessageType.Warning, "the text is not open")
            return
        work = partial(explain_region, document, request.region, partial(self._settings_of, DEFAULT_PROFILE))
        text = await self._run_with_progress(work, f"explaining {document.name}")
        if text is not None:
            page = types.ShowDocumentParams(write_page(document, request.region, text).as_uri(), take_focus=False)
            await _with_timeout(CLIENT_TIMEOUT_SECONDS, self.server.window_show_document_async(page))

    async def _compute_workspace_edit(self, request: EditRequest) -> types.WorkspaceEdit | None:
        """The edit for a request; None after a message to the user."""
        document = self.documents.get(request.uri)
        if document is None or (request.version is not None and document.version != request.version):
            return self.window.show_message(
                types.MessageType.Warning, "the text was changed meanwhile; nothing is edited"
            )
        work = partial(compute_rewrite, document, request, partial(self._settings_of, self.options.edit_profile))
        edits = await self._run_with_progress(work, request.instruction[:60], document.text)
        if edits is None:
            return None
        if (current := self.documents.get(request.uri)) is None or current.version != document.version:
            message = f"{document.name} was changed meanwhile; nothing is edited"
            return self.window.show_message(types.MessageType.Warning, message)
        return workspace_edit(document, edits, is_versioned=self.window.supports_versioned_edits)

    async def _run_with_progress(
        self, work: Callable[..., Result], title: str, original: str | None = None
    ) -> Result | None:
        """Run `work(cancelled, on_event)` on the thread for edits; None after a message to the user.

        With the original text, the progress bar shows a fraction.
        """
        loop, alignment, cancelled = asyncio.get_running_loop(), RewriteAlignment(original or ""), Flag()
        progress = await begin_progress(self.server, f"specchat: {title}", cancelled)

        def on_event(event: object) -> None:
            nonlocal alignment
            if isinstance(event, Stage | Notice):
                loop.call_soon_threadsafe(progress.report, 0.0, event.text)
            elif isinstance(event, Routed):  # another answer begins
                alignment = RewriteAlignment(original or "")
            elif isinstance(event, TextDelta) and original is not None:
                alignment.feed(event.text)
                loop.call_soon_threadsafe(progress.report, alignment.fraction_done)
            if self.is_disconnected.is_set():
                cancelled.set()

        try:
            return await loop.run_in_executor(self._edit_executor, work, cancelled, on_event)
        except CancelledError:
            return None
        except NoChangeError as error:
            return self.window.show_message(types.MessageType.Info, str(error))
        except SpecchatError as error:
            return self.window.show_message(types.MessageType.Error, str(error))
        finally:
            cancelled.set()  # also after an exception: stop the engine
            progress.end()


async def _with_timeout(seconds: float, client_request: Coroutine[Any, Any, Any]) -> Any:
    """The editor's response, None when it fails or takes too long."""
    try:
        async with asyncio.timeout(seconds):
            return await client_request
    except (TimeoutError, JsonRpcException):
        return None
