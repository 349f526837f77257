"""`specchat chat`: a conversation, line by line."""

from __future__ import annotations

from typing import Any

import click

from specchat.cli.options import profile_options
from specchat.cli.session_options import open_host_conversation, resume_request, session_request
from specchat.cli.setup_hint import setup_hint
from specchat.cli.starter_offer import offer_starter


@click.command()
@click.option("-c", "--continue", "is_last", is_flag=True, help="Continue the last conversation of this folder.")
@click.option(
    "-r", "--resume", "session", default="", help="Continue this conversation; the beginning of an id is enough."
)
@click.option("--plain", is_flag=True, help="Line by line (always so here).")
@profile_options
def chat(is_last: bool, session: str, plain: bool, **options: Any) -> int:
    """Chat with the model, line by line. Conversations are stored; `/help` lists the commands."""
    from specchat.commands.command_registry import ChatState
    from specchat.host.spawn import history_path
    from specchat.repl.loop import run_repl

    del plain  # `chat` has no other mode
    if not (session or is_last):
        offer_starter(options)
    chosen = resume_request(session_request(options), session, continues_last=is_last)
    if line := setup_hint(history_path().parent):
        click.echo(line, err=True)
    with open_host_conversation(chosen) as conversation:
        return run_repl(ChatState(conversation, overrides=chosen.overrides), history_path().with_name("questions"))
