"""`specchat chat`: a conversation, on the whole terminal or line by line."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import profile_options
from specchat.cli.session_options import (
    PRIVATE_NOTICE,
    open_host_conversation,
    private_option,
    resume_options,
    resume_request,
)
from specchat.cli.starter_offer import offer_starter, setup_hint
from specchat.host.client import SessionRequest
from specchat.host.spawn import history_path
from specchat.terminal import PLAIN, can_move_cursor, exit_when_terminal_closes

BROWSER_DRIVER = "TEXTUAL_DRIVER"  # set where a browser shows the screen


@click.command()
@click.argument("question", nargs=-1)
@private_option
@resume_options
@click.option("--plain", is_flag=True, help="Line by line, and nothing is drawn over: for screen readers.")
@click.option("--lines", is_flag=True, help="Line by line, with an input line that completes and remembers.")
@click.option("--ascii", "is_ascii", is_flag=True, default=None, help="Draw with ASCII characters only.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, for selecting text.")
@profile_options
def chat(question: tuple[str, ...], plain: bool, lines: bool, no_mouse: bool, **options: Any) -> int:
    """Chat with the model; a QUESTION is asked at once.

    On a terminal the chat takes the whole of it and shows live numbers: F1 lists the keys, `/help` the commands.
    Conversations are stored.
    """
    if not (options["session"] or options["is_last"]):
        offer_starter(options)
    chosen = resume_request(options)
    if plain:
        os.environ[PLAIN] = "1"
    if plain or lines or not can_show_screen():
        return _chat_by_lines(chosen, " ".join(question))
    return _chat_on_screen(chosen, " ".join(question), is_ascii=options["is_ascii"], captures_mouse=not no_mouse)


def can_show_screen() -> bool:
    """Whether a browser shows the screen, or a terminal can: stderr as well, because the screen is written to it."""
    return (can_move_cursor() and sys.stderr.isatty()) or BROWSER_DRIVER in os.environ


def _chat_by_lines(chosen: SessionRequest, question: str) -> int:
    from specchat.app.command_registry import ChatState
    from specchat.repl.loop import run_repl

    if line := setup_hint(history_path().parent):
        click.echo(line, err=True)
    if not chosen.is_stored:
        click.echo(PRIVATE_NOTICE, err=True)
    prompt_history = history_path().with_name("questions") if chosen.is_stored else None
    with open_host_conversation(chosen) as conversation:
        state = ChatState(conversation)
        exit_code = run_repl(state, prompt_history, question)
        _print_resume_line(chosen, conversation.session_id if state.finished else "")
    return exit_code


def _chat_on_screen(chosen: SessionRequest, question: str, *, is_ascii: bool | None, captures_mouse: bool) -> int:
    from specchat.drawing.glyphs import choose_glyphs
    from specchat.profile.screen_file import preferences_file
    from specchat.tui.app import ScreenFiles, SpecchatApp, binding_scopes
    from specchat.tui.preferences import read_preferences
    from specchat.tui.terminal_background import DARK_BACKGROUND, terminal_background

    preferred = read_preferences(preferences_file(), binding_scopes())
    preferred = replace(preferred, captures_mouse=preferred.captures_mouse and captures_mouse)
    history = Path(history_path())
    files = ScreenFiles.next_to(history)
    greeting = setup_hint(history.parent)
    if not chosen.is_stored:
        files, greeting = replace(files, prompt_history=None), PRIVATE_NOTICE
    background = DARK_BACKGROUND
    if BROWSER_DRIVER not in os.environ:
        exit_when_terminal_closes()
        background = terminal_background()
    app = SpecchatApp(chosen, files, choose_glyphs(is_ascii), preferred, greeting, question, background)
    app.run(mouse=app.captures_mouse)
    _print_resume_line(chosen, app.chat_screen.presenter.resumable_session)
    return 0


def _print_resume_line(chosen: SessionRequest, session_id: str) -> None:
    """On a terminal, how to go on with a conversation that has turns and is stored."""
    if chosen.is_stored and session_id and sys.stderr.isatty():
        click.echo(f"go on later: specchat -r {session_id}", err=True)
