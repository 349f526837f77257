"""`specchat chat`: a conversation, line by line."""

from __future__ import annotations

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
from specchat.cli.setup_hint import setup_hint
from specchat.cli.starter_offer import offer_starter


@click.command()
@private_option
@resume_options
@click.option("--plain", is_flag=True, help="Line by line (always so here).")
@profile_options
def chat(plain: bool, **options: Any) -> int:
    """Chat with the model, line by line. Conversations are stored; `/help` lists the commands."""
    from specchat.commands.command_registry import ChatState
    from specchat.host.spawn import history_path
    from specchat.repl.loop import run_repl

    del plain  # `chat` has no other mode
    if not (options["session"] or options["is_last"]):
        offer_starter(options)
    chosen = resume_request(options)
    if line := setup_hint(history_path().parent):
        click.echo(line, err=True)
    if not chosen.is_stored:
        click.echo(PRIVATE_NOTICE, err=True)
    prompt_history = history_path().with_name("questions") if chosen.is_stored else None
    with open_host_conversation(chosen) as conversation:
        return run_repl(ChatState(conversation, overrides=chosen.overrides), prompt_history)
