"""`specchat chat`: a conversation, line by line."""

from __future__ import annotations

from typing import Any

import click

from specchat.cli.options import profile_options
from specchat.cli.session_options import open_host_conversation, resume_request, session_request
from specchat.cli.setup_hint import setup_hint


@click.command()
@click.option("-c", "--continue", "is_last", is_flag=True, help="Go on with the last conversation of this folder.")
@click.option(
    "-r", "--resume", "session", default="", help="Go on with this conversation; the beginning of an id will do."
)
@click.option("--plain", is_flag=True, help="Line by line, nothing is drawn twice.")
@profile_options
def chat(is_last: bool, session: str, plain: bool, **options: Any) -> int:
    """Talk with the model. Everything is kept; `/help` says what else can be said."""
    from specchat.commands.command_registry import ChatState
    from specchat.host.spawn import history_path
    from specchat.repl.loop import run_repl

    del plain  # there is no other mode yet
    chosen = resume_request(session_request(options), session, continues_last=is_last)
    if line := setup_hint(history_path().parent):
        click.echo(line, err=True)
    with open_host_conversation(chosen) as conversation:
        return run_repl(ChatState(conversation, overrides=chosen.overrides), history_path().with_name("questions"))
