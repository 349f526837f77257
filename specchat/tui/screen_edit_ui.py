"""The edit callbacks of the TUI: output becomes messages, input waits for the screen."""

from queue import SimpleQueue
from threading import Event as Flag

from specchat.app.agent.call_consent import ANSWER_KEYS, ConsentQuestion
from specchat.app.consent import Answer
from specchat.app.hunk_review import HUNK_QUESTION, EditUI
from specchat.chat.events import Event, Notice, Routed, Stage, StepDone
from specchat.edit.hunks import unified_diff
from specchat.tui.worker_messages import EditProgress, InputKind, InputRequest, MessageQueue, RejectedEdit


class ScreenEditUI:
    """One edit: the screen calls `put_answer`; everything else runs on the worker thread."""

    def __init__(self, worker_messages: MessageQueue, cancelled: Flag) -> None:
        self._worker_messages, self._cancelled = worker_messages, cancelled
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._hunk, self._notices = "", list[str]()
        self.edit_ui = EditUI(
            self._read_input,
            self._show_hunk,
            self._notices.append,
            lambda text, _ending: self._wait_for_answer(InputKind.TEXT, text),
            lambda line: worker_messages.put(EditProgress(line)),
            self._on_event,
            self._cancelled,
            lambda diff: worker_messages.put(RejectedEdit(diff)),
        )

    def put_answer(self, text: str | None) -> None:
        self._answers.put(text)

    def confirm(self, question: str) -> bool:
        """Whether the user answers yes; the first line of the question is its title."""
        self._hunk = question
        return self._wait_for_answer(InputKind.YES_NO, question) == "y"

    def ask_consent(self, question: ConsentQuestion) -> Answer:
        """Show the diff or the command, and ask; the end of the screen stops the work."""
        if change := question.change:
            title = f"{change.path} · {question.summary}"
            lines = unified_diff(change.path, change.old, change.new)
        else:
            title, lines = f"{question.effect.value} · {question.always}", f" {question.summary}"
        self._hunk = f"{title}\n{lines}"
        return ANSWER_KEYS.get(self._wait_for_answer(InputKind.CONSENT, "") or "", Answer.STOP)

    def _show_hunk(self, hunk: str) -> None:
        self._hunk = hunk

    def _read_input(self, question: str) -> str:
        kind = InputKind.KEY if question == HUNK_QUESTION else InputKind.LINE
        return self._wait_for_answer(kind, question) or ""

    def _wait_for_answer(self, kind: InputKind, text: str) -> str | None:
        self._cancelled.clear()  # the stopped work has ended; the user decides now
        notice = "\n".join(self._notices)
        self._notices.clear()
        self._worker_messages.put(InputRequest(kind, text, self._hunk, notice))
        return self._answers.get()

    def _on_event(self, event: Event) -> None:
        """Post what the status bar shows, and what is said meanwhile; the text itself appears as hunks."""
        if isinstance(event, Notice):
            self._worker_messages.put(EditProgress(event.text))
        if isinstance(event, Stage | Routed | StepDone):
            self._worker_messages.put(event)
