"""A conversation of this process: it keeps its turns, and a text that it shares with no other."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Event as Flag

from specchat.chat.drafted_text import DraftedText, LoadedModels
from specchat.chat.events import Event, Failed
from specchat.chat.request import Request
from specchat.chat.running_answer import RunningAnswer
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.drafters.registry import BuiltDrafters
from specchat.errors import SpecchatError
from specchat.threads import ThreadWatchdog


class Session(DraftedText, AbstractContextManager["Session"]):
    """Turns and their text."""

    def __init__(
        self,
        models: LoadedModels,
        built: BuiltDrafters,
        turns: Sequence[Turn] = (),
        watchdog: ThreadWatchdog | None = None,
    ) -> None:
        super().__init__(models, built)
        self.turns, self.watchdog, self._notified = list(turns), watchdog, set[str]()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time. Set `cancelled` from any thread to end within a step; a partial answer stays."""
        try:
            request = Request(request) if isinstance(request, str) else request
            question = Question(request, tuple(self.turns), self.models.profile, notified=self._notified)
            answer = RunningAnswer(self.models, self, question, cancelled or Flag(), self.watchdog)
            try:
                yield from answer.events()
            finally:
                self.turns = list(answer.turns)
        except SpecchatError as error:
            yield Failed.from_error(error)

    @contextmanager
    def use(self, tokens: list[int], owner: TextOwner, form: bool) -> Generator[DraftedText]:
        yield self

    def rewind(self, count: int = 1) -> list[Turn]:
        """Remove and return the last turns, to edit a question or to sample another answer."""
        remaining = max(len(self.turns) - count, 0)
        removed, self.turns = self.turns[remaining:], self.turns[:remaining]
        return removed
