"""The bottom of the screen: the prompt with its completions, or a widget that replaces it for a while.

The replacement is a picker or the review of an edit; the screen that mounts it handles its messages. The list of
completions never has the focus; the prompt controls it.
"""

from collections.abc import Sequence
from pathlib import Path

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from specchat.app.command_registry import prompt_commands
from specchat.app.completion import CompletionItem, completions
from specchat.app.tool_sources import front_end_sources
from specchat.drawing.glyphs import Glyphs
from specchat.tui.approval import Approval
from specchat.tui.picker import Picker, option_content
from specchat.tui.preferences import theme_names
from specchat.tui.prompt_input import PromptBox
from specchat.tui.screen_commands import all_commands


class CompletionList(OptionList, can_focus=False):
    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)
        self._completion_items: Sequence[CompletionItem] = ()

    def show_items(self, items: Sequence[CompletionItem]) -> None:
        self._completion_items = items
        self.clear_options()
        self.add_options([Option(option_content(item.text.rstrip(), item.help)) for item in items])
        self.display = bool(items)
        self.action_first()

    @property
    def highlighted_item(self) -> CompletionItem | None:
        return None if self.highlighted is None else self._completion_items[self.highlighted]


class BottomArea(Vertical):
    """Keeps the prompt mounted under a replacement. The completion list is drawn above it, on the screen."""

    prompt = getters.query_one(PromptBox)

    def __init__(self, glyphs: Glyphs, completion_list: CompletionList) -> None:
        super().__init__(id="bottom-area")
        self._glyphs, self._completion_list = glyphs, completion_list

    def compose(self) -> ComposeResult:
        with Horizontal(id="prompt-row"):
            yield Static(self._glyphs.prompt_mark, id="prompt-mark", markup=False)
            yield PromptBox()

    @property
    def is_prompt_replaced(self) -> bool:
        return bool(self.query(".guest"))

    @property
    def approval(self) -> Approval | None:
        return next(iter(self.query(Approval)), None)

    async def replace_prompt(self, replacement: Picker | Approval) -> None:
        await self.query(".guest").remove()
        self.query_one("#prompt-row").display = False
        await self.mount(replacement.add_class("guest"))

    async def restore_prompt(self) -> None:
        await self.query(".guest").remove()
        self.query_one("#prompt-row").display = True
        self.screen.set_focus(self.prompt)

    @on(TextArea.Changed, "#prompt")
    def update_completions(self) -> None:
        sources = front_end_sources()
        commands = {**all_commands(), **prompt_commands(sources)}
        text, themes = self.prompt.text_before_cursor, {"theme": theme_names()}
        items = completions(text, commands, Path.cwd(), sources.resources(), themes)
        self._completion_list.show_items(items)
        self._completion_list.styles.margin = (0, 1, self.outer_size.height + 1, 1)
        self.prompt.is_completing = self._completion_list.display

    @on(PromptBox.CompletionAction)
    def control_completions(self, event: PromptBox.CompletionAction) -> None:
        match event.action:
            case "up":
                self._completion_list.action_cursor_up()
            case "down":
                self._completion_list.action_cursor_down()
            case "close":
                self._close_completions()
            case action:
                self.accept_completion(is_enter=action == "enter")

    def accept_completion(self, *, is_enter: bool) -> None:
        """Insert the highlighted completion; Enter also sends when nothing is left to type."""
        item = self._completion_list.highlighted_item
        if item is None:
            return
        is_typed = self.prompt.text_before_cursor.endswith(item.text.rstrip())
        if not is_typed or not is_enter:
            self.prompt.insert_completion(item.text, item.replaced_length)
        if is_enter and (is_typed or item.is_final):
            self._close_completions()
            self.prompt.call_later(self.prompt.send_text)  # a message posted inside this handler would not propagate

    def _close_completions(self) -> None:
        self._completion_list.show_items(())
        self.prompt.is_completing = False
