"""Which list opens in place of the prompt, and from where its rows come. The screen handles what is picked."""

import asyncio
from collections.abc import Sequence

from specchat.errors import SpecchatError
from specchat.hub.runnable_models import local_choices
from specchat.tui import picker
from specchat.tui.background_requests import BackgroundRequests, Response
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter

BUSY_NOTICE = "an answer is in progress; Esc stops it"
DECIDE_FIRST_NOTICE = "a decision is pending; answer it first"


class PickerController:
    def __init__(
        self,
        layout: ConversationLayout,
        presenter: ConversationPresenter,
        background_requests: BackgroundRequests,
        earlier_prompts: Sequence[str],
    ) -> None:
        self._layout, self._presenter = layout, presenter
        self._background_requests, self._earlier_prompts = background_requests, earlier_prompts

    async def open(self, purpose: str) -> None:
        if purpose == "rewind" and self._presenter.turn is not None:
            self._layout.notify(BUSY_NOTICE, markup=False)
        elif self._layout.bottom_area.approval:
            self._layout.notify(DECIDE_FIRST_NOTICE, markup=False)
        elif purpose == "variant":
            session = {"session": self._presenter.session_id}
            self._background_requests.send("list_variants", session, self._layout, self._open_variants)
        elif opened := await self._make(purpose):
            await self._layout.bottom_area.replace_prompt(opened)

    async def _make(self, purpose: str) -> picker.Picker | None:
        if purpose == "model":
            choices = await asyncio.to_thread(lambda: list(local_choices()))
            return picker.model_picker(choices, self._presenter.model)
        questions, themes = self._layout.transcript.question_refs, sorted(self._layout.app.available_themes)
        return picker.make_picker(purpose, self._earlier_prompts, questions, themes)

    async def _open_variants(self, response: Response) -> None:
        """Open the list of drafters; an error leaves open which of them can run."""
        is_known = not isinstance(response, SpecchatError) and response["is_loaded"]
        available = response["variants"] if is_known and not isinstance(response, SpecchatError) else None
        await self._layout.bottom_area.replace_prompt(picker.variant_picker(available))
