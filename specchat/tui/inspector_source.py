"""Which answer the inspector shows: the newest while it is written, or one of before, which the host is asked for."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from time import monotonic

from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import Screen

from specchat.chat.step_encoding import unpack_steps
from specchat.errors import SpecchatError
from specchat.tui.background_requests import Errands, Json
from specchat.tui.glyphs import Glyphs
from specchat.tui.inspector import Inspector
from specchat.tui.message_handlers import Hearing
from specchat.tui.process_memory import memory_line
from specchat.tui.prompt_input import PromptBox
from specchat.tui.transcript_view import Transcript

LONGEST_TITLE = 40
WEIGHED_SECONDS = 1.0  # how often it is looked how much memory is taken


class Inspecting:
    """The inspector of a screen, while there is one."""

    @dataclass
    class Fetched(Message):
        """The host answered with the record of a turn, or said why not."""

        number: int
        answer: Json | SpecchatError

    def __init__(self, screen: Screen[None], hearing: Hearing, errands: Errands, glyphs: Glyphs) -> None:
        self._screen, self._hearing, self._errands, self._glyphs = screen, hearing, errands, glyphs
        self._session = ""
        self._is_newest = False
        self._weighed, self._engine_process = float("-inf"), 0

    @property
    def _inspector(self) -> Inspector | None:
        try:
            return self._screen.query_one(Inspector)
        except NoMatches:
            return None

    @property
    def _questions(self) -> list[str]:
        return [asked.question for asked in self._screen.query_one(Transcript).asked]

    async def toggle(self) -> None:
        """Open it on the newest answer, and follow what is written; or close it."""
        if self._inspector:
            await self.close()
        else:
            await self._enter()
            self._is_newest = True
            self._show_newest()

    async def open(self, number: int) -> None:
        """Look into the answer at this place of the conversation."""
        await self._enter()
        self._is_newest = number == len(self._questions) - 1
        if self._is_newest:
            self._show_newest()
        else:
            self._fetch(number)

    async def close(self) -> None:
        """Back to the prompt."""
        if inspector := self._inspector:
            await inspector.remove()
            self._screen.query_one(PromptBox).focus()

    async def look_again(self) -> None:
        """An answer is over, or the conversation is another one."""
        if self._inspector is None:
            return
        if self._session != self._hearing.session:
            await self.close()
        elif self._is_newest:
            self._show_newest()

    def follow(self) -> None:
        """Show what was written since."""
        inspector = self._inspector
        if inspector:
            self._weigh(inspector)
        if inspector and self._is_newest and self._hearing.steps:
            hearing = self._hearing
            plain_seconds, is_over = hearing.gauge.plain_seconds, hearing.turn is None
            inspector.follow(self._title(), hearing.steps, plain_seconds, is_over=is_over)

    def show_fetched(self, fetched: Fetched) -> None:
        """Show the steps of a turn of before, unless there are newer ones to see."""
        inspector = self._inspector
        if inspector is None or (self._is_newest and self._hearing.steps):
            return
        if isinstance(fetched.answer, SpecchatError):
            self._screen.notify(str(fetched.answer), markup=False)
            return
        steps = unpack_steps(b64decode(str(fetched.answer["steps"])))
        inspector.show(self._title(fetched.number), steps, self._hearing.gauge.plain_seconds)

    async def _enter(self) -> None:
        self._session = self._hearing.session
        if self._inspector is None:
            await self._screen.mount(Inspector(self._glyphs))
        if inspector := self._inspector:
            inspector.tokens.focus()
            self._weighed = float("-inf")
            self._weigh(inspector)

    def _weigh(self, inspector: Inspector) -> None:
        """Once a second while something happens, and when it becomes known which process the engine is."""
        process = self._hearing.engine_process
        if process != self._engine_process or monotonic() - self._weighed >= WEIGHED_SECONDS:
            self._weighed, self._engine_process = monotonic(), process
            inspector.show_memory(memory_line(process, self._glyphs))

    def _show_newest(self) -> None:
        if self._hearing.steps:
            self.follow()
        elif inspector := self._inspector:
            inspector.show(self._title(), ())
            if last := len(self._questions):
                self._fetch(last - 1)

    def _fetch(self, number: int) -> None:
        wanted = {"session": self._hearing.session, "number": number}
        post = self._screen.post_message
        self._errands.send("inspect", wanted, lambda answer: post(self.Fetched(number, answer)))

    def _title(self, number: int = -1) -> str:
        questions = self._questions
        if not questions:
            return "nothing was asked yet"
        place = number % len(questions)
        return f"turn {place + 1}  {' '.join(questions[place].split())[:LONGEST_TITLE]}"
