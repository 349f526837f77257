"""The one place at the bottom: the prompt, or a list that takes its place until something is chosen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from specchat.tui.glyphs import Glyphs
from specchat.tui.picker import Picker
from specchat.tui.prompt import PromptBox


class Slot(Vertical):
    """Holds the prompt for good; a picker only for a while."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="slot")
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """The prompt behind its mark."""
        with Horizontal(id="prompt-row"):
            yield Static(self._glyphs.question, id="mark", markup=False)
            yield PromptBox()

    async def swap(self, picker: Picker) -> None:
        """Put a list in the place of the prompt; what is written there stays."""
        await self.query(Picker).remove()
        self.query_one("#prompt-row").display = False
        await self.mount(picker)
        picker.query_one(Input).focus()

    async def swap_back(self) -> None:
        """Back to the prompt."""
        await self.query(Picker).remove()
        self.query_one("#prompt-row").display = True
        self.query_one(PromptBox).focus()
