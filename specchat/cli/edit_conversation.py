"""How the edit commands reach a model: the conversation, its context window, progress, Ctrl-C and the timeout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from threading import Event as Flag
from threading import Timer
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from specchat.chat.events import Event, Notice
from specchat.chat.request import Request
from specchat.cli.options import resolve_profile
from specchat.cli.print_turn import TemporaryLine
from specchat.cli.session_options import open_host_conversation, session_request
from specchat.cli.starter_offer import offer_starter
from specchat.edit.edit_plan import Region
from specchat.edit.edit_task import EditJob, needs_model
from specchat.edit.edit_turn import Conversation, EditRun
from specchat.edit.rewrite_alignment import ProgressLine
from specchat.edit.source_text import Source
from specchat.edit.terminal_review import wants_colours
from specchat.errors import CancelledError, NoUsableEditError
from specchat.host.client import Conversation as HostedConversation
from specchat.profile import Profile
from specchat.repl.interrupt import interruptible

Result = TypeVar("Result")


class LateConversation(AbstractContextManager["LateConversation"]):
    """A conversation that is opened by its first request, for an edit that most likely needs none."""

    def __init__(self, open_conversation: Callable[[], AbstractContextManager[Conversation]]) -> None:
        self._open_conversation = open_conversation
        self._opened = ExitStack()
        self._conversation: Conversation | None = None

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        if self._conversation is None:
            self._conversation = self._opened.enter_context(self._open_conversation())
        return self._conversation.ask(request, cancelled)

    def restart(self) -> None:
        """Let the next request open another conversation."""
        self._opened.close()
        self._conversation = None


def open_conversation_for(
    source: Source, instruction: str, region: Region | None, options: dict[str, Any], *, offers_starter: bool = True
) -> AbstractContextManager[Conversation]:
    """A conversation for an edit of one text. An edit without a model starts no engine process."""
    open_now = partial(open_edit_conversation, options, offers_starter=offers_starter)
    return open_now() if needs_model(source, instruction, region) else LateConversation(open_now)


def open_edit_conversation(
    options: dict[str, Any], *, offers_starter: bool = True
) -> AbstractContextManager[Conversation]:
    """A conversation for one file: with the host, or with its replacement in tests."""
    context = click.get_current_context()
    if context.obj is not None:
        return context.obj(resolve_profile(options))
    options = _with_edit_profile(options)
    if offers_starter:
        offer_starter(options)
    return open_host_conversation(session_request(options, kind="edit"))


def edit_run_for(options: dict[str, Any], conversation: Conversation) -> EditRun:
    """The host can start a new conversation for a retry; its replacement in tests cannot."""
    run = EditRun(conversation, temperature=options["temperature"])
    if isinstance(conversation, HostedConversation):
        run.restart_conversation = lambda: conversation.switch_session(conversation.open_new_session())
    if isinstance(conversation, LateConversation):
        run.restart_conversation = conversation.restart
    return run


def context_window(options: dict[str, Any], conversation: Conversation) -> int:
    """The context window in tokens: as the host reports it, else as the profile limits it."""
    if isinstance(conversation, HostedConversation):
        return conversation.window_tokens
    return resolve_edit_profile(options).limits.context


def resolve_edit_profile(options: dict[str, Any]) -> Profile:
    """The profile of the options, by default `edit`."""
    return resolve_profile(_with_edit_profile(options))


def _with_edit_profile(options: dict[str, Any]) -> dict[str, Any]:
    """Use the profile `edit` unless another one was named."""
    is_default = click.get_current_context().get_parameter_source("profile") == ParameterSource.DEFAULT
    return {**options, "profile": "edit"} if is_default else options


def run_with_progress(
    job: EditJob, run: EditRun, timeout_seconds: float | None, request_edit: Callable[[], Result]
) -> Result:
    """Run the request with a progress line; Ctrl-C and the timeout cancel it."""
    progress_line, is_late = TemporaryLine(), Flag()
    alignment = ProgressLine(job.source.text, progress_line.show) if wants_colours() else None

    def on_event(event: Event) -> None:
        if isinstance(event, Notice):
            progress_line.erase()
            _print_notice(event.text)
        if alignment is not None:
            alignment.on_event(event)

    run.on_event = on_event
    with interruptible() as stopped, _timeout(timeout_seconds, is_late, stopped):
        run.cancelled = stopped
        try:
            result = request_edit()
            progress_line.erase()
            if run.talk:  # what the model said beside the new text
                print(run.talk, file=sys.stderr)
            return result
        except CancelledError as cancelled:
            if is_late.is_set():
                raise NoUsableEditError(f"{job.source.name}: no new text within {timeout_seconds:g} s") from None
            cancelled.exit_code = stopped.exit_code
            raise
        finally:
            progress_line.erase()


@cache
def _print_notice(text: str) -> None:
    """Print a notice once: every file and every retry may open a session, and each repeats it."""
    print(f"specchat: {text}", file=sys.stderr)


@contextmanager
def _timeout(seconds: float | None, *flags: Flag) -> Generator[None]:
    """Set the flags, in this order, when the time is over."""

    def expire() -> None:
        for flag in flags:
            flag.set()

    timer = Timer(seconds, expire) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
