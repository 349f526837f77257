"""Shows the messages of the session worker: the answer while it streams, and conversations when they open.

Called once per tick. Decisions and prompts are posted to the screen as messages.
"""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic, thread_time

from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallProgressed, CallStarted, LoopEnded, RoundStarted
from specchat.app.ask import Asked
from specchat.chat.events import Event, Failed, Finished, Notice, StepDone, TextDelta, ThinkingDelta
from specchat.chat.turn_summary import summary_line
from specchat.drawing.glyphs import Glyphs, printable
from specchat.errors import CancelledError, HostError
from specchat.tui.live_stats import LiveStats, Phase
from specchat.tui.status_bar import StatusBar
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import QuestionRef, TurnView
from specchat.tui.worker_messages import (
    AnswerEnded,
    ConversationNamed,
    ConversationOpened,
    EditFinished,
    EditMessage,
    EditProgress,
    EngineLost,
    EngineState,
    InputKind,
    InputRequest,
    RejectedEdit,
    TranscriptNote,
    VersionsChanged,
    WorkerMessage,
)

TICKS_PER_STATS = 4  # the status bar is updated four times a second
MAX_DRAWING_SHARE = 0.1  # of a core
MAX_DRAW_DELAY_SECONDS = 0.25


@dataclass
class DrawThrottle:
    """Limits drawing to a share of a core, but never delays it for long."""

    drawn_at: float = float("-inf")
    cpu_seconds_at_draw: float = 0.0

    def may_draw(self, now: float, cpu_seconds: float) -> bool:
        """Whether to draw now; `cpu_seconds` is the CPU time of the drawing thread."""
        waited, spent_since = now - self.drawn_at, cpu_seconds - self.cpu_seconds_at_draw
        if spent_since > MAX_DRAWING_SHARE * waited and waited < MAX_DRAW_DELAY_SECONDS:
            return False
        self.drawn_at, self.cpu_seconds_at_draw = now, cpu_seconds
        return True


class ReadyForInput(Message):
    """An answer has ended or a conversation was opened: the next prompt may be sent."""


@dataclass(frozen=True)
class EngineCrashed:
    """The engine process ended during an answer to this question."""

    reason: str
    question: QuestionRef


@dataclass
class ForScreen(Message):
    """A message of the worker that changes the bottom of the screen."""

    content: InputRequest | EditProgress | EngineLost | EngineCrashed


class ConversationPresenter:
    def __init__(self, screen: Screen[None], glyphs: Glyphs) -> None:
        self._screen, self._glyphs = screen, glyphs
        self.live_stats, self._draw_throttle = LiveStats(), DrawThrottle()
        self.unshown_text = ""  # of the answer
        self.turn: TurnView | None = None
        self._queued_turn: TurnView | None = None  # shown already, behind a request that was sent earlier
        self.session_id = self.profile_name = self.model = ""
        self.steps: list[StepDone] = []  # of the newest answer, for the inspector; empty for a stored answer
        self.resumable_session = ""  # the id of the open conversation, once it has a turn
        self._ticks = 0
        self._crash_reason = ""  # of the engine process, during the answer that has not ended yet
        self._thinking_since = 0.0  # when the thought of this answer began; 0: it did not

    @property
    def is_idle(self) -> bool:
        return self.turn is None and self.live_stats.phase is Phase.IDLE

    @property
    def _transcript(self) -> Transcript:
        return self._screen.query_one(Transcript)

    async def tick(self, messages: list[WorkerMessage]) -> None:
        now = monotonic()
        for message in messages:
            await self._on_message(message, now)
        if self.turn and self.unshown_text and self._draw_throttle.may_draw(now, thread_time()):
            self._show_text(self.turn)
        self._ticks += 1
        if self.is_idle or self._ticks % TICKS_PER_STATS == 0:
            self.update_status_bar()

    async def start_turn(self, question: str, stage: str = "waiting for the engine") -> None:
        """Show a request, and what it waits for, before the host has accepted it."""
        self.turn = await self._transcript.start_turn(question, before=self._queued_turn)
        self.live_stats.start_turn(monotonic(), stage)

    def _show_text(self, turn: TurnView) -> None:
        text, self.unshown_text = self.unshown_text, ""
        turn.append_text(text)

    def update_status_bar(self) -> None:
        self._screen.query_one(StatusBar).stats = self.live_stats.snapshot(monotonic())

    async def _on_message(self, message: WorkerMessage, now: float) -> None:
        match message:
            case TextDelta() | ThinkingDelta():
                self._on_text(message, now)
            case Asked() | AnswerEnded():
                await (self._on_asked(message) if isinstance(message, Asked) else self._on_answer_ended(message))
            case CallStarted() | CallProgressed() | CallFinished() | LoopEnded() | RoundStarted():
                await self._on_agent_event(message)
            case EngineState():
                self._on_engine_state(message, now)
            case ConversationOpened() | ConversationNamed() | VersionsChanged() | TranscriptNote() | RejectedEdit():
                await self._on_conversation_message(message)
            case InputRequest() | EditProgress() | EditFinished():
                self._on_edit_message(message)
            case EngineLost():
                self.live_stats.set_idle()
                self._screen.post_message(ForScreen(message))
            case Notice(text=text):
                await (self.turn.add_notice(text) if self.turn else self._transcript.add_note(text))
            case _:
                self._on_event(message, now)

    async def _on_conversation_message(
        self, message: ConversationOpened | ConversationNamed | VersionsChanged | TranscriptNote | RejectedEdit
    ) -> None:
        match message:
            case ConversationOpened():
                await self._on_opened(message)
            case ConversationNamed(name=name):
                self._show_title(name)
            case VersionsChanged(versions=versions):
                self._transcript.show_versions(versions)
            case TranscriptNote(text=text, is_error=is_error):
                await self._transcript.add_note(text, is_error=is_error)
                self._screen.post_message(ReadyForInput())
            case RejectedEdit(diff=diff):
                await self._transcript.add_diff(diff)

    async def _on_agent_event(self, event: AgentEvent) -> None:
        match event:
            case CallStarted(summary=summary) if self.turn:
                await self.turn.add_call(summary)
            case CallProgressed(line=line) if self.turn:
                self.turn.show_call_progress(line)
            case CallFinished(outcome=outcome) if self.turn:
                self.turn.end_call(outcome)
            case LoopEnded(reason=reason):
                await self._transcript.add_note(f"the work ended early: {reason}")
            case _:
                pass

    def _on_edit_message(self, message: EditMessage) -> None:
        match message:
            case InputRequest():
                self.live_stats.set_idle()
                if message.kind not in (InputKind.YES_NO, InputKind.CONSENT):
                    self._show_edit_line("review below, hunk by hunk")
                self._screen.post_message(ForScreen(message))
            case EditProgress(line=line):
                self._show_edit_line(line)
                self._screen.post_message(ForScreen(message))
            case EditFinished(text=text, is_error=is_error):
                self._show_edit_line(" ".join(text.splitlines()), is_error=is_error)

    def _show_edit_line(self, line: str, *, is_error: bool = False) -> None:
        if self.turn:
            self.turn.set_footer(line, is_error=is_error)

    def _on_text(self, delta: TextDelta | ThinkingDelta, now: float) -> None:
        if isinstance(delta, TextDelta):
            self.unshown_text += delta.text
            if self.turn and delta.text:
                self.turn.end_thinking()
            return
        self.live_stats.on_event(delta, now)
        if self.turn:
            self._thinking_since = self._thinking_since or now
            self.turn.append_thinking(delta.text, now - self._thinking_since)

    def _on_event(self, event: Event, now: float) -> None:
        self.live_stats.on_event(event, now)
        if isinstance(event, StepDone):
            self.steps.append(event)
        if self.turn is None or not isinstance(event, Finished | Failed):
            return
        self._show_text(self.turn)
        self.turn.end_thinking(event.totals.thinking_seconds if isinstance(event, Finished) else 0.0)
        if isinstance(event, Finished):
            if event.totals.repeated_tokens:
                self.turn.set_text(event.without_repeats(self.turn.answer))
                self.steps = list(event.kept_steps(self.steps))
            self.turn.set_footer(summary_line(event.totals, finish_reason=event.finish_reason))
            return
        is_stopped = event.exit_code == CancelledError.exit_code
        self.turn.set_footer(event.message if is_stopped else f"failed: {event.message}", is_error=not is_stopped)
        if event.exit_code == HostError.exit_code:
            self._crash_reason = event.message

    async def _on_asked(self, sent: Asked) -> None:
        if self.turn is None or self.turn.question != sent.request.text:
            self._queued_turn = self.turn
            await self.start_turn(sent.request.text)
        assert self.turn is not None
        self.steps, self._thinking_since, self.resumable_session = [], 0.0, self.session_id
        self._transcript.add_question(self.turn)
        self.turn.set_files(tuple(file.name for file in sent.request.files))

    async def _on_answer_ended(self, ended: AnswerEnded) -> None:
        turn, self.turn, self._queued_turn = self.turn, self._queued_turn, None
        if turn is None:
            return
        turn.is_finished = True
        if not ended.is_stored:
            self._transcript.remove_question(turn)
        if self._transcript.is_following:
            await turn.finalize()
        self.live_stats.set_idle()
        reason, self._crash_reason = self._crash_reason, ""
        if reason:  # not earlier: what is sent again would be behind this answer
            self._screen.post_message(ForScreen(EngineCrashed(reason, turn.question_ref)))
        self._screen.post_message(ReadyForInput())

    async def _on_opened(self, opened: ConversationOpened) -> None:
        kept = self._transcript.unstored_turns if opened.session_id == self.session_id else []
        if opened.session_id != self.session_id:
            self.live_stats = LiveStats(memory_bytes=self.live_stats.memory_bytes)
        for stored in opened.turns if opened.session_id != self.session_id else ():
            self.live_stats.add_stored_totals(stored.totals)
        self.session_id, self.profile_name, self.steps = opened.session_id, opened.profile, []
        self.model, self.resumable_session = opened.model, opened.session_id if opened.turns else ""
        self.live_stats.context_window, self.live_stats.model = opened.context_window or None, Path(opened.model).name
        await self._transcript.show_turns(opened.turns, self.turn, kept)
        self._transcript.show_versions(opened.versions)
        if opened.selected_position is not None:
            self._transcript.select(opened.selected_position)
        self._show_title(opened.session_name)
        self.live_stats.set_idle()
        if self.turn:
            self.live_stats.start_turn(monotonic())
        if opened.warning:
            await self._transcript.add_note(opened.warning, is_error=True)
        self._screen.post_message(ReadyForInput())

    def _show_title(self, name: str) -> None:
        self._transcript.show_welcome(Path(self.model).name)
        details = f"profile {Path(self.profile_name).stem}"
        if self.model:
            details += f" {self._glyphs.dot} {Path(self.model).name}"
        self._screen.query_one("#title", Static).update(printable(f"specchat   {name}"))
        self._screen.query_one("#about", Static).update(printable(details))

    def _on_engine_state(self, state: EngineState, now: float) -> None:
        self.live_stats.memory_bytes = state.memory_bytes
        if self.turn is None and state.loading:
            self.live_stats.on_event(state.loading, now)
        elif self.turn is None:
            self.live_stats.set_idle()
        self.update_status_bar()
