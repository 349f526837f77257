"""What the user hears of the models of completions: a progress bar while they load, and how they complete."""

import asyncio

from lsprotocol import types

from specchat.hub.catalog import catalog
from specchat_editors.lsp.editor_window import EditorWindow
from specchat_editors.lsp.inline_completion import READY, WAITING, EngineConnection
from specchat_editors.lsp.work_done_progress import begin_progress

POLL_SECONDS = 0.25  # between two checks whether the models are loaded
LOADING_TIMEOUT_SECONDS = 600.0


class ModelWatch:
    def __init__(self, window: EditorWindow, engine: EngineConnection) -> None:
        self._window, self._engine = window, engine
        self._task: asyncio.Task[None] | None = None
        self._announced_kind: str | None = None

    def start(self) -> None:
        """Start the engine process in the background, if necessary, and say what it loads."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._report_loading())

    def announce_kind(self, explanation: str | None) -> None:
        """Say how the model completes: in the log where it fills gaps, else to the user, once."""
        if explanation is None or explanation == self._announced_kind:
            return
        self._announced_kind = explanation
        if explanation:
            fill_gaps = (entry for entry in catalog().values() if entry.is_fim)
            smallest = min(fill_gaps, key=lambda entry: entry.architecture.parameters)
            hint = f"models such as {smallest.id} fill gaps (`specchat models list` marks them)"
            self._window.show_message(types.MessageType.Info, f"{explanation}; {hint}")
        else:
            self._window.log_message("the model fills the gap at the cursor (fill-in-the-middle)")

    async def _report_loading(self) -> None:
        """Show one progress bar until the models are loaded, and none if they are loaded already.

        It says what they wait for; an editor without progress bars gets that as a message, once.
        """
        bar, shown = None, ""
        state = await self._engine.models_state(requests_loading=False)
        for _ in range(int(LOADING_TIMEOUT_SECONDS / POLL_SECONDS)):
            if not state.is_coming:
                break
            bar = bar or await begin_progress(self._window.server, "specchat: loading the model")
            if state.reason != shown:
                shown = state.reason
                bar.report(None, shown or "loading")
                if shown and not bar.is_shown:
                    self._window.show_message(types.MessageType.Info, f"waiting for the model: {shown}")
            await asyncio.sleep(POLL_SECONDS)
            state = await self._engine.models_state(requests_loading=state.name == WAITING)
        if bar:
            bar.end("" if state.name == READY else f"still {state.name}" if state.is_coming else state.name)
