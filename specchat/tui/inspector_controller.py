"""Which answer the inspector shows: the newest one while it streams, or an earlier one, fetched from the host."""

from base64 import b64decode
from collections.abc import Callable
from functools import partial
from time import monotonic

from textual.screen import Screen

from specchat.drawing.glyphs import Glyphs
from specchat.errors import SpecchatError
from specchat.history.step_encoding import unpack_steps
from specchat.tui.background_requests import BackgroundRequests, Json
from specchat.tui.conversation_presenter import ConversationPresenter
from specchat.tui.inspector import Inspector
from specchat.tui.prompt_input import PromptBox
from specchat.tui.transcript_view import Transcript

MAX_TITLE_CHARS = 40


class InspectorController:
    def __init__(
        self,
        screen: Screen[None],
        presenter: ConversationPresenter,
        background_requests: BackgroundRequests,
        glyphs: Glyphs,
        on_watch: Callable[[bool], None],
    ) -> None:
        """`on_watch` is called when the inspector opens and closes: probabilities are computed only in between."""
        self._screen, self._presenter = screen, presenter
        self._background_requests, self._glyphs = background_requests, glyphs
        self._on_watch, self._session_id = on_watch, ""
        self._is_newest = False

    @property
    def _inspector(self) -> Inspector | None:
        inspectors = self._screen.query(Inspector)
        return inspectors.first() if inspectors else None

    @property
    def _questions(self) -> list[str]:
        return [question.text for question in self._screen.query_one(Transcript).question_refs]

    async def toggle(self) -> None:
        if self._inspector:
            await self.close()
        else:
            await self._open_inspector()
            self._is_newest = True
            self._show_newest()

    async def open(self, position: int) -> None:
        await self._open_inspector()
        self._is_newest = position == len(self._questions) - 1
        if self._is_newest:
            self._show_newest()
        else:
            self._fetch_steps(position)

    async def close(self) -> None:
        self._on_watch(False)
        if inspector := self._inspector:
            await inspector.remove()
            self._screen.query_one(PromptBox).focus()

    async def refresh(self) -> None:
        """An answer has ended, or the conversation has changed."""
        if self._inspector is None:
            return
        if self._session_id != self._presenter.session_id:
            await self.close()
        elif self._is_newest:
            self._show_newest()

    def update(self) -> None:
        inspector, presenter = self._inspector, self._presenter
        if inspector and self._is_newest and presenter.steps:
            speedup = presenter.live_stats.snapshot(monotonic()).speedup
            inspector.update_steps(self._title(), presenter.steps, speedup, is_over=presenter.turn is None)

    def _show_fetched_steps(self, position: int, response: Json | SpecchatError) -> None:
        """Show the steps of an earlier turn, unless newer steps have come."""
        inspector = self._inspector
        if inspector is None or (self._is_newest and self._presenter.steps):
            return
        if isinstance(response, SpecchatError):
            self._screen.notify(str(response), markup=False)
            return
        steps = unpack_steps(b64decode(str(response["steps"])))
        inspector.show_steps(self._title(position), steps)

    async def _open_inspector(self) -> None:
        self._session_id = self._presenter.session_id
        self._on_watch(True)
        if self._inspector is None:
            await self._screen.mount(Inspector(self._glyphs))
        if inspector := self._inspector:
            inspector.token_view.focus()

    def _show_newest(self) -> None:
        if self._presenter.steps:
            self.update()
        elif inspector := self._inspector:
            inspector.show_steps(self._title(), ())
            if last := len(self._questions):
                self._fetch_steps(last - 1)

    def _fetch_steps(self, number: int) -> None:
        params = {"session": self._presenter.session_id, "turn_index": number}
        self._background_requests.send("inspect", params, self._screen, partial(self._show_fetched_steps, number))

    def _title(self, number: int = -1) -> str:
        questions = self._questions
        if not questions:
            return "no requests yet"
        index = number % len(questions)
        return f"turn {index + 1}  {' '.join(questions[index].split())[:MAX_TITLE_CHARS]}"
