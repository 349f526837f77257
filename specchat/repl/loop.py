"""The loop: read a line, do it or ask it, print the answer as it comes. Nothing is printed twice.

The answer goes to stdout, everything else to stderr. Ctrl-C during an answer ends it and keeps the partial; at the
prompt it clears the line, and Ctrl-D leaves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from specchat.chat.events import Event, Failed, Loading, Text
from specchat.chat.request import Request
from specchat.commands.registry import changes_files, run_line
from specchat.commands.talk import Reply, Talk
from specchat.errors import SpecchatError
from specchat.profile import Models
from specchat.repl.interrupt import stoppable
from specchat.repl.line_input import can_draw, drawn_reader, plain_reader

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def run_repl(talk: Talk, remembered: Path) -> int:
    """Talk until the person leaves. Returns the exit code."""
    read = drawn_reader(lambda: talk.status, remembered) if can_draw() else plain_reader()
    if sys.stdin.isatty():
        talk.may_load = may_load
    say("/help lists the commands; Ctrl-D leaves")
    while True:
        try:
            line = read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        if line.strip() and do(talk, line).leaves:
            return 0


def do(talk: Talk, line: str) -> Reply:
    """One line; what goes wrong is said, and the talk goes on."""
    try:
        if changes_files(line):
            change(talk, line)
            return Reply()
        reply = run_line(talk, line)
        follow(talk, reply)
    except SpecchatError as error:
        say(f"specchat: {error}")
        return Reply()
    return reply


def follow(talk: Talk, reply: Reply) -> None:
    """Show what there is to show, ask what is to be asked, and go on with what follows from the answer."""
    while True:
        if reply.text:
            say(reply.text)
        if reply.ask:
            ask(talk, reply.ask)
        if reply.then is None:
            return
        reply = reply.then(talk)


def may_load(models: Models) -> bool:
    """Ask the person at this terminal, before other models take minutes and memory; Ctrl-C is a no."""
    from specchat.commands.model_loading import agrees
    from specchat.edit.terminal_review import answer_to

    try:
        return agrees(models, answer_to)
    except KeyboardInterrupt:
        return False


def change(talk: Talk, line: str) -> None:
    """A command about files; Ctrl-C while the model writes ends it, and nothing is written."""
    from specchat.commands.file_edits import run_file_command
    from specchat.repl.edit_prompt import line_desk

    with stoppable() as stopped:
        desk = line_desk(stopped)
        done = run_file_command(talk, line, desk)
    desk.note(done)


def ask(talk: Talk, request: Request) -> None:
    """Print an answer as it comes, and then what it cost."""
    if talk.notice:
        say(talk.notice)
    with stoppable() as stopped:
        printer = Printer()
        try:
            for event in talk.conversation.ask(request, stopped):
                talk.hear(event)
                printer.hear(event)
        finally:
            printer.end()
    if talk.finished:
        say(("(stopped) " if talk.finished.reason == "cancelled" else "") + talk.status)
    for remark in talk.remarks:
        say(remark)


class Printer:
    """Events to a stream of characters."""

    def __init__(self) -> None:
        self._is_inside_line = False
        self._loading = ""
        self._write: Callable[[str], object] = sys.stdout.write

    def hear(self, event: Event) -> None:
        """Print what is to be printed."""
        match event:
            case Text(text=text):
                shown = CONTROL.sub("", text)  # a model must not be able to talk to the terminal
                sys.stdout.write(shown)
                sys.stdout.flush()
                self._is_inside_line = not shown.endswith("\n") if shown else self._is_inside_line
            case Loading(what=what) if what != self._loading:
                self._loading = what
                say(f"loading the {what} model…")
            case Failed(message=message):
                self.end()
                say(f"specchat: {message}")
            case _:
                pass

    def end(self) -> None:
        """End the last line."""
        if self._is_inside_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._is_inside_line = False


def say(line: str) -> None:
    """The talk beside the answers."""
    print(line, file=sys.stderr, flush=True)
