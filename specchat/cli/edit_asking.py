"""How the commands that edit reach a model: which conversation, how large it may grow, and two ways to stop it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Event as Flag
from threading import Timer
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from specchat.cli.edit_progress import Progress
from specchat.cli.options import chosen_profile
from specchat.cli.session_options import open_hosted, wish
from specchat.edit.edit_task import Job
from specchat.edit.edit_turn import Conversation, Talk
from specchat.errors import CancelledError, NoUsableEditError
from specchat.host.client import Conversation as HostedConversation
from specchat.repl.interrupt import stoppable

Result = TypeVar("Result")


def opened(options: dict[str, Any]) -> AbstractContextManager[Conversation]:
    """A conversation for one file: with the host, or with what stands in for it in tests."""
    context = click.get_current_context()
    if context.obj is not None:
        return context.obj(chosen_profile(options))
    return open_hosted(wish(_for_edits(options), kind="edit"))


def talk_with(conversation: Conversation) -> Talk:
    """The host can begin anew; what stands in for it in tests goes on."""
    if not isinstance(conversation, HostedConversation):
        return Talk(conversation)
    return Talk(conversation, anew=lambda: conversation.switch(conversation.fresh()))


def window(options: dict[str, Any], conversation: Conversation) -> int:
    """How many tokens this conversation may have: as the host says, else as far as the profile knows."""
    known = conversation.window if isinstance(conversation, HostedConversation) else 0
    return known or chosen_profile(_for_edits(options)).limits.context


def _for_edits(options: dict[str, Any]) -> dict[str, Any]:
    """The profile `edit`, unless another one was asked for."""
    is_default = click.get_current_context().get_parameter_source("profile") == ParameterSource.DEFAULT
    return {**options, "profile": "edit"} if is_default else options


def asked(job: Job, talk: Talk, seconds: float | None, ask: Callable[[], Result]) -> Result:
    """What comes of asking the model, with a line of progress, an ear for Ctrl-C, and patience for so many seconds."""
    progress, is_late = Progress(job.source.text), Flag()
    talk.hear = progress.hear
    with stoppable() as stopped, _alarm(seconds, is_late, stopped):
        talk.cancelled = stopped
        try:
            return ask()
        except CancelledError as cancelled:
            if is_late.is_set():
                raise NoUsableEditError(f"{job.source.name}: no new text within {seconds:g} s") from None
            cancelled.exit_code = stopped.exit_code
            raise
        finally:
            progress.erase()


@contextmanager
def _alarm(seconds: float | None, *flags: Flag) -> Generator[None]:
    """Set these flags, in this order, unless what is done is done in time."""

    def ring() -> None:
        for flag in flags:
            flag.set()

    timer = Timer(seconds, ring) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
