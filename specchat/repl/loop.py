"""The read-print loop of the line mode: read a line, run it as a command or a request, print the answer as it streams.

The answer goes to stdout, everything else to stderr. Ctrl-C during an answer stops it and keeps the partial answer; at
the prompt it clears the line, and Ctrl-D quits.
"""

import sys
from pathlib import Path

from specchat.app.agent.agent_loop import AgentEvent, RoundStarted
from specchat.app.agent.project_agent import ProjectAgent
from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.command_registry import is_file_command, run_line
from specchat.chat.events import Event, Failed, LoadingProgress, TextDelta
from specchat.chat.request import Request
from specchat.errors import SpecchatError, UsageError
from specchat.profile import Models
from specchat.repl.interrupt import interruptible
from specchat.repl.line_input import is_capable_terminal, plain_line_reader, prompt_toolkit_reader
from specchat.repl.terminal_agent import CallPrinter, terminal_agent
from specchat.repl.thinking_printer import ThinkingPrinter
from specchat.terminal import write_line

NO_INPUT = "standard input is empty; pipe a question in, or give one as an argument"


def run_repl(chat: ChatState, history_file: Path | None, question: str = "") -> int:
    """Run until the user quits, the question first. Returns the exit code.

    Without a `history_file`, prompts are not stored.
    """
    read = (
        prompt_toolkit_reader(lambda: chat.status_line, history_file, chat.servers)
        if is_capable_terminal()
        else plain_line_reader()
    )
    if sys.stdin.isatty():
        chat.confirm_load = confirm_load
        print_notice("/help lists the commands; Ctrl-D quits")
    agent = terminal_agent(chat)
    if question and run_input_line(chat, question, agent).should_quit:
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
        if line.strip() and run_input_line(chat, line, agent).should_quit:
            return 0


def run_input_line(chat: ChatState, line: str, agent: ProjectAgent | None = None) -> CommandResult:
    """Run one line; errors are printed, and the loop continues."""
    try:
        if is_file_command(line):
            run_file_edit(chat, line)
            return CommandResult()
        result = run_line(chat, line)
        show_result(chat, result, agent)
    except SpecchatError as error:
        print_notice(f"specchat: {error}")
        return CommandResult()
    return result


def show_result(chat: ChatState, result: CommandResult, agent: ProjectAgent | None = None) -> None:
    while True:
        if result.text:
            print_notice(result.text)
        if result.request:
            print_answer(chat, result.request, agent)
        if result.after_answer is None:
            return
        result = result.after_answer(chat)


def confirm_load(models: Models) -> bool:
    """Ask the user at this terminal before other models are loaded; Ctrl-C means no."""
    from specchat.app.model_loading import confirm_models
    from specchat.repl.terminal_review import prompt_user

    try:
        return confirm_models(models, prompt_user)
    except KeyboardInterrupt:
        return False


def run_file_edit(chat: ChatState, line: str) -> None:
    """Run a file command; Ctrl-C while the model generates stops it, and nothing is written."""
    from specchat.app.file_edits import run_file_command
    from specchat.repl.terminal_edit_ui import terminal_edit_ui

    with interruptible() as stopped:
        ui = terminal_edit_ui(stopped)
        try:
            report = run_file_command(chat, line, ui)
        except KeyboardInterrupt:  # at the prompt of a hunk
            report = "stopped; nothing is written"
    ui.show_message(report)


def print_answer(chat: ChatState, request: Request, agent: ProjectAgent | None = None) -> None:
    """Print an answer as it streams, with the calls of its tools."""
    if chat.attachment_notice:
        print_notice(chat.attachment_notice)
    with interruptible() as stopped:
        printer = AnswerPrinter()
        try:
            for event in (agent or chat).ask(request, stopped):
                if isinstance(event, AgentEvent):
                    printer.on_agent_event(event)
                    for notice in chat.answer_notices if isinstance(event, RoundStarted) else ():
                        print_notice(notice)
                else:
                    chat.on_event(event)
                    printer.on_event(event)
        finally:
            printer.end_line()
    if chat.finished:
        print_notice(("(stopped) " if chat.finished.finish_reason == "cancelled" else "") + chat.status_line)
    for notice in (*chat.notices, *chat.servers.take_notices()):
        print_notice(notice)


class AnswerPrinter:
    def __init__(self) -> None:
        self._is_inside_line = False
        self._loading = "", ""
        self._thinking = ThinkingPrinter()
        self._calls = CallPrinter()

    def on_event(self, event: Event) -> None:
        self._thinking.on_event(event)
        match event:
            case TextDelta(text=text):
                sys.stdout.write(text)
                sys.stdout.flush()
                self._is_inside_line = not text.endswith("\n") if text else self._is_inside_line
            case LoadingProgress(label=label, preparation=preparation) if (label, preparation) != self._loading:
                self._loading = label, preparation
                print_notice(f"{preparation}…" if preparation else event.text)
            case Failed(message=message):
                self.end_line()
                print_notice(f"specchat: {message}")
            case _:
                pass

    def on_agent_event(self, event: AgentEvent) -> None:
        self.end_line()
        if line := self._calls.on_event(event):
            print_notice(line)

    def end_line(self) -> None:
        self._thinking.end_line()
        if self._is_inside_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._is_inside_line = False


def print_notice(line: str) -> None:
    """Print a line beside the answers, on stderr."""
    write_line(line, sys.stderr)
