"""The thread behind the screen as a desk for edits: what is shown becomes news, what is read comes from the screen."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event as Flag

from specchat.chat.events import Event, Loading, Prefill, Routed, StepDone
from specchat.commands.file_edits import Desk
from specchat.tui.messages import Follows, Mailbox, Query, Want

LETTER = "["  # how a question for a letter begins


class Dialogue:
    """One edit: `answer` is called by the screen, everything else on the thread that edits."""

    def __init__(self, mailbox: Mailbox, cancelled: Flag) -> None:
        self._mailbox, self._cancelled = mailbox, cancelled
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._hunk, self._remarks = "", list[str]()
        self.desk = Desk(
            self._read, self._show, self._remarks.append, self._edit, self._follow, self._hear, self._cancelled
        )

    def answer(self, text: str | None) -> None:
        """What the person said."""
        self._answers.put(text)

    def agrees(self, question: str) -> bool:
        """Is a question answered with yes? Its first line says what it is about."""
        self._hunk = question
        return self._asked(Want.YES, question) == "y"

    def _show(self, hunk: str) -> None:
        self._hunk = hunk

    def _read(self, question: str) -> str:
        return self._asked(Want.LETTER if question.startswith(LETTER) else Want.LINE, question) or ""

    def _edit(self, text: str, _ending: str) -> str | None:
        return self._asked(Want.TEXT, text)

    def _asked(self, want: Want, text: str) -> str | None:
        self._cancelled.clear()  # what was stopped is over; a person is asked
        remark = "\n".join(self._remarks)
        self._remarks.clear()
        self._mailbox.put(Query(want, text, self._hunk, remark))
        return self._answers.get()

    def _follow(self, line: str) -> None:
        self._mailbox.put(Follows(line))

    def _hear(self, event: Event) -> None:
        """What moves the numbers; the text itself is shown as hunks."""
        if isinstance(event, Loading | Prefill | Routed | StepDone):
            self._mailbox.put(event)
