"""The lists in place of the prompt: which one opens, from where its rows come, and what a picked row does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from specchat.errors import SpecchatError
from specchat.hub.runnable_models import local_choices
from specchat.tui import picker
from specchat.tui.background_requests import BackgroundRequests, Response
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter, EngineCrashed, ReadyForInput
from specchat.tui.prompt_sender import PromptSender

BUSY_NOTICE = "an answer is in progress; Esc stops it"
DECIDE_FIRST_NOTICE = "a decision is pending; answer it first"


class PickerController:
    """`connect` connects to the engine again."""

    def __init__(
        self,
        layout: ConversationLayout,
        presenter: ConversationPresenter,
        sender: PromptSender,
        background_requests: BackgroundRequests,
        earlier_prompts: Sequence[str],
        connect: Callable[[], None],
    ) -> None:
        self._layout, self._presenter, self._sender, self._connect = layout, presenter, sender, connect
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

    async def offer_retry(self, event: EngineCrashed) -> None:
        self._sender.pending.crashed = event.turn.question_ref
        await self._layout.bottom_area.replace_prompt(picker.retry_picker(event.reason))

    async def close(self) -> None:
        """Go back to the prompt. An interrupted question stays as it is: go on with those behind it."""
        await self._layout.bottom_area.restore_prompt()
        if self._sender.pending.crashed is not None:
            self._sender.pending.crashed = None
            self._layout.post_message(ReadyForInput())

    async def choose(self, purpose: str, value: str) -> None:
        crashed, questions = self._sender.pending.crashed, self._layout.transcript.question_refs
        if value == "retry":
            self._sender.pending.crashed = None
        await self.close()
        match purpose, value:
            case (("variant" | "model" | "profile"), _):
                await self._sender.submit(f"/{purpose} {value}")
            case "theme", _:
                self._layout.app.theme = value
            case "question", _:
                self._layout.prompt.set_text(value)
            case "rewind", _ if int(value) < len(questions):
                self._sender.reword(questions[int(value)])
            case "retry", "retry" if crashed is not None:
                await self._sender.resend(crashed, crashed.text)
            case "engine_lost", "connect":
                self._presenter.live_stats.start_waiting("starting the engine", monotonic())
                self._connect()
            case ("leave", "leave") | ("engine_lost", "quit"):
                self._layout.app.exit()
            case _:
                pass

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
