"""From news to widgets: what is shown of an answer while it is written, and of a conversation when it is opened.

Called once a tick. What needs the person (a choice, the next question) is posted to the screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic, thread_time

from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from specchat.chat.events import Event, Failed, Finished, Loading, StepDone, Text
from specchat.errors import HostError, SpecchatError
from specchat.profile import load_profile
from specchat.tui.answer_footer import footer
from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.live_stats import Gauge, Memory, Phase
from specchat.tui.messages import (
    Asking,
    Changed,
    EditNews,
    Ended,
    EngineState,
    Follows,
    Leaving,
    Lost,
    Named,
    News,
    Opened,
    Query,
    TalkNews,
    Told,
)
from specchat.tui.smooth_stream import Pace, Thrift
from specchat.tui.status_widget import StatusBar
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import TurnView

TICKS_PER_READING = 4  # the numbers change four times a second


class Over(Message):
    """An answer has ended, or a conversation was opened: the next question may be asked."""


@dataclass
class Broken(Message):
    """An answer broke off because the engine process did."""

    reason: str
    turn: TurnView


@dataclass
class Asks(Message):
    """The person is waited for."""

    query: Query


@dataclass
class Goes(Message):
    """How far an edit is."""

    line: str


@dataclass
class NoEngine(Message):
    """There is no engine process."""

    reason: str


class Hearing:
    """What is known of the conversation on the screen."""

    def __init__(self, screen: Screen[None], glyphs: Glyphs) -> None:
        self._screen, self._glyphs = screen, glyphs
        self.gauge, self._pace, self._thrift = Gauge(), Pace(), Thrift()
        self.turn: TurnView | None = None
        self._later: TurnView | None = None  # shown already, but another question was on its way before it
        self.session = self.profile = self.name = ""
        self.engine_process = 0
        self.steps: list[StepDone] = []  # of the newest answer, for who looks into it; none of one from the history
        self._ticks = 0

    @property
    def is_quiet(self) -> bool:
        """Is there nothing to wait for?"""
        return self.turn is None and self.gauge.phase is Phase.IDLE

    @property
    def _transcript(self) -> Transcript:
        return self._screen.query_one(Transcript)

    async def tick(self, all_news: list[News]) -> None:
        """What arrived, and what is due."""
        now = monotonic()
        for news in all_news:
            if isinstance(news, Query | Follows | Changed):
                self._hear_edit(news)
            else:
                await self._hear(news, now)
        if self.turn and self._thrift.may_draw(now, thread_time()) and (text := self._pace.take(now)):
            self.turn.write(text, is_seen=self._transcript.follows)
        self._ticks += 1
        if self.is_quiet or self._ticks % TICKS_PER_READING == 0:
            self.show_readings()

    async def begin(self, question: str) -> None:
        """Show a question that is on its way."""
        self.turn = await self._transcript.begin(question, before=self._later)
        self.gauge.ask(monotonic())

    async def look(self) -> None:
        """Somebody sees the end again: show what waited."""
        for turn in self._transcript.turns:
            turn.look()
            if turn.is_over:
                await turn.finish()

    def show_readings(self) -> None:
        """The line of numbers."""
        self._screen.query_one(StatusBar).readings = self.gauge.readings(monotonic())

    async def _hear(self, news: TalkNews, now: float) -> None:
        match news:
            case Text(text=text):
                self._pace.add(text, now)
            case Opened():
                await self._open(news)
            case Named(name=name):
                self._show_title(name)
            case Asking():
                await self._ask(news)
            case Ended(is_stored=is_stored):
                await self._end(is_stored=is_stored)
            case EngineState():
                self._note_engine(news, now)
            case Told(text=text, is_error=is_error):
                await self._transcript.tell(text, is_error=is_error)
                self._screen.post_message(Over())
            case Lost(reason=reason):
                self.gauge.rest()
                self._screen.post_message(NoEngine(reason))
            case Leaving():
                self._screen.app.exit()
            case _:
                self._hear_event(news, now)

    def _hear_edit(self, news: EditNews) -> None:
        """The line below an edit tells how far it is, and what came of it."""
        match news:
            case Query():
                self.gauge.rest()
                self._note_edit("decide below, hunk by hunk")
                self._screen.post_message(Asks(news))
            case Follows(line=line):
                self._note_edit(line)
                self._screen.post_message(Goes(line))
            case Changed(text=text, is_error=is_error):
                self._note_edit(" ".join(text.splitlines()), is_error=is_error)

    def _note_edit(self, line: str, *, is_error: bool = False) -> None:
        if self.turn:
            self.turn.note(self._spelt(line), is_error=is_error)

    def _spelt(self, line: str) -> str:
        return line.replace("·", self._glyphs.dot).replace("…", self._glyphs.more)

    def _hear_event(self, event: Event, now: float) -> None:
        self.gauge.hear(event, now)
        if isinstance(event, StepDone):
            self.steps.append(event)
        if self.turn is None or not isinstance(event, Finished | Failed):
            return
        self.turn.write(self._pace.rest(), is_seen=self._transcript.follows)
        if isinstance(event, Finished):
            self.turn.note(footer(event.reason, event.totals, self._glyphs))
            return
        self.turn.note(f"failed: {event.message}", is_error=True)
        if event.exit_code == HostError.exit_code:
            self._screen.post_message(Broken(event.message, self.turn))

    async def _ask(self, asking: Asking) -> None:
        if self.turn is None or self.turn.question != asking.request.text:
            self._later = self.turn
            await self.begin(asking.request.text)
        assert self.turn is not None
        self.steps = []
        self._transcript.place(self.turn)
        self.turn.begin(tuple(file.name for file in asking.request.files))

    async def _end(self, *, is_stored: bool) -> None:
        turn, self.turn, self._later = self.turn, self._later, None
        if turn is None:
            return
        turn.is_over = True
        if not is_stored:
            self._transcript.displace(turn)
        if self._transcript.follows:
            await turn.finish()
        self.gauge.rest()
        self._screen.post_message(Over())

    async def _open(self, opened: Opened) -> None:
        if opened.session != self.session:
            self.gauge = Gauge(memory=self.gauge.memory)
        for stored in opened.turns if opened.session != self.session else ():
            self.gauge.remember(stored.totals)
        self.session, self.profile, self.steps = opened.session, opened.profile, []
        await self._transcript.show(opened.turns, waiting=self.turn)
        self._show_title(opened.name)
        self.gauge.rest()
        if self.turn:
            self.gauge.ask(monotonic())
        if opened.trouble:
            await self._transcript.tell(opened.trouble, is_error=True)
        self._screen.post_message(Over())

    def _show_title(self, name: str) -> None:
        self.name = name
        about = f"profile {Path(self.profile).stem}"
        try:
            profile = load_profile(self.profile)
            about += f" {self._glyphs.dot} {Path(profile.models.target).name}"
            self.gauge.window = profile.limits.context
        except SpecchatError:
            self.gauge.window = None  # the host knows it; here it only cannot be shown
        self._screen.query_one("#title", Static).update(visible(f"specchat   {name}"))
        self._screen.query_one("#about", Static).update(visible(f"{about}   F1 keys  ^P menu"))

    def _note_engine(self, state: EngineState, now: float) -> None:
        self.engine_process = state.process
        self.gauge.memory = Memory("RAM", state.memory) if state.memory else None
        if self.turn is None and state.state == "loading":
            self.gauge.hear(Loading("the models", 0, 0), now)
        elif self.turn is None:
            self.gauge.rest()
        self.show_readings()
