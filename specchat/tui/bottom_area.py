"""The one place at the bottom: the prompt with its completions, or what takes its place for a while.

That is a list to choose from, or an edit to be looked at; whoever puts it there hears what comes of it.
"""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from specchat.tui.approval import Approval
from specchat.tui.completion_list import CompletionList
from specchat.tui.glyphs import Glyphs
from specchat.tui.picker import Picker
from specchat.tui.prompt_completions import completions
from specchat.tui.prompt_input import PromptBox
from specchat.tui.screen_commands import all_commands


class BottomArea(Vertical):
    """Holds the prompt for good; a picker only for a while. The list of completions lies above it, on the screen."""

    def __init__(self, glyphs: Glyphs, completion_list: CompletionList) -> None:
        super().__init__(id="slot")
        self._glyphs, self._completion_list = glyphs, completion_list

    def compose(self) -> ComposeResult:
        """The prompt behind its mark."""
        with Horizontal(id="prompt-row"):
            yield Static(self._glyphs.prompt_mark, id="mark", markup=False)
            yield PromptBox()

    @property
    def prompt(self) -> PromptBox:
        """Where questions are written."""
        return self.query_one(PromptBox)

    @property
    def is_prompt_replaced(self) -> bool:
        """Does something else stand there?"""
        return bool(self.query(".guest"))

    @property
    def approval(self) -> Approval | None:
        """The dialogue about an edit, while there is one."""
        found = self.query(Approval)
        return found.first() if found else None

    async def replace_prompt(self, replacement: Picker | Approval) -> None:
        """Put this in the place of the prompt; what is written there stays."""
        await self.query(".guest").remove()
        self.query_one("#prompt-row").display = False
        await self.mount(replacement.add_class("guest"))

    async def restore_prompt(self) -> None:
        """Back to the prompt."""
        await self.query(".guest").remove()
        self.query_one("#prompt-row").display = True
        self.screen.set_focus(self.prompt)

    @on(PromptBox.Edited)
    def update_completions(self) -> None:
        """Offer what the word before the cursor may become."""
        self._completion_list.show_items(completions(self.prompt.text_before_cursor, all_commands(), Path.cwd()))
        self._completion_list.styles.margin = (0, 1, self.outer_size.height + 1, 1)
        self.prompt.is_completing = self._completion_list.display

    @on(PromptBox.CompletionAction)
    def control_completions(self, event: PromptBox.CompletionAction) -> None:
        """Move in the list, take from it, close it."""
        match event.action:
            case "up" | "down":
                self._completion_list.move_highlight(-1 if event.action == "up" else 1)
            case "close":
                self._close_completions()
            case how:
                self.accept_completion(is_enter=how == "enter")

    def accept_completion(self, *, is_enter: bool) -> None:
        """Take the marked completion; send, if nothing is left to be typed and that was the last key."""
        marked = self._completion_list.highlighted_item
        if marked is None:
            return
        is_typed = self.prompt.text_before_cursor.endswith(marked.text.rstrip())
        if not is_typed or not is_enter:
            self.prompt.insert_completion(marked.text, marked.replaced_length)
        if is_enter and (is_typed or marked.is_final):
            self._close_completions()
            self.prompt.call_later(self.prompt.action_send)  # a message that is sent here would come no further

    def _close_completions(self) -> None:
        self._completion_list.show_items(())
        self.prompt.is_completing = False
