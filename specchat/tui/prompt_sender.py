"""The prompts of a screen: sent to the session worker, or kept while an answer is in progress. Knows no engine."""

from collections.abc import Callable
from threading import Event as Flag
from typing import ParamSpec

from specchat.app.command_registry import COMMAND_PATTERN, FILE_COMMANDS, help_text
from specchat.drawing.glyphs import printable
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter
from specchat.tui.screen_commands import all_commands, screen_action
from specchat.tui.session_worker import SessionWorker
from specchat.tui.turn_widget import QuestionRef

Arguments = ParamSpec("Arguments")


class PromptSender:
    """`wake` is called when messages of the worker are to be expected.

    `queue` has the prompts behind the answer in progress. The next prompt replaces the request `reworded`; while the
    user decides whether the request `crashed`, which a crash interrupted, is sent again, no other one is sent.
    """

    def __init__(
        self,
        layout: ConversationLayout,
        presenter: ConversationPresenter,
        worker: SessionWorker,
        wake: Callable[[], None],
    ) -> None:
        self._layout, self._presenter, self._worker, self._wake = layout, presenter, worker, wake
        self.queue = list[str]()
        self.reworded: QuestionRef | None = None
        self.crashed: QuestionRef | None = None
        self._unsent_text = ""  # that the prompt had before the rewording
        self._cancelled = Flag()

    def run(self, job: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Queue a job of the worker."""
        self._worker.submit(job, *args, **kwargs)
        self._wake()

    def connect(self) -> None:
        """Connect to the engine again."""
        self.run(self._worker.conversation.connect)

    def stop(self) -> None:
        """Stop the answer in progress."""
        self._cancelled.set()

    async def submit(self, text: str) -> None:
        """Run it, send it, or queue it behind the current answer."""
        match = COMMAND_PATTERN.match(text.strip())
        action = screen_action(match["name"], (match["argument"] or "").strip()) if match else None
        if match and match["name"] == "help":
            await self._layout.transcript.add_note(help_text(all_commands().values()))
        elif action:
            await self._layout.run_action(action)
        elif self._presenter.turn is not None:
            self.queue.append(text)
        elif match and match["name"] in FILE_COMMANDS:
            self.end_rewording()
            await self._presenter.start_turn(text, "reading the files")  # looks like a request, and is none
            self.run(self._worker.run_file_command, text, self._new_flag())
        elif self.reworded is not None and not match:
            await self.resend(self.reworded, text)
        else:
            await self._ask(text, is_question=not match)
        self._show_pending()

    async def send_next(self) -> None:
        """The next prompt of the queue, once nothing is in progress."""
        if self._presenter.turn is None and self.queue and self.crashed is None:
            await self.submit(self.queue.pop(0))
        self._show_pending()

    async def resend(self, question: QuestionRef, text: str) -> None:
        """Send another version of that request, or a new one if it is not part of the conversation."""
        self.end_rewording()
        if COMMAND_PATTERN.match(text.strip()):
            await self.submit(text)
        elif question.position is None:
            await self._ask(text, is_question=True)
        else:
            await self._presenter.start_turn(text)
            self.run(self._worker.replace_question, question.position, text, self._new_flag())

    def reword(self, question: QuestionRef) -> None:
        """Put the text of that request into the prompt; what is sent next replaces it."""
        prompt = self._layout.prompt
        if self.reworded is None:
            self._unsent_text = prompt.expanded_text
        self.reworded = question
        prompt.set_text(question.text)
        prompt.focus()
        self._show_pending()

    def end_rewording(self) -> None:
        """Give the prompt the text back that it had before, unless something new was typed."""
        text, self.reworded, self._unsent_text = self._unsent_text, None, ""
        if text and not self._layout.prompt.text:
            self._layout.prompt.set_text(text)

    def cancel_rewording(self) -> None:
        self._layout.prompt.clear_all()
        self.end_rewording()
        self._show_pending()

    def take_back_queue(self) -> None:
        """Put what waits into the prompt."""
        if self.queue:
            prompt = self._layout.prompt
            prompt.set_text("\n".join(filter(None, [*self.queue, prompt.expanded_text])))
            self.queue.clear()
        self._show_pending()

    async def _ask(self, text: str, *, is_question: bool) -> None:
        if is_question:
            await self._presenter.start_turn(text)
        self.run(self._worker.run_line, text, self._new_flag())

    def _new_flag(self) -> Flag:
        self._cancelled = Flag()
        return self._cancelled

    def _show_pending(self) -> None:
        notice = "this becomes another version of an earlier request; Esc cancels" if self.reworded else ""
        self._layout.show_queued(f"next: {printable(' / '.join(self.queue))}" if self.queue else notice)
