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

from specchat.app.code_blocks import find_code_blocks
from specchat.drawing.glyphs import Glyphs
from specchat.tui import picker
from specchat.tui.approval import Approval
from specchat.tui.background_requests import BackgroundRequests
from specchat.tui.clipboard import copy
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter, EngineCrashed, ForScreen, ReadyForInput
from specchat.tui.inspector import InspectorController
from specchat.tui.picker_controller import BUSY_NOTICE, PickerController
from specchat.tui.preferences import Preferences
from specchat.tui.prompt_input import PromptBox, append_prompt_history, read_prompt_history
from specchat.tui.prompt_sender import PromptSender
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import SessionWorker
from specchat.tui.turn_widget import TurnView
from specchat.tui.worker_messages import EditProgress, EngineLost, InputRequest, MessageQueue

TICK_SECONDS = 1 / 16  # between two looks at the messages
DOUBLE_PRESS_SECONDS = 2.0  # within which a key counts as pressed twice


class DoublePress:
    """A key that does something when it is pressed twice in a short time."""

    def __init__(self) -> None:
        self._pressed_at = float("-inf")

    def press(self) -> bool:
        """Whether this is the second time."""
        last, self._pressed_at = self._pressed_at, monotonic()
        if is_second := self._pressed_at - last < DOUBLE_PRESS_SECONDS:
            self.forget()
        return is_second

    def forget(self) -> None:
        self._pressed_at = float("-inf")


class ChatScreen(ConversationLayout):
    """A conversation that the user takes part in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop, back", id="stop"),
        Binding("ctrl+c", "interrupt", "stop, clear, quit", priority=True, id="interrupt"),
        Binding("f1", "app.show_keys", "all keys", id="help"),
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

        def can_replace(self, message: Message) -> bool:
            """One of those that wait behind each other is enough."""
            return isinstance(message, ChatScreen.Tick)

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
        self._pickers = PickerController(self, self.presenter, self._sender, background_requests, self._prompt_history)
        self._escape_key, self._interrupt_key, self._leave_key = DoublePress(), DoublePress(), DoublePress()

    def on_mount(self) -> None:
        """Draw the first frame before the host is looked up. Textual calls that of the layout, too."""
        if self._prompt_history_file:
            self._prompt_history.extend(read_prompt_history(self._prompt_history_file))
        self.prompt.set_earlier_questions(self._prompt_history)
        self.presenter.live_stats.start_waiting("starting the engine", monotonic())
        self.presenter.update_status_bar()
        self._tick_timer = self.set_interval(TICK_SECONDS, lambda: self.post_message(self.Tick()))
        self._session_worker.start()
        self._background_requests.start()

    async def on_chat_screen_tick(self) -> None:
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
            case EngineLost(reason=reason):
                await self._pickers.offer_connecting(reason)
            case EngineCrashed(reason=reason, question=question):
                await self._pickers.offer_retry(reason, question)

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

    @on(PromptBox.Sent)
    async def send(self, event: PromptBox.Sent) -> None:
        self.prompt.clear_all()
        if self._prompt_history_file:
            append_prompt_history(self._prompt_history_file, event.text)
        self._prompt_history.append(event.text)
        self.prompt.set_earlier_questions(self._prompt_history)
        await self._sender.submit(event.text)

    @on(TurnView.ActionRequested)
    async def run_turn_action(self, event: TurnView.ActionRequested) -> None:
        turn, conversation = event.turn, self._session_worker.conversation
        match event.action:
            case "inspect" if turn.position is not None:
                await self._inspector_controller.open(turn.position)
            case "copy":
                copy(self.app, turn.answer)
            case "code":
                copy(self.app, "".join(block.text for block in find_code_blocks(turn.answer)[-1:]))
            case "edit" | "retry" | "fork" | "earlier_version" | "later_version" if self.presenter.turn is not None:
                self.notify(BUSY_NOTICE, markup=False)
            case "edit":
                self._sender.reword(turn.question_ref)
            case "retry":
                await self._sender.resend(turn.question_ref, turn.question)
            case "earlier_version" | "later_version" if turn.position is not None:
                step = -1 if event.action == "earlier_version" else 1
                self._sender.run(conversation.switch_version, turn.position, step)
            case "fork" if turn.position is not None:
                self._sender.run(conversation.fork, turn.position)
            case _:
                self.notify("this request is not part of the conversation", markup=False)

    async def leave(self) -> None:
        """Quit; while questions wait for their answers, ask first. A second request to quit is obeyed."""
        if not self._sender.queue or self.query(".leave") or (self.bottom_area.approval and self._leave_key.press()):
            self.app.exit()
        elif self.bottom_area.approval:
            self.notify("questions wait to be answered; once more quits", timeout=DOUBLE_PRESS_SECONDS, markup=False)
        else:
            await self._pickers.offer_leaving(len(self._sender.queue))

    @on(Approval.StopRequested)
    def stop_answer(self) -> None:
        self._sender.stop()

    def action_stop(self) -> None:
        self.call_later(self._escape)

    async def _escape(self) -> None:
        """Close a list, stop the answer, cancel a rewording, or focus the prompt; twice: go back to a turn."""
        if approval := self.bottom_area.approval:
            approval.action_cancel()
            return
        if self.bottom_area.is_prompt_replaced:
            await self._pickers.close()
            return
        is_idle = self.prompt.has_focus and not self.prompt.text
        if self.presenter.turn is not None:
            self._sender.stop()
            self._sender.take_back_queue()
        elif self._sender.reworded is not None:
            self._sender.cancel_rewording()
        elif is_idle and self._escape_key.press():
            await self._pickers.open("rewind")
            return
        self.prompt.focus()

    def action_interrupt(self) -> None:
        """Copy a selection, else stop what is in progress."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            copy(self.app, selected)
        else:
            self.call_later(self._interrupt)

    async def _interrupt(self) -> None:
        """Stop the answer, else clear the prompt; twice: quit."""
        if self.presenter.turn is not None:
            await self._escape()
        elif self.prompt.text:
            self.prompt.clear_all()
        elif self._interrupt_key.press():
            await self.leave()
        else:
            notice = "Ctrl+C again quits; the conversation is stored"
            self.notify(notice, timeout=DOUBLE_PRESS_SECONDS, markup=False)

    def action_open_sessions(self) -> None:
        def open_chosen(chosen: tuple[str, str] | None) -> None:
            if chosen:
                method, session_id = chosen
                self._sender.run(self._session_worker.conversation.open, session_id, is_copy=method == "fork")

        sessions = SessionsScreen(self._background_requests, self.presenter.session_id, self.glyphs)
        self.app.push_screen(sessions, open_chosen)

    def action_inspect(self) -> None:
        self.call_later(self._inspector_controller.toggle)

    def action_open_picker(self, purpose: str) -> None:
        self._escape_key.forget()
        self.call_later(self._pickers.open, purpose)

    def action_last_turn(self, action: str) -> None:
        turns = self.transcript.turns
        if turns:
            self.post_message(TurnView.ActionRequested(turns[-1], action))
