"""What the editor can do, and messages to its user."""

from lsprotocol import types
from pygls.lsp.server import LanguageServer


class EditorWindow:
    def __init__(self, server: LanguageServer) -> None:
        self.server = server

    def show_message(self, kind: types.MessageType, text: str) -> None:
        self.server.window_show_message(types.ShowMessageParams(kind, f"specchat: {text}"))

    def log_message(self, text: str) -> None:
        self.server.window_log_message(types.LogMessageParams(types.MessageType.Info, f"specchat: {text}"))

    @property
    def can_resolve(self) -> bool:
        """Whether the editor resolves code actions and sends back our data."""
        text = self.server.client_capabilities.text_document
        actions = text.code_action if text else None
        resolves = actions.resolve_support if actions else None
        return bool(actions and actions.data_support and resolves and "edit" in resolves.properties)

    @property
    def can_show_document(self) -> bool:
        window = self.server.client_capabilities.window
        return bool(window and window.show_document and window.show_document.support)

    @property
    def supports_versioned_edits(self) -> bool:
        workspace = self.server.client_capabilities.workspace
        return bool(workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes)
