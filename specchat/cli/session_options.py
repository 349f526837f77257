"""The options of a command become a conversation with the host."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from specchat.app.tool_sources import SourceRequest, use_sources
from specchat.cli.completion import complete_sessions
from specchat.cli.notes import print_note
from specchat.cli.options import FLAG_BY_KEY, CommandFunction, check_drafters, read_profile_layers, typed_values
from specchat.cli.sessions import find_thread, open_history
from specchat.errors import UsageError
from specchat.history.history_reader import CHAT
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import history_path
from specchat.profile.settings import Settings

PRIVATE_NOTICE = "private: nothing of this conversation is stored, and nothing is copied from others"


def session_request(options: dict[str, Any], kind: str = CHAT) -> SessionRequest:
    """The request for a new conversation. The options are validated here, so that an error appears at once.

    The sources of tools stay in this process, which builds them when something of them is needed.
    """
    layers = read_profile_layers(options)
    use_sources(SourceRequest(layers.resolve().value))
    settings = layers.settings()
    if not options.get("is_private"):
        return SessionRequest(settings=settings, kind=kind)
    return SessionRequest(settings=settings.with_options({"speculation.recall": False}), kind=kind, is_stored=False)


def private_option(command: CommandFunction) -> CommandFunction:
    text = "Store nothing of this conversation, and copy nothing from others."
    return click.option("--private", "is_private", is_flag=True, help=text)(command)


def resume_options(command: CommandFunction) -> CommandFunction:
    resume = click.option(
        "-r", "--resume", "session", metavar="ID", default="", shell_complete=complete_sessions,
        help="Continue this conversation; the beginning of an id is enough ('specchat sessions list').",
    )  # fmt: skip
    continue_last = click.option(
        "-c", "--continue", "is_last", is_flag=True, help="Continue the last conversation of this folder."
    )
    return continue_last(resume(command))


def resume_request(options: dict[str, Any]) -> SessionRequest:
    """The request for a stored conversation, which keeps its settings but for what is typed; else for a new one.

    Removes the `resume_options` from the options.
    """
    session_id, continues_last = options.pop("session"), options.pop("is_last")
    new_request = session_request(options)
    if (session_id or continues_last) and options.get("is_private"):
        raise UsageError("a stored conversation cannot be private; leave out --private, or start a new one")
    if not (session_id := session_id or (last_session_id() if continues_last else "")):
        if continues_last:
            print_note("no conversation of this folder yet; this is its first one")
        return new_request
    with closing(open_history()) as history:
        thread = find_thread(history, session_id)
        stored = {"name": thread.profile, **history.settings(thread.id)}
    return SessionRequest(thread.id, _with_typed(stored, options))


def last_session_id() -> str:
    """The last conversation of this folder; "" for none."""
    if not history_path().is_file():
        return ""
    with closing(open_history()) as history:
        threads = history.threads(folder=str(Path.cwd()), kind=CHAT)
        return threads[0].id if threads else ""


def _with_typed(stored: Mapping[str, Any], options: Mapping[str, Any]) -> Settings | None:
    """The stored settings with the profile and the options of the command line, and a line about it; None for none."""
    typed, profile_source = typed_values(options), click.get_current_context().get_parameter_source("profile")
    names_profile = profile_source == ParameterSource.COMMANDLINE
    if not typed and not names_profile:
        return None
    settings = Settings.from_json(stored)
    settings = (settings.with_profile(options["profile"]) if names_profile else settings).with_options(typed)
    check_drafters(settings.profile, typed)
    words = [f"profile {options['profile']}"] if names_profile else []
    words += [f"{FLAG_BY_KEY[key]} {value}" for key, value in typed.items()]
    print(f"specchat: this conversation goes on with {', '.join(words)}", file=sys.stderr)
    return settings


def open_host_conversation(request: SessionRequest) -> Conversation:
    """Open the conversation; a warning of the host is printed once, on a terminal."""
    conversation = Conversation(request)
    if conversation.warning and sys.stderr.isatty():
        print(f"specchat: {conversation.warning}", file=sys.stderr)
    return conversation
