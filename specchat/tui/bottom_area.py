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
from specchat.tui.completion_words import completions
from specchat.tui.glyphs import Glyphs
from specchat.tui.picker import Picker
from specchat.tui.prompt_input import PromptBox
from specchat.tui.screen_commands import all_commands


class Slot(Vertical):
    """Holds the prompt for good; a picker only for a while. The list of completions lies above it, on the screen."""

    def __init__(self, glyphs: Glyphs, shown: CompletionList) -> None:
        super().__init__(id="slot")
        self._glyphs, self._shown = glyphs, shown

    def compose(self) -> ComposeResult:
        """The prompt behind its mark."""
        with Horizontal(id="prompt-row"):
            yield Static(self._glyphs.question, id="mark", markup=False)
            yield PromptBox()

    @property
    def prompt(self) -> PromptBox:
        """Where questions are written."""
        return self.query_one(PromptBox)

    @property
    def is_swapped(self) -> bool:
        """Does something else stand there?"""
        return bool(self.query(".guest"))

    @property
    def approval(self) -> Approval | None:
        """The dialogue about an edit, while there is one."""
        found = self.query(Approval)
        return found.first() if found else None

    async def swap(self, guest: Picker | Approval) -> None:
        """Put this in the place of the prompt; what is written there stays."""
        await self.query(".guest").remove()
        self.query_one("#prompt-row").display = False
        await self.mount(guest.add_class("guest"))

    async def swap_back(self) -> None:
        """Back to the prompt."""
        await self.query(".guest").remove()
        self.query_one("#prompt-row").display = True
        self.screen.set_focus(self.prompt)

    @on(PromptBox.Edited)
    def complete(self) -> None:
        """Offer what the word before the cursor may become."""
        self._shown.offer(completions(self.prompt.before_cursor, all_commands(), Path.cwd()))
        self._shown.styles.margin = (0, 1, self.outer_size.height + 1, 1)
        self.prompt.is_completing = self._shown.display

    @on(PromptBox.Steered)
    def steer(self, event: PromptBox.Steered) -> None:
        """Move in the list, take from it, close it."""
        match event.how:
            case "up" | "down":
                self._shown.move(-1 if event.how == "up" else 1)
            case "close":
                self._close_completions()
            case how:
                self.take(is_last=how == "enter")

    def take(self, *, is_last: bool) -> None:
        """Take the marked completion; send, if nothing is left to be typed and that was the last key."""
        marked = self._shown.marked
        if marked is None:
            return
        is_typed = self.prompt.before_cursor.endswith(marked.text.rstrip())
        if not is_typed or not is_last:
            self.prompt.complete(marked.text, marked.length)
        if is_last and (is_typed or marked.is_whole):
            self._close_completions()
            self.prompt.call_later(self.prompt.action_send)  # a message that is sent here would come no further

    def _close_completions(self) -> None:
        self._shown.offer(())
        self.prompt.is_completing = False
