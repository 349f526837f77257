"""The screen of a conversation: transcript, prompt and status line.

User actions go to the session worker; its messages come back and are shown by `conversation_presenter.py`. No handler
waits for the engine.
"""

from pathlib import Path
from time import monotonic
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message

from specchat.drawing.glyphs import Glyphs
from specchat.tui import picker
from specchat.tui.approval import Approval
from specchat.tui.background_requests import BackgroundRequests
from specchat.tui.clipboard import copy_text
from specchat.tui.code_block_header import CodeBlockHeader
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter, EngineCrashed, ForScreen, ReadyForInput
from specchat.tui.inspector import Inspector
from specchat.tui.inspector_controller import InspectorController
from specchat.tui.keys_screen import KEY_GROUPS, KeysScreen, key_lines
from specchat.tui.pending_prompts import DOUBLE_PRESS_SECONDS, DoublePress
from specchat.tui.picker_controller import BUSY_NOTICE, PickerController
from specchat.tui.preferences import Preferences, unknown_theme
from specchat.tui.prompt_input import PromptBox, append_prompt_history, read_prompt_history
from specchat.tui.prompt_sender import PromptSender
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import SessionWorker
from specchat.tui.smooth_stream import TICK_SECONDS
from specchat.tui.token_view import TokenView
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import TurnView, code_block_texts
from specchat.tui.worker_messages import EditProgress, EngineLost, InputRequest, MessageQueue, QuitRequested


class ChatScreen(ConversationLayout):
    """A conversation that the user takes part in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop, back", id="stop"),
        Binding("ctrl+c", "interrupt", "stop, clear, quit", priority=True, id="interrupt"),
        Binding("f1", "show_keys", "all keys", id="help"),
        Binding("ctrl+r,f2", "open_sessions", "conversations", id="sessions"),
        Binding("f3", "inspect", "inspect the answer", id="inspect"),
        Binding("f4", "open_picker('variant')", "drafter", id="variant"),
        Binding("f5", "open_picker('profile')", "profile", id="profile"),
        Binding("f6", "open_picker('model')", "model", id="model", priority=True),  # the prompt has a use for it, too
        Binding("f8", "open_picker('theme')", "theme", id="theme"),
        Binding("ctrl+o", "open_picker('question')", "earlier prompts", id="history"),
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
        super().__init__(glyphs, preferences)
        self._session_worker, self._background_requests = session_worker, background_requests
        self._worker_messages = worker_messages
        self._prompt_history_file, self._prompt_history = prompt_history_file, list[str]()
        self.presenter = ConversationPresenter(self, glyphs)
        self._inspector_controller = InspectorController(
            self, self.presenter, background_requests, glyphs, session_worker.watch_probabilities
        )
        self._sender = PromptSender(self, self.presenter, session_worker, self._wake)
        self._pickers = PickerController(
            self, self.presenter, self._sender, background_requests, self._prompt_history, self._connect
        )
        self._quit_key, self._leave_key, self._escape_key = DoublePress(), DoublePress(), DoublePress()
        self._is_tick_pending = False

    def on_mount(self) -> None:
        """Draw the first frame before the host is looked up. Textual calls that of the layout, too."""
        if self._prompt_history_file:
            self._prompt_history.extend(read_prompt_history(self._prompt_history_file))
        self.prompt.set_earlier_questions(self._prompt_history)
        self.presenter.live_stats.start_waiting("starting the engine", monotonic())
        self._tick_timer = self.set_interval(TICK_SECONDS, self._post_tick)
        self._session_worker.start()
        self._background_requests.start()

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

    @on(MessagesArrived)
    def _wake(self) -> None:
        self._tick_timer.resume()

    def submit(self, text: str) -> None:
        self.call_later(self._sender.submit, text)

    @on(ForScreen)
    async def show_worker_message(self, event: ForScreen) -> None:
        approval = self.bottom_area.approval
        match event.content:
            case InputRequest() as request if approval:
                approval.show_request(request)
            case InputRequest() as request:
                await self.bottom_area.replace_prompt(Approval(request, self.glyphs, picker.GRACE_SECONDS))
            case EditProgress(line=line):
                if approval:
                    approval.show_progress(line)
            case QuitRequested():
                await self.leave()
            case EngineLost(reason=reason):
                await self.bottom_area.replace_prompt(picker.engine_lost_picker(reason))

    @on(Approval.Answered)
    def send_answer(self, event: Approval.Answered) -> None:
        self._session_worker.answer_input_request(event.text)

    @on(ReadyForInput)
    async def send_next_queued(self) -> None:
        self._background_requests.poll_engine_state()
        await self._inspector_controller.refresh()
        if self.bottom_area.approval and self.presenter.turn is None:
            await self.bottom_area.restore_prompt()
        await self._sender.send_next()

    @on(EngineCrashed)
    async def offer_retry(self, event: EngineCrashed) -> None:
        await self._pickers.offer_retry(event)

    @on(PromptBox.Sent)
    async def send(self, event: PromptBox.Sent) -> None:
        self.prompt.clear_all()
        if self._prompt_history_file:
            append_prompt_history(self._prompt_history_file, event.text)
        self._prompt_history.append(event.text)
        self.prompt.set_earlier_questions(self._prompt_history)
        await self._sender.submit(event.text)

    @on(picker.Picker.Cancelled)
    async def close_picker(self) -> None:
        await self._pickers.close()

    @on(picker.Picker.Picked)
    async def handle_choice(self, event: picker.Picker.Picked) -> None:
        await self._pickers.choose(event.purpose, event.value)

    def _connect(self) -> None:
        self._session_worker.submit(self._session_worker.connect)
        self._wake()

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
                self._sender.reword(turn.question_ref)
            case "retry":
                await self._sender.resend(turn.question_ref, turn.question)
            case "earlier_version" | "later_version" if turn.position is not None:
                step = -1 if event.action == "earlier_version" else 1
                self._session_worker.submit(self._session_worker.switch_version, turn.position, step)
                self._wake()
            case "fork" if turn.position is not None:
                self._session_worker.submit(self._session_worker.fork, turn.position)
            case _:
                self.notify("this request is not part of the conversation", markup=False)

    @on(CodeBlockHeader.Clicked)
    def copy_code_block(self, event: CodeBlockHeader.Clicked) -> None:
        self._copy_text(event.code)

    async def leave(self) -> None:
        """Quit; while questions wait for their answers, ask first. A second request to quit is obeyed."""
        if not self._sender.pending.count or self.query(".leave"):
            self.app.exit()
        elif not self.bottom_area.approval:
            await self.bottom_area.replace_prompt(picker.leave_picker(self._sender.pending.count))
        elif self._leave_key.press():
            self.app.exit()
        else:
            self.notify("questions wait to be answered; once more quits", timeout=DOUBLE_PRESS_SECONDS, markup=False)

    def _copy_text(self, text: str) -> None:
        if not text:
            self.notify("nothing to copy", markup=False)
            return
        targets = copy_text(self.app, text)
        self.notify(f"{len(text):,} characters copied ({targets})", markup=False)

    @on(Transcript.ReachedEnd)
    async def finalize_answers(self) -> None:
        await self.presenter.finalize_answers()

    @on(Approval.StopRequested)
    def stop_answer(self) -> None:
        self._sender.cancelled.set()

    def action_stop(self) -> None:
        """Close a list, stop the answer, cancel a rewording, or focus the prompt; twice: go back to a turn."""
        self.call_later(self._stop_or_go_back)

    async def _stop_or_go_back(self) -> None:
        if approval := self.bottom_area.approval:
            approval.action_cancel()
            return
        if self.bottom_area.is_prompt_replaced:
            await self.close_picker()
            return
        is_idle = self.prompt.has_focus and not self.prompt.text
        if self.presenter.turn is not None:
            self.stop_answer()
            self._sender.take_back_queue()
        elif self._sender.pending.reworded is not None:
            self._sender.cancel_rewording()
        elif is_idle and self._escape_key.press():
            await self._pickers.open("rewind")
            return
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
        elif self._quit_key.press():
            self.call_later(self.leave)
        else:
            self.notify("Ctrl+C again quits; the conversation is stored", timeout=DOUBLE_PRESS_SECONDS, markup=False)

    def action_show_keys(self) -> None:
        chat = [*ConversationLayout.BINDINGS, *self.BINDINGS]
        bindings = [*self.app.BINDINGS, *chat, *TurnView.BINDINGS, *Inspector.BINDINGS, *TokenView.BINDINGS]
        keys = self.preferences.keys
        page = KeysScreen(key_lines(KEY_GROUPS, bindings, keys), keys.get("help", "f1"), self.glyphs)
        self.app.push_screen(page, lambda typed: self.type(typed or ""))

    def action_open_sessions(self) -> None:
        def open_chosen(chosen: tuple[str, str] | None) -> None:
            if chosen:
                method, session_id = chosen
                self._session_worker.submit(self._session_worker.open, session_id, is_copy=method == "fork")
                self._wake()

        sessions = SessionsScreen(self._background_requests, self.presenter.session_id, self.glyphs)
        self.app.push_screen(sessions, open_chosen)

    def action_inspect(self) -> None:
        self.call_later(self._inspector_controller.toggle)

    async def action_set_theme(self, name: str) -> None:
        if name in self.app.available_themes:
            self.app.theme = name
        else:
            await self.transcript.add_note(unknown_theme(name), is_error=True)

    def action_open_picker(self, purpose: str) -> None:
        self._escape_key.forget()
        self.call_later(self._pickers.open, purpose)

    def action_last_turn(self, action: str) -> None:
        turns = self.transcript.turns
        if turns:
            self.post_message(TurnView.ActionRequested(turns[-1], action))
