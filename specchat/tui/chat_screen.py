"""The screen of a conversation: what was said, the prompt, one line of numbers.

What a person does goes to the partner and comes back as news, which `hearing.py` shows. Nothing waits for an engine.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag
from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static

from specchat.commands.command_registry import COMMAND_PATTERN, FILE_COMMANDS
from specchat.tui import choice_lists
from specchat.tui.approval import Approval
from specchat.tui.background_requests import BackgroundRequests
from specchat.tui.bottom_area import BottomArea
from specchat.tui.clipboard import copy_text
from specchat.tui.code_block_header import CodeBlockHeader
from specchat.tui.completion_list import CompletionList
from specchat.tui.conversation_presenter import (
    ConversationPresenter,
    EditProgressed,
    EngineCrashed,
    EngineUnavailable,
    InputRequested,
    ReadyForInput,
)
from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.inspector import MIN_SIDE_BY_SIDE_COLUMNS, Inspector
from specchat.tui.inspector_controller import InspectorController
from specchat.tui.picker import Picker
from specchat.tui.prompt_history import append_prompt_history, read_prompt_history
from specchat.tui.prompt_input import PromptBox
from specchat.tui.screen_commands import help_text, screen_action
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import SessionWorker
from specchat.tui.smooth_stream import TICK_SECONDS
from specchat.tui.status_bar import StatusBar
from specchat.tui.token_view import TokenView
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import QuestionRef, TurnView, code_block_texts
from specchat.tui.worker_messages import MessageQueue

DOUBLE_PRESS_SECONDS = 2.0  # within which a key counts as pressed twice
SHORT_SCREEN_LINES = 12
BUSY_NOTICE = "an answer is being written; Esc stops it"
DECIDE_FIRST_NOTICE = "something is to be decided on first"
PROMPT_HINT = "Enter sends, Ctrl+J new line, @ file, / command"


class ChatScreen(Screen[None]):
    """One conversation."""

    HELP = "Esc stops an answer and keeps what was said. Ctrl+C stops, clears, and leaves when pressed twice."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop, back", id="stop"),
        Binding("ctrl+c", "interrupt", "stop, clear, leave", priority=True, id="interrupt"),
        Binding("f1", "toggle_help", "keys", id="help"),
        Binding("ctrl+r,f2", "open_sessions", "conversations", id="sessions"),
        Binding("f3", "inspect", "who guessed it", id="inspect"),
        Binding("f4", "choose('variant')", "who guesses", id="variant"),
        Binding("f5", "choose('profile')", "profile", id="profile"),
        Binding("f8", "choose('theme')", "colours", id="theme"),
        Binding("ctrl+o", "choose('question')", "earlier questions", id="history"),
        Binding("pageup", "scroll(-1)", "scroll", show=False, priority=True),
        Binding("pagedown", "scroll(1)", "scroll", show=False, priority=True),
        Binding("ctrl+home", "show_older", "older", show=False, priority=True),
        Binding("ctrl+end", "follow", "newest", show=False, priority=True),
    ]

    class MessagesArrived(Message):
        """There is news."""

    class Tick(Message):
        """Time to look. A message, for a call by the timer would be cut off when the screen closes."""

    def __init__(
        self,
        session_worker: SessionWorker,
        background_requests: BackgroundRequests,
        worker_messages: MessageQueue,
        glyphs: Glyphs,
        prompt_history_file: Path,
    ) -> None:
        super().__init__()
        self._session_worker, self._background_requests, self._worker_messages, self._glyphs = (
            session_worker,
            background_requests,
            worker_messages,
            glyphs,
        )
        self._prompt_history_file, self._prompt_history, self.presenter = (
            prompt_history_file,
            list[str](),
            ConversationPresenter(self, glyphs),
        )
        self._inspector_controller = InspectorController(self, self.presenter, background_requests, glyphs)
        self._cancelled = Flag()
        self._queued_prompts: list[str] = []
        self._replaced_question: QuestionRef | None = None
        self._quit_pressed_at = self._escape_pressed_at = float("-inf")
        self._is_tick_pending = False

    def compose(self) -> ComposeResult:
        """Title, transcript, prompt, numbers."""
        completion_list = CompletionList()
        with Horizontal(id="head"):
            yield Static("specchat", id="title", markup=False)
            yield Static("", id="about", markup=False)
        yield Transcript(self._glyphs)
        yield Static("", id="waiting", markup=False)
        yield BottomArea(self._glyphs, completion_list)
        yield StatusBar(self._glyphs)
        yield completion_list

    def on_mount(self) -> None:
        """The first frame comes before the host is looked for."""
        self.set_class(self._glyphs.is_ascii, "-ascii")
        self._prompt_history = read_prompt_history(self._prompt_history_file)
        self.prompt.placeholder = PROMPT_HINT
        self.prompt.set_earlier_questions(self._prompt_history)
        self.prompt.focus()
        self.presenter.live_stats.start_waiting("starting the engine", monotonic())
        self._tick_timer = self.set_interval(TICK_SECONDS, self._post_tick)
        self._session_worker.start()
        self._background_requests.start()

    def on_resize(self) -> None:
        """Title and rules give way on a small screen; on a wide one there is room beside the conversation."""
        self.set_class(self.size.height < SHORT_SCREEN_LINES, "-short")
        self.set_class(self.size.width >= MIN_SIDE_BY_SIDE_COLUMNS, "-beside")

    @property
    def prompt(self) -> PromptBox:
        """Where questions are written."""
        return self._bottom_area.prompt

    @property
    def _bottom_area(self) -> BottomArea:
        return self.query_one(BottomArea)

    @property
    def transcript(self) -> Transcript:
        """What was said."""
        return self.query_one(Transcript)

    def _post_tick(self) -> None:
        if not self._is_tick_pending:
            self._is_tick_pending = True
            self.post_message(self.Tick())

    async def on_chat_screen_tick(self) -> None:
        """Take what arrived; sleep when there is nothing to wait for."""
        self._is_tick_pending = False
        await self.presenter.tick(self._worker_messages.take_all())
        self._inspector_controller.update()
        if self.presenter.is_idle and self._worker_messages.is_empty:
            self._tick_timer.pause()

    def on_chat_screen_messages_arrived(self) -> None:
        """Look into the mailbox with the next ticks."""
        self._tick_timer.resume()

    def submit(self, text: str) -> None:
        """A question or a command, as soon as nothing else is being drawn."""
        self.call_later(self._submit, text)

    async def _submit(self, text: str) -> None:
        """Carry it out, ask it, or let it wait."""
        found = COMMAND_PATTERN.match(text.strip())
        action = screen_action(found["name"], (found["argument"] or "").strip()) if found else None
        if found and found["name"] == "help":
            await self.transcript.add_note(help_text())
        elif action:
            await self.run_action(action)
        elif self.presenter.turn is not None:
            self._queued_prompts.append(text)
        elif found and found["name"] in FILE_COMMANDS:
            await self._run_file_command(text)
        elif self._replaced_question is not None and not found:
            await self._resend_question(self._replaced_question, text)
        else:
            await self._ask(text, is_question=not found)
        self._show_queued()

    async def _ask(self, text: str, *, is_question: bool) -> None:
        self._cancelled = Flag()
        if is_question:
            await self.presenter.start_turn(text)
        self._session_worker.submit_line(text, self._cancelled)
        self._tick_timer.resume()

    async def _run_file_command(self, line: str) -> None:
        """A command about files; it stands in the transcript like a question, and is no part of the conversation."""
        self._replaced_question, self._cancelled = None, Flag()
        await self.presenter.start_turn(line)
        self._session_worker.submit_file_command(line, self._cancelled)
        self._tick_timer.resume()

    @on(InputRequested)
    async def show_input_request(self, event: InputRequested) -> None:
        """Something is to be decided on, where the prompt was; what is written there stays."""
        if approval := self._bottom_area.approval:
            approval.show_request(event.request)
        else:
            await self._bottom_area.replace_prompt(Approval(event.request, self._glyphs, choice_lists.GRACE_SECONDS))

    @on(EditProgressed)
    def show_progress(self, event: EditProgressed) -> None:
        """Also where a hunk is being written again."""
        if approval := self._bottom_area.approval:
            approval.show_progress(event.line)

    @on(Approval.Answered)
    def send_answer(self, event: Approval.Answered) -> None:
        """Whoever edits hears it."""
        self._session_worker.answer_input_request(event.text)

    async def _resend_question(self, asked: QuestionRef, text: str) -> None:
        """In the place of that question, or after all when it is no part of the conversation."""
        self._replaced_question, self._cancelled = None, Flag()
        if COMMAND_PATTERN.match(text.strip()):
            await self._submit(text)
            return
        if asked.position is None:
            await self._ask(text, is_question=True)
            return
        self._session_worker.replace_question(asked.position, text, self._cancelled)
        self._tick_timer.resume()

    @on(ReadyForInput)
    async def send_next_queued(self) -> None:
        """What waited is asked now."""
        self._background_requests.poll_engine_state()
        await self._inspector_controller.refresh()
        if self._bottom_area.approval and self.presenter.turn is None:
            await self._bottom_area.restore_prompt()
        if self._queued_prompts and self.presenter.turn is None:
            await self._submit(self._queued_prompts.pop(0))
        self._show_queued()

    @on(EngineCrashed)
    async def offer_retry(self, event: EngineCrashed) -> None:
        """The engine broke: ask once more?"""
        self._replaced_question = event.turn.question_ref
        await self._bottom_area.replace_prompt(choice_lists.retry_picker(event.reason))

    @on(EngineUnavailable)
    async def offer_engine_restart(self, event: EngineUnavailable) -> None:
        """Start it once more?"""
        await self._bottom_area.replace_prompt(choice_lists.engine_lost_picker(event.reason))

    def _show_queued(self) -> None:
        waiting = self.query_one("#waiting", Static)
        waiting.display = bool(self._queued_prompts) or self._replaced_question is not None
        edited = "this replaces an earlier question; Esc leaves it as it is"
        waiting.update(f"next: {printable(' / '.join(self._queued_prompts))}" if self._queued_prompts else edited)

    @on(PromptBox.Sent)
    async def send(self, event: PromptBox.Sent) -> None:
        """Ask it, and remember it."""
        self.prompt.clear_all()
        append_prompt_history(self._prompt_history_file, event.text)
        self._prompt_history.append(event.text)
        self.prompt.set_earlier_questions(self._prompt_history)
        await self._submit(event.text)

    @on(OptionList.OptionSelected, "#completions")
    def accept_clicked_completion(self) -> None:
        """A click takes one."""
        self._bottom_area.accept_completion(is_enter=False)
        self.prompt.focus()

    @on(Picker.Cancelled)
    async def close_picker(self) -> None:
        """Back to the prompt."""
        self._replaced_question = None
        await self._bottom_area.restore_prompt()
        self._show_queued()

    @on(Picker.Picked)
    async def handle_pick(self, event: Picker.Picked) -> None:
        """Do what was chosen."""
        broken, self._replaced_question = self._replaced_question, None
        await self._bottom_area.restore_prompt()
        self._show_queued()
        match event.purpose, event.value:
            case ("variant" | "profile") as command, value:
                await self._submit(f"/{command} {value}")
            case "theme", name:
                self.app.theme = name
            case "question", text:
                self.prompt.set_text(text)
            case "rewind", place if int(place) < len(self.transcript.question_refs):
                self._reword_question(self.transcript.question_refs[int(place)])
            case "again", "again" if broken is not None:
                await self._resend_question(broken, broken.text)
            case "lost", "connect":
                self.presenter.live_stats.start_waiting("starting the engine", monotonic())
                self._session_worker.reconnect()
                self._tick_timer.resume()
            case "lost", "quit":
                self.app.exit()
            case _:
                pass

    @on(TurnView.ActionRequested)
    async def run_turn_action(self, event: TurnView.ActionRequested) -> None:
        """Do something with a turn."""
        turn = event.turn
        match event.action:
            case "inspect" if turn.position is not None:
                await self._inspector_controller.open(turn.position)
            case "copy":
                self._copy_text(turn.answer)
            case "code":
                self._copy_text((code_block_texts(turn.answer) or [""])[-1])
            case "edit" | "again" | "fork" if self.presenter.turn is not None:
                self.notify(BUSY_NOTICE, markup=False)
            case "edit":
                self._reword_question(turn.question_ref)
            case "again":
                await self._resend_question(turn.question_ref, turn.question)
            case "fork" if turn.position is not None:
                self._session_worker.fork(turn.position)
            case _:
                self.notify("this question is not part of the conversation", markup=False)

    @on(CodeBlockHeader.Clicked)
    def copy_code_block(self, event: CodeBlockHeader.Clicked) -> None:
        """One block of code among others."""
        self._copy_text(event.code)

    def _reword_question(self, asked: QuestionRef) -> None:
        self._replaced_question = asked
        self.prompt.set_text(asked.text)
        self.prompt.focus()
        self._show_queued()

    def _copy_text(self, text: str) -> None:
        if not text:
            self.notify("there is nothing to copy", markup=False)
            return
        ways = copy_text(self.app, text)
        self.notify(f"{len(text):,} characters copied ({ways})", markup=False)

    @on(Transcript.ReachedEnd)
    async def show_pending_text(self) -> None:
        """The end is in sight again."""
        await self.presenter.show_pending_text()

    @on(Approval.StopRequested)
    def stop_answer(self) -> None:
        """End the answer that is being written."""
        self._cancelled.set()

    def action_stop(self) -> None:
        """Close a list; else stop the answer; else leave an edit; else go back to the prompt; twice: to a question."""
        self.call_later(self._stop_or_go_back)

    async def _stop_or_go_back(self) -> None:
        if approval := self._bottom_area.approval:
            approval.action_cancel()
            return
        if self._bottom_area.is_prompt_replaced:
            await self.close_picker()
            return
        is_idle = self.prompt.has_focus and not self.prompt.text
        if self.presenter.turn is not None:
            self.stop_answer()
            if self._queued_prompts:
                self.prompt.set_text("\n".join(self._queued_prompts))
                self._queued_prompts.clear()
        elif self._replaced_question is not None:
            self._replaced_question = None
            self.prompt.clear_all()
        elif is_idle and monotonic() - self._escape_pressed_at < DOUBLE_PRESS_SECONDS:
            await self._open_picker("rewind")
            return
        elif is_idle:
            self._escape_pressed_at = monotonic()
        self._show_queued()
        self.prompt.focus()

    def action_interrupt(self) -> None:
        """Copy what is selected, stop the answer, clear the prompt; and twice: leave."""
        selected = self.prompt.selected_text or self.get_selected_text()
        if selected:
            self._copy_text(selected)
        elif self.presenter.turn is not None:
            self.action_stop()
        elif self.prompt.text:
            self.prompt.clear_all()
        elif monotonic() - self._quit_pressed_at < DOUBLE_PRESS_SECONDS:
            self.app.exit()
        else:
            self._quit_pressed_at = monotonic()
            self.notify("Ctrl+C once more leaves; everything is kept", timeout=DOUBLE_PRESS_SECONDS, markup=False)

    def action_scroll(self, direction: int) -> None:
        """A page up or down, of the conversation or of what is inspected."""
        paged = self.focused if isinstance(self.focused, TokenView) else self.transcript
        if direction < 0:
            paged.scroll_page_up(animate=False)
        else:
            paged.scroll_page_down(animate=False)

    @on(Transcript.OlderRequested)
    def action_show_older(self) -> None:
        """More of a long conversation."""
        self.call_later(self.transcript.show_older)

    def action_follow(self) -> None:
        """To the newest line."""
        self.transcript.follow()

    def action_toggle_help(self) -> None:
        """Every key of what has the focus."""
        try:
            self.query_one("HelpPanel")
        except NoMatches:
            self.app.action_show_help_panel()
        else:
            self.app.action_hide_help_panel()

    def action_open_sessions(self) -> None:
        """The list of conversations."""

        def go_on(chosen: tuple[str, str] | None) -> None:
            if chosen is None:
                return
            way, session = chosen
            (self._session_worker.fork_session if way == "fork" else self._session_worker.open)(session)
            self._tick_timer.resume()

        self.app.push_screen(SessionsScreen(self._background_requests, self.presenter.session_id, self._glyphs), go_on)

    def action_inspect(self) -> None:
        """Look into the newest answer, or no longer."""
        self.call_later(self._inspector_controller.toggle)

    @on(Inspector.Closed)
    async def close_inspector(self) -> None:
        """Back to the prompt."""
        await self._inspector_controller.close()

    @on(InspectorController.StepsFetched)
    def show_fetched_steps(self, event: InspectorController.StepsFetched) -> None:
        """The host knows the steps of a turn."""
        self._inspector_controller.show_fetched_steps(event)

    def action_open_picker(self, purpose: str) -> None:
        """Open a list in the place of the prompt."""
        self.call_later(self._open_picker, purpose)

    async def _open_picker(self, what: str) -> None:
        self._escape_pressed_at = float("-inf")
        if what == "rewind" and self.presenter.turn is not None:
            self.notify(BUSY_NOTICE, markup=False)
            return
        if self._bottom_area.approval:
            self.notify(DECIDE_FIRST_NOTICE, markup=False)
            return
        picker = choice_lists.make_picker(
            what, self._prompt_history, self.transcript.question_refs, sorted(self.app.available_themes)
        )
        if picker:
            await self._bottom_area.replace_prompt(picker)

    def action_last_turn(self, action: str) -> None:
        """Copy or edit the last turn."""
        turns = self.transcript.turns
        if turns:
            self.post_message(TurnView.ActionRequested(turns[-1], action))
