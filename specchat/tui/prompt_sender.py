"""Sends prompts to the session worker, or keeps them while an answer is in progress."""

from collections.abc import Callable
from threading import Event as Flag

from specchat.app.command_registry import COMMAND_PATTERN, FILE_COMMANDS
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter
from specchat.tui.pending_prompts import PendingPrompts
from specchat.tui.screen_commands import help_text, screen_action
from specchat.tui.session_worker import SessionWorker
from specchat.tui.turn_widget import QuestionRef


class PromptSender:
    """`cancelled` stops the answer in progress; `wake` is called when messages of the worker are to be expected."""

    def __init__(
        self,
        layout: ConversationLayout,
        presenter: ConversationPresenter,
        worker: SessionWorker,
        wake: Callable[[], None],
    ) -> None:
        self.pending, self.cancelled = PendingPrompts(), Flag()
        self._layout, self._presenter, self._worker, self._wake = layout, presenter, worker, wake

    async def submit(self, text: str) -> None:
        """Run it, send it, or queue it behind the current answer."""
        match = COMMAND_PATTERN.match(text.strip())
        action = screen_action(match["name"], (match["argument"] or "").strip()) if match else None
        if match and match["name"] == "help":
            await self._layout.transcript.add_note(help_text())
        elif action:
            await self._layout.run_action(action)
        elif self._presenter.turn is not None:
            self.pending.add(text)
        elif match and match["name"] in FILE_COMMANDS:
            await self._run_file_command(text)
        elif self.pending.reworded is not None and not match:
            await self.resend(self.pending.reworded, text)
        else:
            await self._ask(text, is_question=not match)
        self._show_pending()

    async def send_next(self) -> None:
        """The next prompt of the queue, once nothing is in progress."""
        if self._presenter.turn is None and (text := self.pending.take_next()) is not None:
            await self.submit(text)
        self._show_pending()

    async def resend(self, question: QuestionRef, text: str) -> None:
        """Send another version of that request, or a new one if it is not part of the conversation."""
        self.end_rewording()
        if COMMAND_PATTERN.match(text.strip()):
            await self.submit(text)
        elif question.position is None:
            await self._ask(text, is_question=True)
        else:
            self.cancelled = Flag()
            self._worker.submit(self._worker.replace_question, question.position, text, self.cancelled)
            self._wake()

    def reword(self, question: QuestionRef) -> None:
        """Put the text of that request into the prompt; what is sent next replaces it."""
        prompt = self._layout.prompt
        self.pending.reword(question, prompt.expanded_text)
        prompt.set_text(question.text)
        prompt.focus()
        self._show_pending()

    def end_rewording(self) -> None:
        """Give the prompt the text back that it had before, unless something new was typed."""
        unsent_text = self.pending.end_rewording()
        if unsent_text and not self._layout.prompt.text:
            self._layout.prompt.set_text(unsent_text)

    def cancel_rewording(self) -> None:
        self._layout.prompt.clear_all()
        self.end_rewording()
        self._show_pending()

    def take_back_queue(self) -> None:
        """Put what waits into the prompt."""
        if queued := self.pending.take_all():
            prompt = self._layout.prompt
            prompt.set_text("\n".join(filter(None, [*queued, prompt.expanded_text])))
        self._show_pending()

    async def _ask(self, text: str, *, is_question: bool) -> None:
        self.cancelled = Flag()
        if is_question:
            await self._presenter.start_turn(text)
        self._worker.submit(self._worker.run_line, text, self.cancelled)
        self._wake()

    async def _run_file_command(self, line: str) -> None:
        """Run a file command; it appears in the transcript like a request, but is not part of the conversation."""
        self.end_rewording()
        self.cancelled = Flag()
        await self._presenter.start_turn(line)
        self._worker.submit(self._worker.run_file_command, line, self.cancelled)
        self._wake()

    def _show_pending(self) -> None:
        self._layout.show_queued(self.pending.notice)
