"""The bottom of the screen: the prompt with its completions, or a widget that replaces it for a while.

The replacement is a picker or the review of an edit; the screen that mounts it handles its messages. The list of
completions never has the focus; the prompt controls it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from specchat.app.command_registry import FILE_ARGUMENT_COMMANDS, CommandInfo, prompt_commands
from specchat.app.tool_sources import OfferedName, front_end_sources
from specchat.context.at_names import REPOSITORY, quoted_name, word_at_end
from specchat.drawing.glyphs import Glyphs
from specchat.tui.approval import Approval
from specchat.tui.picker import Picker, option_content
from specchat.tui.preferences import theme_names
from specchat.tui.prompt_input import PromptBox
from specchat.tui.screen_commands import all_commands
from specchat.tui.vi_keys import ViKeys

THEME_COMMAND = "/theme "
MAX_COMPLETIONS = 12
MAX_VISITED_FILES = 4000
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class CompletionItem:
    """One completion: `text` replaces the last `replaced_length` characters; `help` describes it."""

    text: str
    replaced_length: int
    help: str = ""
    is_final: bool = False  # nothing more to type


def completions(
    text_before_cursor: str,
    commands: Mapping[str, CommandInfo],
    folder: Path,
    resources: Sequence[OfferedName] = (),
) -> list[CompletionItem]:
    word = word_at_end(text_before_cursor)
    if text_before_cursor.startswith("/") and word == text_before_cursor:
        return _command_items(text_before_cursor[1:], commands, len(text_before_cursor))
    if text_before_cursor.startswith(THEME_COMMAND) and text_before_cursor.count(" ") == 1:
        names = [name for name in theme_names() if name.startswith(word)]
        return [CompletionItem(name, len(word), is_final=True) for name in names][:MAX_COMPLETIONS]
    if word.startswith("@"):
        typed = word[1:].removeprefix('"')
        named = [*_repository_item(word), *_resource_items(word, resources)]
        return [*named, *_file_items(typed, len(word) - 1, folder)][:MAX_COMPLETIONS]
    if (
        text_before_cursor.startswith(FILE_ARGUMENT_COMMANDS)
        and text_before_cursor.count(" ") == 1
        and not text_before_cursor.endswith(" ")
    ):
        return _file_items(word, len(word), folder)
    return []


def _command_items(typed: str, commands: Mapping[str, CommandInfo], length: int) -> list[CompletionItem]:
    prefixed = [command for command in commands.values() if command.name.startswith(typed)]
    containing = [command for command in commands.values() if typed in command.name and command not in prefixed]
    return [
        CompletionItem(
            f"/{command.name} " if command.arguments else f"/{command.name}", length,
            f"{command.arguments} {command.help}".strip(), is_final=not command.arguments,
        )
        for command in [*prefixed, *containing]
    ]  # fmt: skip


def _repository_item(word: str) -> Iterator[CompletionItem]:
    if len(word) > 1 and REPOSITORY.startswith(word):
        yield CompletionItem(REPOSITORY[1:], len(word) - 1, "passages of this repository", is_final=True)


def _resource_items(word: str, resources: Sequence[OfferedName]) -> Iterator[CompletionItem]:
    for each in resources:
        if len(word) > 1 and each.name.startswith(word) and each.name != word:
            yield CompletionItem(each.name[1:], len(word) - 1, each.help, is_final=not each.name.endswith(":"))


def _file_items(typed: str, length: int, folder: Path) -> list[CompletionItem]:
    in_folder = list(_names_in_folder(typed, folder))
    names = in_folder or list(islice(_paths_containing(typed, folder), MAX_COMPLETIONS))
    return [CompletionItem(quoted_name(name), length) for name in names[:MAX_COMPLETIONS]]


def _names_in_folder(typed: str, folder: Path) -> Iterator[str]:
    head, slash, start = typed.rpartition("/")
    directory = folder / Path(head + slash).expanduser() if slash else folder
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: (not entry.is_dir(), entry.name.lower()))
    except OSError:
        return
    for entry in entries:
        is_hidden = entry.name.startswith(".") and not start.startswith(".")
        if entry.name.lower().startswith(start.lower()) and not is_hidden:
            yield f"{head}{slash}{entry.name}{'/' if entry.is_dir() else ''}"


def _paths_containing(typed: str, folder: Path) -> Iterator[str]:
    """Paths below the folder that contain the typed text; visits a limited number of files."""
    if not typed or typed.startswith(("/", "~")):
        return
    visited = 0
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            visited += 1
            path = (Path(directory) / name).relative_to(folder).as_posix()
            if typed.lower() in path.lower():
                yield path
        if visited > MAX_VISITED_FILES:
            return


class CompletionList(OptionList, can_focus=False):
    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)
        self._completion_items: Sequence[CompletionItem] = ()

    def show_items(self, items: Sequence[CompletionItem]) -> None:
        self._completion_items = items
        self.clear_options()
        self.add_options([Option(option_content(item.text.rstrip(), item.help)) for item in items])
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


class BottomArea(Vertical):
    """Keeps the prompt mounted under a replacement. The completion list is drawn above it, on the screen."""

    def __init__(self, glyphs: Glyphs, completion_list: CompletionList, vi_keys: ViKeys | None = None) -> None:
        super().__init__(id="bottom-area")
        self._glyphs, self._completion_list, self._vi_keys = glyphs, completion_list, vi_keys

    def compose(self) -> ComposeResult:
        with Horizontal(id="prompt-row"):
            yield Static(self._glyphs.prompt_mark, id="prompt-mark", markup=False)
            yield PromptBox(self._vi_keys)

    @property
    def prompt(self) -> PromptBox:
        return self.query_one(PromptBox)

    @property
    def is_prompt_replaced(self) -> bool:
        return bool(self.query(".guest"))

    @property
    def approval(self) -> Approval | None:
        approvals = self.query(Approval)
        return approvals.first() if approvals else None

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
        text = self.prompt.text_before_cursor
        self._completion_list.show_items(completions(text, commands, Path.cwd(), sources.resources()))
        self._completion_list.styles.margin = (0, 1, self.outer_size.height + 1, 1)
        self.prompt.is_completing = self._completion_list.display

    @on(PromptBox.ModeChanged)
    def show_mode(self, event: PromptBox.ModeChanged) -> None:
        self.query_one("#prompt-mark", Static).update(self._glyphs.prompt_mark if event.is_inserting else "N")

    @on(PromptBox.CompletionAction)
    def control_completions(self, event: PromptBox.CompletionAction) -> None:
        match event.action:
            case "up" | "down":
                self._completion_list.move_highlight(-1 if event.action == "up" else 1)
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
            self.prompt.call_later(self.prompt.action_send)  # a message posted inside this handler would not propagate

    def _close_completions(self) -> None:
        self._completion_list.show_items(())
        self.prompt.is_completing = False
