"""The list of completions above the prompt. It never has the focus; the prompt steers it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.tui.completion_words import Choice
from specchat.tui.glyphs import visible


class CompletionList(OptionList, can_focus=False):
    """Shown while there is something to choose."""

    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)
        self._choices: Sequence[Choice] = ()

    def offer(self, choices: Sequence[Choice]) -> None:
        """Show these, or nothing."""
        self._choices = choices
        self.clear_options()
        self.add_options([Option(_drawn(choice)) for choice in choices])
        self.display = bool(choices)
        self.highlighted = 0 if choices else None

    def move(self, step: int) -> None:
        """Mark another one."""
        if self._choices:
            self.highlighted = ((self.highlighted or 0) + step) % len(self._choices)

    @property
    def marked(self) -> Choice | None:
        """The one that is marked."""
        if self.highlighted is None or not self._choices:
            return None
        return self._choices[self.highlighted]


def _drawn(choice: Choice) -> Content:
    shown = Content(visible(choice.text.rstrip()))
    return shown + Content(f"  {visible(choice.help)}").stylize("$text-muted") if choice.help else shown
