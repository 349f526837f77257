"""Input lines: with completion, history and a status line on a capable terminal, plain lines elsewhere."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output

from specchat.app.command_registry import FILE_ARGUMENT_COMMANDS, line_mode_commands, prompt_commands
from specchat.app.tool_sources import ToolSources, front_end_sources
from specchat.context.at_names import REPOSITORY, quoted_name, word_at_end
from specchat.profile.screen_file import wants_vi_keys
from specchat.terminal import can_move_cursor, raw_stream

PROMPT = "> "
BLOCK_QUOTES = '"""'  # start and end of a text of several lines


def is_capable_terminal() -> bool:
    """Whether lines are edited in place: not in a pipe, on a dumb terminal, or where the user wants no colours."""
    return can_move_cursor() and not os.environ.get("NO_COLOR")


def plain_line_reader() -> Callable[[], str]:
    """Lines from stdin; a terminal gets the prompt on stderr."""

    def read() -> str:
        if sys.stdin.isatty():
            print(PROMPT, end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            raise EOFError
        return read_block(line, sys.stdin.readline)

    return read


def read_block(line: str, read_line: Callable[[], str]) -> str:
    """The text between triple quotes, over several lines; any other line is returned stripped."""
    if not line.strip().startswith(BLOCK_QUOTES):
        return line.strip()
    text = line.strip().removeprefix(BLOCK_QUOTES) + "\n"
    while BLOCK_QUOTES not in text:
        if not (line := read_line()):
            break
        text += line
    return text.partition(BLOCK_QUOTES)[0].strip("\n")


def prompt_toolkit_reader(
    status: Callable[[], str], history_file: Path | None, sources: ToolSources | None = None
) -> Callable[[], str]:
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_file)) if history_file else InMemoryHistory(),
        completer=CommandPathCompleter(sources),
        complete_while_typing=False,
        enable_history_search=True,
        enable_open_in_editor=True,
        multiline=True,
        vi_mode=wants_vi_keys(),
        bottom_toolbar=status,
        key_bindings=key_bindings(),
        prompt_continuation="  ",
        output=create_output(stdout=raw_stream(sys.stdout)),
    )
    return lambda: session.prompt(PROMPT)


def key_bindings() -> KeyBindings:
    """Enter sends; Ctrl-J, Escape Enter, and a backslash before Enter start a new line."""
    keys = KeyBindings()

    @keys.add(Keys.ControlM)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add(Keys.ControlJ)
    @keys.add(Keys.Escape, Keys.ControlM)
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class CommandPathCompleter(Completer):
    """Completes commands after a slash at the start, and files and the resources of sources after an @ anywhere."""

    def __init__(self, sources: ToolSources | None = None) -> None:
        self.paths, self.sources = PathCompleter(expanduser=True), sources or front_end_sources()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        word = word_at_end(before)
        if before.startswith("/") and " " not in before:
            for command in {**line_mode_commands(), **prompt_commands(self.sources)}.values():
                if command.name.startswith(before[1:]):
                    yield Completion(command.name, start_position=1 - len(before), display_meta=command.help)
        elif word.startswith("@") or before.startswith(FILE_ARGUMENT_COMMANDS):
            if word and REPOSITORY.startswith(word):
                yield Completion(REPOSITORY, start_position=-len(word), display_meta="passages of this repository")
            for resource in self.sources.resources() if word.startswith("@") else ():
                if resource.name.startswith(word):
                    yield Completion(resource.name, start_position=-len(word), display_meta=resource.help)
            typed = word.removeprefix("@").removeprefix('"')
            for path in self.paths.get_completions(Document(typed), complete_event):
                yield _quoted_completion(path, typed, len(word.removeprefix("@")))


def _quoted_completion(path: Completion, typed: str, length: int) -> Completion:
    """A completed name, in quotes if it has spaces."""
    name = typed[: len(typed) + path.start_position] + path.text
    if quoted_name(name) == name:
        return path
    return Completion(quoted_name(name), start_position=-length, display=path.display)
