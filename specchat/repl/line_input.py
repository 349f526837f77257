"""Input lines: with completion, history and a status line on a capable terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output

from specchat.app.command_registry import line_mode_commands, prompt_commands
from specchat.app.completion import completions
from specchat.app.tool_sources import ToolSources, front_end_sources
from specchat.profile.screen_file import wants_vi_keys
from specchat.terminal import can_move_cursor, raw_stream, wants_plain_lines

PROMPT = "> "
BLOCK_QUOTES = '"""'  # start and end of a text of several lines


def is_capable_terminal() -> bool:
    """Whether lines are edited in place: not in a pipe, on a dumb terminal, or where the user wants plain lines."""
    return can_move_cursor() and not wants_plain_lines()


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
    """The completions of every front end, for prompt_toolkit."""

    def __init__(self, sources: ToolSources | None = None) -> None:
        self.sources = sources or front_end_sources()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        commands = {**line_mode_commands(), **prompt_commands(self.sources)}
        before, resources = document.text_before_cursor, self.sources.resources()
        for each in completions(before, commands, Path.cwd(), resources):
            yield Completion(each.text, -each.replaced_length, display=each.text.rstrip(), display_meta=each.help)
