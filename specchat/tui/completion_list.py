"""The completion list above the prompt. It never has the focus; the prompt controls it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.tui.glyphs import printable
from specchat.tui.prompt_completions import CompletionItem


class CompletionList(OptionList, can_focus=False):
    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)
        self._completion_items: Sequence[CompletionItem] = ()

    def show_items(self, items: Sequence[CompletionItem]) -> None:
        self._completion_items = items
        self.clear_options()
        self.add_options([Option(_item_content(choice)) for choice in items])
        self.display = bool(items)
        self.highlighted = 0 if items else None

    def move_highlight(self, step: int) -> None:
        if self._completion_items:
            self.highlighted = ((self.highlighted or 0) + step) % len(self._completion_items)

    @property
    def highlighted_item(self) -> CompletionItem | None:
        if self.highlighted is None or not self._completion_items:
            return None
        return self._completion_items[self.highlighted]


def _item_content(choice: CompletionItem) -> Content:
    shown = Content(printable(choice.text.rstrip()))
    return shown + Content(f"  {printable(choice.help)}").stylize("$text-muted") if choice.help else shown
