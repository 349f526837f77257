"""The screen of a conversation: transcript, prompt and status line.

User actions go to the session worker; its messages come back and are shown by `conversation_presenter.py`. No handler
waits for the engine.
"""

import asyncio
from pathlib import Path
from threading import Event as Flag
from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Key, Paste
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static

from specchat.app.command_registry import COMMAND_PATTERN, FILE_COMMANDS
from specchat.drawing.glyphs import Glyphs, printable
from specchat.errors import SpecchatError
from specchat.hub.runnable_models import local_choices
from specchat.tui import picker
from specchat.tui.approval import Approval
from specchat.tui.background_requests import BackgroundRequests, Response
from specchat.tui.bottom_area import BottomArea, CompletionList
from specchat.tui.clipboard import copy_text
from specchat.tui.code_block_header import CodeBlockHeader
from specchat.tui.conversation_presenter import ConversationPresenter, EngineCrashed, ForScreen, ReadyForInput
from specchat.tui.inspector import MIN_SIDE_BY_SIDE_COLUMNS, Inspector
from specchat.tui.inspector_controller import InspectorController
from specchat.tui.keys_screen import KEY_GROUPS, KeysScreen, key_lines, selection_keys
from specchat.tui.preferences import Preferences, unknown_theme
from specchat.tui.prompt_input import PromptBox, append_prompt_history, read_prompt_history
from specchat.tui.screen_commands import help_text, screen_action
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import SessionWorker
from specchat.tui.smooth_stream import TICK_SECONDS
from specchat.tui.status_bar import StatusBar
from specchat.tui.token_view import TokenView
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import QuestionRef, TurnView, code_block_texts
from specchat.tui.vi_keys import ViKeys
from specchat.tui.worker_messages import EditProgress, EngineLost, InputRequest, MessageQueue, QuitRequested

DOUBLE_PRESS_SECONDS = 2.0  # within which a key counts as pressed twice
SHORT_SCREEN_LINES = 12
BUSY_NOTICE = "an answer is in progress; Esc stops it"
DECIDE_FIRST_NOTICE = "a decision is pending; answer it first"
PROMPT_HINT = "Enter sends, Ctrl+J new line, @ file, / command"


class ChatScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop, back", id="stop"),
        Binding("ctrl+c", "interrupt", "stop, clear, quit", priority=True, id="interrupt"),
        Binding("f1", "show_keys", "all keys", id="help"),
        Binding("shift+tab", "select_turn(-1)", "select an answer, to copy or edit", id="select"),
        Binding("ctrl+r,f2", "open_sessions", "conversations", id="sessions"),
        Binding("f3", "inspect", "inspect the answer", id="inspect"),
        Binding("f4", "open_picker('variant')", "drafter", id="variant"),
        Binding("f5", "open_picker('profile')", "profile", id="profile"),
        Binding("f6", "open_picker('model')", "model", id="model", priority=True),  # the prompt has a use for it, too
        Binding("f8", "open_picker('theme')", "theme", id="theme"),
        Binding("ctrl+o", "open_picker('question')", "earlier prompts", id="history"),
        Binding("tab", "switch_focus", "inspector, prompt", show=False),
        Binding("pageup", "scroll(-1)", "scroll", show=False, priority=True),
        Binding("pagedown", "scroll(1)", "scroll", show=False, priority=True),
        Binding("ctrl+home", "show_older", "older", show=False, priority=True),
        Binding("ctrl+end", "follow", "newest", show=False, priority=True),
    ]

    class MessagesArrived(Message):
        """The message queue is no longer empty."""

    class Tick(Message):
        """Time to drain the queue. A message, because a direct timer call is cut off when the screen closes."""

    def __init__(
        self,
        session_worker: SessionWorker,
        background_requests: BackgroundRequests,
        worker_messages: MessageQueue,
        glyphs: Glyphs,
        preferences: Preferences,
        prompt_history_file: Path | None,
    ) -> None:
        super().__init__()
        self._preferences = preferences
        self._session_worker, self._background_requests = session_worker, background_requests
        self._worker_messages, self._glyphs = worker_messages, glyphs
        self._prompt_history_file, self._prompt_history = prompt_history_file, list[str]()
        self.presenter = ConversationPresenter(self, glyphs)
        self._inspector_controller = InspectorController(
            self, self.presenter, background_requests, glyphs, session_worker.watch_probabilities
        )
        self._cancelled = Flag()
        self._queued_prompts: list[str] = []
        self._replaced_question: QuestionRef | None = None
        self._crashed_question: QuestionRef | None = None  # while the user decides whether it is sent again
        self._unsent_text = ""  # of the prompt, while an earlier request is edited there
        self._quit_pressed_at = self._leave_pressed_at = self._escape_pressed_at = float("-inf")
        self._is_tick_pending = False

    def compose(self) -> ComposeResult:
        completion_list = CompletionList()
        with Horizontal(id="head"):
            yield Static("specchat", id="title", markup=False)
            yield Static("", id="about", markup=False)
        yield Transcript(self._glyphs)
        yield Static("", id="queued", markup=False)
        yield BottomArea(self._glyphs, completion_list, ViKeys() if self._preferences.uses_vi_keys else None)
        yield Static("", id="selection", markup=False)
        yield StatusBar(self._glyphs)
        yield completion_list

    def on_mount(self) -> None:
        """Draw the first frame before the host is looked up."""
        self.set_class(self._glyphs.is_ascii, "-ascii")
        if self._prompt_history_file:
            self._prompt_history = read_prompt_history(self._prompt_history_file)
        self.prompt.placeholder = PROMPT_HINT
        self.prompt.set_earlier_questions(self._prompt_history)
        self.prompt.focus()
        self.watch(self, "focused", self._show_selection_keys, init=False)
        self.presenter.live_stats.start_waiting("starting the engine", monotonic())
        self._tick_timer = self.set_interval(TICK_SECONDS, self._post_tick)
        self._session_worker.start()
        self._background_requests.start()

    def on_resize(self) -> None:
        """Hide title and rules on a short screen; show the inspector beside the conversation on a wide one."""
        self.set_class(self.size.height < SHORT_SCREEN_LINES, "-short")
        self.set_class(self.size.width >= MIN_SIDE_BY_SIDE_COLUMNS, "-beside")

    @property
    def prompt(self) -> PromptBox:
        return self._bottom_area.prompt

    @property
    def _bottom_area(self) -> BottomArea:
        return self.query_one(BottomArea)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def _post_tick(self) -> None:
        if not self._is_tick_pending:
            self._is_tick_pending = True
            self.post_message(self.Tick())

    async def on_chat_screen_tick(self) -> None:
        self._is_tick_pending = False
        await self.presenter.tick(self._worker_messages.take_all())
        self._inspector_controller.update()
        if self.presenter.is_idle and self._worker_messages.is_empty:
            self._tick_timer.pause()

    def on_chat_screen_messages_arrived(self) -> None:
        self._tick_timer.resume()

    def submit(self, text: str) -> None:
        self.call_later(self._submit, text)

    async def _submit(self, text: str) -> None:
        """Run it, send it, or queue it behind the current answer."""
        match = COMMAND_PATTERN.match(text.strip())
        action = screen_action(match["name"], (match["argument"] or "").strip()) if match else None
        if match and match["name"] == "help":
            await self.transcript.add_note(help_text())
        elif action:
            await self.run_action(action)
        elif self.presenter.turn is not None:
            self._queued_prompts.append(text)
        elif match and match["name"] in FILE_COMMANDS:
            await self._run_file_command(text)
        elif self._replaced_question is not None and not match:
            await self._resend_question(self._replaced_question, text)
        else:
            await self._ask(text, is_question=not match)
        self._show_queued()

    async def _ask(self, text: str, *, is_question: bool) -> None:
        self._cancelled = Flag()
        if is_question:
            await self.presenter.start_turn(text)
        self._session_worker.submit(self._session_worker.run_line, text, self._cancelled)
        self._tick_timer.resume()

    async def _run_file_command(self, line: str) -> None:
        """Run a file command; it appears in the transcript like a request, but is not part of the conversation."""
        self._replaced_question, self._cancelled = None, Flag()
        await self.presenter.start_turn(line)
        self._session_worker.submit(self._session_worker.run_file_command, line, self._cancelled)
        self._tick_timer.resume()

    @on(ForScreen)
    async def show_worker_message(self, event: ForScreen) -> None:
        approval = self._bottom_area.approval
        match event.content:
            case InputRequest() as request if approval:
                approval.show_request(request)
            case InputRequest() as request:
                await self._bottom_area.replace_prompt(Approval(request, self._glyphs, picker.GRACE_SECONDS))
            case EditProgress(line=line):
                if approval:
                    approval.show_progress(line)
            case QuitRequested():
                await self.leave()
            case EngineLost(reason=reason):
                await self._bottom_area.replace_prompt(picker.engine_lost_picker(reason))

    @on(Approval.Answered)
    def send_answer(self, event: Approval.Answered) -> None:
        self._session_worker.answer_input_request(event.text)

    async def _resend_question(self, question: QuestionRef, text: str) -> None:
        """Send another version of that request, or a new one if it is not part of the conversation."""
        self._replaced_question, self._cancelled = None, Flag()
        self._restore_unsent_text()
        if COMMAND_PATTERN.match(text.strip()):
            await self._submit(text)
            return
        if question.position is None:
            await self._ask(text, is_question=True)
            return
        worker = self._session_worker
        worker.submit(worker.replace_question, question.position, text, self._cancelled)
        self._tick_timer.resume()

    @on(ReadyForInput)
    async def send_next_queued(self) -> None:
        self._background_requests.poll_engine_state()
        await self._inspector_controller.refresh()
        if self._bottom_area.approval and self.presenter.turn is None:
            await self._bottom_area.restore_prompt()
        if self._queued_prompts and self.presenter.turn is None and self._crashed_question is None:
            await self._submit(self._queued_prompts.pop(0))
        self._show_queued()

    @on(EngineCrashed)
    async def offer_retry(self, event: EngineCrashed) -> None:
        self._crashed_question = event.turn.question_ref
        await self._bottom_area.replace_prompt(picker.retry_picker(event.reason))

    def _show_queued(self) -> None:
        notice = self.query_one("#queued", Static)
        notice.display = bool(self._queued_prompts) or self._replaced_question is not None
        replacing = "this becomes another version of an earlier request; Esc cancels"
        notice.update(f"next: {printable(' / '.join(self._queued_prompts))}" if self._queued_prompts else replacing)

    @on(PromptBox.Sent)
    async def send(self, event: PromptBox.Sent) -> None:
        self.prompt.clear_all()
        if self._prompt_history_file:
            append_prompt_history(self._prompt_history_file, event.text)
        self._prompt_history.append(event.text)
        self.prompt.set_earlier_questions(self._prompt_history)
        await self._submit(event.text)

    @on(OptionList.OptionSelected, "#completions")
    def accept_clicked_completion(self) -> None:
        self._bottom_area.accept_completion(is_enter=False)
        self.prompt.focus()

    @on(picker.Picker.Cancelled)
    async def close_picker(self) -> None:
        await self._bottom_area.restore_prompt()
        self._resume_queue()

    @on(picker.Picker.Picked)
    async def handle_choice(self, event: picker.Picker.Picked) -> None:
        crashed = self._crashed_question
        await self._bottom_area.restore_prompt()
        if event.value == "retry":
            self._crashed_question = None
        self._resume_queue()
        match event.purpose, event.value:
            case ("variant" | "model" | "profile") as command, value:
                await self._submit(f"/{command} {value}")
            case "theme", name:
                self.app.theme = name
            case "question", text:
                self.prompt.set_text(text)
            case "rewind", position if int(position) < len(self.transcript.question_refs):
                self._reword_question(self.transcript.question_refs[int(position)])
            case "retry", "retry" if crashed is not None:
                await self._resend_question(crashed, crashed.text)
            case "leave", "leave":
                self.app.exit()
            case "engine_lost", "connect":
                self.presenter.live_stats.start_waiting("starting the engine", monotonic())
                self._session_worker.submit(self._session_worker.connect)
                self._tick_timer.resume()
            case "engine_lost", "quit":
                self.app.exit()
            case _:
                pass

    @on(TurnView.ActionRequested)
    async def run_turn_action(self, event: TurnView.ActionRequested) -> None:
        turn = event.turn
        match event.action:
            case "inspect" if turn.position is not None:
                await self._inspector_controller.open(turn.position)
            case "copy":
                self._copy_text(turn.answer)
            case "code":
                self._copy_text((code_block_texts(turn.answer) or [""])[-1])
            case "edit" | "retry" | "fork" | "earlier_version" | "later_version" if self.presenter.turn is not None:
                self.notify(BUSY_NOTICE, markup=False)
            case "edit":
                self._reword_question(turn.question_ref)
            case "retry":
                await self._resend_question(turn.question_ref, turn.question)
            case "earlier_version" | "later_version" if turn.position is not None:
                step = -1 if event.action == "earlier_version" else 1
                self._session_worker.submit(self._session_worker.switch_version, turn.position, step)
                self._tick_timer.resume()
            case "fork" if turn.position is not None:
                self._session_worker.submit(self._session_worker.fork, turn.position)
            case _:
                self.notify("this request is not part of the conversation", markup=False)

    @on(CodeBlockHeader.Clicked)
    def copy_code_block(self, event: CodeBlockHeader.Clicked) -> None:
        self._copy_text(event.code)

    def _reword_question(self, question: QuestionRef) -> None:
        if self._replaced_question is None:
            self._unsent_text = self.prompt.expanded_text
        self._replaced_question = question
        self.prompt.set_text(question.text)
        self.prompt.focus()
        self._show_queued()

    def _resume_queue(self) -> None:
        """The interrupted question stays as it is: go on with those behind it."""
        if self._crashed_question is not None:
            self._crashed_question = None
            self.post_message(ReadyForInput())

    def _restore_unsent_text(self) -> None:
        if self._unsent_text and not self.prompt.text:
            self.prompt.set_text(self._unsent_text)
        self._unsent_text = ""

    async def leave(self) -> None:
        """Quit; while questions wait for their answers, ask first. A second request to quit is obeyed."""
        is_asked = bool(self.query(".leave")) or monotonic() - self._leave_pressed_at < DOUBLE_PRESS_SECONDS
        if not self._queued_prompts or is_asked:
            self.app.exit()
            return
        if self._bottom_area.approval:
            self._leave_pressed_at = monotonic()
            self.notify("questions wait to be answered; once more quits", timeout=DOUBLE_PRESS_SECONDS, markup=False)
            return
        await self._bottom_area.replace_prompt(picker.leave_picker(len(self._queued_prompts)))

    def _copy_text(self, text: str) -> None:
        if not text:
            self.notify("nothing to copy", markup=False)
            return
        targets = copy_text(self.app, text)
        self.notify(f"{len(text):,} characters copied ({targets})", markup=False)

    @on(Transcript.ReachedEnd)
    async def show_pending_text(self) -> None:
        await self.presenter.show_pending_text()

    @on(Approval.StopRequested)
    def stop_answer(self) -> None:
        self._cancelled.set()

    def action_stop(self) -> None:
        """Close a list, stop the answer, cancel a rewording, or focus the prompt; twice: go back to a turn."""
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
                self.prompt.set_text("\n".join(filter(None, [*self._queued_prompts, self.prompt.expanded_text])))
                self._queued_prompts.clear()
        elif self._replaced_question is not None:
            self._replaced_question = None
            self.prompt.clear_all()
            self._restore_unsent_text()
        elif is_idle and monotonic() - self._escape_pressed_at < DOUBLE_PRESS_SECONDS:
            await self._open_picker("rewind")
            return
        elif is_idle:
            self._escape_pressed_at = monotonic()
        self._show_queued()
        self.prompt.focus()

    def action_interrupt(self) -> None:
        """Copy a selection, else stop the answer, else clear the prompt; twice: quit."""
        selected = self.prompt.selected_text or self.get_selected_text()
        if selected:
            self._copy_text(selected)
        elif self.presenter.turn is not None:
            self.action_stop()
        elif self.prompt.text:
            self.prompt.clear_all()
        elif monotonic() - self._quit_pressed_at < DOUBLE_PRESS_SECONDS:
            self.call_later(self.leave)
        else:
            self._quit_pressed_at = monotonic()
            self.notify("Ctrl+C again quits; the conversation is stored", timeout=DOUBLE_PRESS_SECONDS, markup=False)

    def action_select_turn(self, step: int) -> None:
        """Select an answer, the newest one first; after the last one, return to the prompt."""
        turns = self.transcript.turns
        if not turns or self._bottom_area.is_prompt_replaced:
            return
        current = turns.index(self.focused) if isinstance(self.focused, TurnView) else len(turns)
        target = max(current + step, 0)
        (turns[target] if target < len(turns) else self.prompt).focus()

    def action_switch_focus(self) -> None:
        """Go from the prompt to the open inspector, and from anywhere else to the prompt."""
        views = self.query(TokenView)
        (views.first() if views and self.prompt.has_focus else self.prompt).focus()

    def _show_selection_keys(self) -> None:
        """While an answer is selected, a line says which keys act on it."""
        line, turn = self.query_one("#selection", Static), self.focused
        line.display = isinstance(turn, TurnView)
        if isinstance(turn, TurnView):
            keys = selection_keys(self._preferences.keys)
            turns = self.transcript.turns
            line.update(f"answer {turns.index(turn) + 1} of {len(turns)} is selected: {keys}  Esc back")

    def on_key(self, event: Key) -> None:
        """Letters always type: what no widget has bound goes to the prompt."""
        if event.is_printable and event.character and event.key not in self.active_bindings:
            event.stop()
            self._type(event.character)

    def on_paste(self, event: Paste) -> None:
        if not self._bottom_area.is_prompt_replaced:
            event.stop()
            self.prompt.focus()
            self.prompt.insert_pasted(event.text)

    def _type(self, text: str) -> None:
        if text and not self._bottom_area.is_prompt_replaced:
            self.prompt.focus()
            self.prompt.insert(text)

    def action_scroll(self, direction: int) -> None:
        view = self.focused if isinstance(self.focused, TokenView) else self.transcript
        if direction < 0:
            view.scroll_page_up(animate=False)
        else:
            view.scroll_page_down(animate=False)

    @on(Transcript.OlderRequested)
    def action_show_older(self) -> None:
        self.call_later(self.transcript.show_older)

    def action_follow(self) -> None:
        self.transcript.follow()

    def action_show_keys(self) -> None:
        bindings = [*self.app.BINDINGS, *self.BINDINGS, *TurnView.BINDINGS, *Inspector.BINDINGS, *TokenView.BINDINGS]
        keys = self._preferences.keys
        page = KeysScreen(key_lines(KEY_GROUPS, bindings, keys), keys.get("help", "f1"), self._glyphs)
        self.app.push_screen(page, lambda typed: self._type(typed or ""))

    def action_open_sessions(self) -> None:
        def open_chosen(chosen: tuple[str, str] | None) -> None:
            if chosen is None:
                return
            method, session_id = chosen
            if method == "fork":
                self._session_worker.submit(self._session_worker.switch, session_id, "fork")
            else:
                self._session_worker.submit(self._session_worker.open, session_id)
            self._tick_timer.resume()

        self.app.push_screen(
            SessionsScreen(self._background_requests, self.presenter.session_id, self._glyphs), open_chosen
        )

    def action_inspect(self) -> None:
        self.call_later(self._inspector_controller.toggle)

    async def action_set_theme(self, name: str) -> None:
        if name in self.app.available_themes:
            self.app.theme = name
        else:
            await self.transcript.add_note(unknown_theme(name), is_error=True)

    def action_open_picker(self, purpose: str) -> None:
        self.call_later(self._open_picker, purpose)

    async def _open_picker(self, purpose: str) -> None:
        self._escape_pressed_at = float("-inf")
        if purpose == "rewind" and self.presenter.turn is not None:
            self.notify(BUSY_NOTICE, markup=False)
            return
        if self._bottom_area.approval:
            self.notify(DECIDE_FIRST_NOTICE, markup=False)
            return
        if purpose == "variant":
            session = {"session": self.presenter.session_id}
            self._background_requests.send("list_variants", session, self, self._open_variants)
            return
        if purpose == "model":
            choices = await asyncio.to_thread(lambda: list(local_choices()))
            await self._bottom_area.replace_prompt(picker.model_picker(choices, self.presenter.model))
            return
        opened = picker.make_picker(
            purpose, self._prompt_history, self.transcript.question_refs, sorted(self.app.available_themes)
        )
        if opened:
            await self._bottom_area.replace_prompt(opened)

    async def _open_variants(self, response: Response) -> None:
        """Open the list of drafters; an error leaves open which of them can run."""
        is_known = not isinstance(response, SpecchatError) and response["is_loaded"]
        available = response["variants"] if is_known and not isinstance(response, SpecchatError) else None
        await self._bottom_area.replace_prompt(picker.variant_picker(available))

    def action_last_turn(self, action: str) -> None:
        turns = self.transcript.turns
        if turns:
            self.post_message(TurnView.ActionRequested(turns[-1], action))
