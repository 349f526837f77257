"""The lists in place of the prompt: which one opens, from where its rows come, and what a picked row does."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from specchat.errors import SpecchatError
from specchat.hub.runnable_models import local_choices
from specchat.tui import picker
from specchat.tui.background_requests import BackgroundRequests, Response
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter, ReadyForInput
from specchat.tui.picker import Picker, PickerRow, model_rows, profile_rows, variant_rows
from specchat.tui.preferences import AUTO_THEME
from specchat.tui.prompt_sender import PromptSender
from specchat.tui.turn_widget import QuestionRef

BUSY_NOTICE = "an answer is in progress; Esc stops it"
DECIDE_FIRST_NOTICE = "a decision is pending; answer it first"


class PickerController:
    def __init__(
        self,
        layout: ConversationLayout,
        presenter: ConversationPresenter,
        sender: PromptSender,
        background_requests: BackgroundRequests,
        earlier_prompts: Sequence[str],
    ) -> None:
        self._layout, self._presenter, self._sender = layout, presenter, sender
        self._background_requests, self._earlier_prompts = background_requests, earlier_prompts

    async def open(self, purpose: str) -> None:
        layout = self._layout
        match purpose:
            case "rewind" if self._presenter.turn is not None:
                layout.notify(BUSY_NOTICE, markup=False)
            case _ if layout.bottom_area.approval:
                layout.notify(DECIDE_FIRST_NOTICE, markup=False)
            case "variant":
                session = {"session": self._presenter.session_id}
                self._background_requests.send("list_variants", session, layout, self._open_variants)
            case "model":
                choices = await asyncio.to_thread(lambda: list(local_choices()))
                title = "model, from the next request on; it reads the conversation again"
                await self._show(title, model_rows(choices, self._presenter.model), self._command("model"))
            case "profile":
                await self._show("profile, from the next request on", profile_rows(), self._command("profile"))
            case "theme":
                rows = [PickerRow(AUTO_THEME, AUTO_THEME, "light or dark, as the terminal")]
                rows += [PickerRow(name, name) for name in sorted(layout.app.available_themes)]
                await self._show("colours", rows, self._command("theme"))
            case "question":
                rows = [PickerRow(prompt, prompt) for prompt in reversed(self._earlier_prompts)]
                await self._show("earlier prompts", rows, layout.prompt.set_text)
            case "rewind":
                rows = [PickerRow(str(each.position), each.text) for each in reversed(layout.transcript.question_refs)]
                await self._show("edit a request of this conversation; the old version stays", rows, self._reword)
            case _:
                raise AssertionError(purpose)

    async def offer_retry(self, reason: str, question: QuestionRef) -> None:
        """After a crash. The question that it interrupted stays as it is, unless the user sends it again."""
        self._sender.crashed = question
        rows = [PickerRow("retry", "send the request again"), PickerRow("cancel", "keep the partial answer")]

        async def choose(value: str) -> None:
            if value == "retry":
                self._sender.crashed = None
            await self.close()
            if value == "retry":
                await self._sender.resend(question, question.text)

        await self._layout.bottom_area.replace_prompt(Picker(reason, rows, choose, picker.GRACE_SECONDS))

    async def offer_connecting(self, reason: str) -> None:
        rows = [PickerRow("connect", "restart the engine"), PickerRow("quit", "quit; the conversation is stored")]

        def choose(value: str) -> None:
            if value == "quit":
                self._layout.app.exit()
            else:
                self._presenter.live_stats.start_waiting("starting the engine", monotonic())
                self._sender.connect()

        await self._show(f"no engine: {reason}", rows, choose, picker.GRACE_SECONDS)

    async def offer_leaving(self, waiting: int) -> None:
        rows = [PickerRow("stay", "stay and wait for the answers"), PickerRow("", "quit; the answer so far is stored")]
        questions = "a question waits" if waiting == 1 else f"{waiting} questions wait"
        title = f"{questions} to be answered; quit without it?"
        await self._show(title, rows, lambda stays: None if stays else self._layout.app.exit(), classes="leave")

    async def close(self) -> None:
        """Go back to the prompt. After a crash, go on with the questions behind the interrupted one."""
        await self._layout.bottom_area.restore_prompt()
        if self._sender.crashed is not None:
            self._sender.crashed = None
            self._layout.post_message(ReadyForInput())

    async def _show(
        self,
        title: str,
        rows: Sequence[PickerRow],
        choose: Callable[[str], object],
        grace_seconds: float = 0.0,
        classes: str = "",
    ) -> None:
        """Show the list, if it has rows; `choose` is called when the prompt is back."""

        async def close_and_choose(value: str) -> None:
            await self.close()
            self._layout.call_later(choose, value)

        if rows:
            opened = Picker(title, rows, close_and_choose, grace_seconds)
            await self._layout.bottom_area.replace_prompt(opened.set_classes(classes))

    def _command(self, name: str) -> Callable[[str], object]:
        return lambda value: self._sender.submit(f"/{name} {value}")

    def _reword(self, position: str) -> None:
        questions = self._layout.transcript.question_refs
        if int(position) < len(questions):
            self._sender.reword(questions[int(position)])

    async def _open_variants(self, response: Response) -> None:
        """Open the list of drafters; an error leaves open which of them can run."""
        known = None if isinstance(response, SpecchatError) or not response["is_loaded"] else response["variants"]
        unknown = "; the models are not loaded, so some may not run" if known is None else ""
        await self._show(f"drafter, from the next request on{unknown}", variant_rows(known), self._command("variant"))
