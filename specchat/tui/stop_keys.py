"""What Escape and Ctrl+C do, once and twice, and when the chat is left."""

from time import monotonic

from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.conversation_presenter import ConversationPresenter
from specchat.tui.picker_controller import PickerController
from specchat.tui.prompt_sender import PromptSender

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


class StopKeys:
    def __init__(
        self,
        layout: ConversationLayout,
        presenter: ConversationPresenter,
        sender: PromptSender,
        pickers: PickerController,
    ) -> None:
        self._layout, self._presenter, self._sender, self._pickers = layout, presenter, sender, pickers
        self.escape_key, self._interrupt_key, self._leave_key = DoublePress(), DoublePress(), DoublePress()

    async def escape(self) -> None:
        """Close a list, stop the answer, cancel a rewording, or focus the prompt; twice: go back to a turn."""
        layout = self._layout
        if approval := layout.bottom_area.approval:
            approval.action_cancel()
            return
        if layout.bottom_area.is_prompt_replaced:
            await self._pickers.close()
            return
        is_idle = layout.prompt.has_focus and not layout.prompt.text
        if self._presenter.turn is not None:
            self._sender.stop()
            self._sender.take_back_queue()
        elif self._sender.reworded is not None:
            self._sender.cancel_rewording()
        elif is_idle and self.escape_key.press():
            await self._pickers.open("rewind")
            return
        layout.prompt.focus()

    async def interrupt(self) -> None:
        """Stop the answer, else clear the prompt; twice: quit."""
        if self._presenter.turn is not None:
            await self.escape()
        elif self._layout.prompt.text:
            self._layout.prompt.clear_all()
        elif self._interrupt_key.press():
            await self.leave()
        else:
            self._notify("Ctrl+C again quits; the conversation is stored")

    async def leave(self) -> None:
        """Quit; while questions wait for their answers, ask first. A second request to quit is obeyed."""
        if not self._sender.queue or self._layout.query(".leave"):
            self._layout.app.exit()
        elif not self._layout.bottom_area.approval:
            await self._pickers.offer_leaving(len(self._sender.queue))
        elif self._leave_key.press():
            self._layout.app.exit()
        else:
            self._notify("questions wait to be answered; once more quits")

    def _notify(self, text: str) -> None:
        self._layout.notify(text, timeout=DOUBLE_PRESS_SECONDS, markup=False)
