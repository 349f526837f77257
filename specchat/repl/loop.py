"""The read-print loop of the line mode: read a line, run it as a command or a request, print the answer as it streams.

The answer goes to stdout, everything else to stderr. Ctrl-C during an answer stops it and keeps the partial answer; at
the prompt it clears the line, and Ctrl-D quits.
"""

import sys
from pathlib import Path

from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.command_registry import is_file_command, run_line
from specchat.app.question import Question
from specchat.chat.events import Failed
from specchat.chat.request import Request
from specchat.errors import SpecchatError, UsageError
from specchat.repl.answer_printer import print_answer, print_notice
from specchat.repl.interrupt import interruptible
from specchat.repl.line_input import is_capable_terminal, plain_line_reader, prompt_toolkit_reader
from specchat.repl.terminal_ui import terminal_edit_ui, terminal_ui

NO_INPUT = "standard input is empty; pipe a question in, or give one as an argument"


def run_repl(chat: ChatState, history_file: Path | None, question: str = "") -> int:
    """Run until the user quits, the question first. Returns the exit code.

    Without a `history_file`, prompts are not stored.
    """
    read = (
        prompt_toolkit_reader(lambda: chat.status_line, history_file, chat.sources)
        if is_capable_terminal()
        else plain_line_reader()
    )
    if sys.stdin.isatty():
        print_notice("/help lists the commands; Ctrl-D quits")
    chat.ui = terminal_ui()
    if question and run_input_line(chat, question).should_quit:
        return 0
    is_asked = bool(question)
    while True:
        try:
            line = read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            if not (is_asked or sys.stdin.isatty()):
                raise UsageError(NO_INPUT) from None
            return 0
        is_asked = True
        if line.strip() and run_input_line(chat, line).should_quit:
            return 0


def run_input_line(chat: ChatState, line: str) -> CommandResult:
    """Run one line; errors are printed, and the loop continues."""
    try:
        if is_file_command(line):
            run_file_edit(chat, line)
            return CommandResult()
        result = run_line(chat, line)
        show_result(chat, result)
    except SpecchatError as error:
        print_notice(f"specchat: {error}")
        return CommandResult()
    return result


def show_result(chat: ChatState, result: CommandResult) -> None:
    while True:
        if result.text:
            print_notice(result.text)
        if result.request:
            answer(chat, result.request)
        if result.after_answer is None:
            return
        result = result.after_answer(chat)


def run_file_edit(chat: ChatState, line: str) -> None:
    """Run a file command; Ctrl-C while the model generates stops it, and nothing is written."""
    from specchat.app.file_edits import run_file_command

    with interruptible() as stopped:
        ui = terminal_edit_ui(stopped)
        try:
            report = run_file_command(chat, line, ui)
        except KeyboardInterrupt:  # at the prompt of a hunk
            report = "stopped; nothing is written"
    ui.show_message(report)


def answer(chat: ChatState, question: Question | Request) -> None:
    """Print an answer as it streams, with the calls of its tools, and an error in the place of one."""
    with interruptible() as stopped:
        end = print_answer(chat, question, stopped).end
    if isinstance(end, Failed):
        print_notice(f"specchat: {end.message}")
