"""Every `/` command, once, for every front end: its name, its arguments, its help, and what it does.

A command works on a `Talk` and answers with text to show, a question to ask, or the wish to leave. It draws nothing and
reads no keys, so the line mode, the screen and an editor can all offer it. No prompt-toolkit and no torch here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from specchat.chat.at_names import check_name
from specchat.chat.request import Request
from specchat.commands.chat_state import ChatState, CommandResult
from specchat.commands.compact import compact
from specchat.commands.export import EXPORT_FORMATS, export_conversation, format_from_suffix, write_new_file
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import SessionRequest
from specchat.host.protocol import request_from_json
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension
from specchat.profile import SERVER_BACKENDS, Models, load_profile, profile_names

COMMAND_PATTERN = re.compile(r"/(?P<name>[a-z]+)(?:\s+(?P<argument>.*))?\Z", re.DOTALL)
MAX_LISTED_SESSIONS = 20
AT_NAMES_HELP = "anywhere in a question attaches the file; so do @FOLDER/, @*.GLOB and @repo, this repository"


@dataclass(frozen=True)
class Command:
    """One command of the registry."""

    name: str
    arguments: str
    help: str
    run: Callable[[ChatState, str], CommandResult]


def is_file_command(line: str) -> bool:
    """Is it one of the commands that `editing.py` carries out?"""
    found = COMMAND_PATTERN.match(line.strip())
    return bool(found) and found["name"] in FILE_COMMANDS


def run_line(chat: ChatState, line: str) -> CommandResult:
    """What a line means: a command, or a question."""
    found = COMMAND_PATTERN.match(line.strip())
    if not found:
        return CommandResult(request=chat.make_request(line))
    if (command := COMMANDS.get(found["name"]) or conversation_commands().get(found["name"])) is None:
        near = get_close_matches(found["name"], line_mode_commands(), n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise UsageError(f"unknown command /{found['name']}; {hint}")
    return command.run(chat, (found["argument"] or "").strip())


class CommandInfo(Protocol):
    """A command of any table."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def help(self) -> str: ...


def help_text(commands: Collection[CommandInfo]) -> str:
    """Every command in a line."""
    width = max(len(f"/{command.name} {command.arguments}") for command in commands)
    lines = [f"{f'/{command.name} {command.arguments}':{width}}  {command.help}" for command in commands]
    return "\n".join([*lines, f"{'@FILE':{width}}  {AT_NAMES_HELP}"])


def _help(_talk: ChatState, _argument: str) -> CommandResult:
    return CommandResult(help_text(line_mode_commands().values()))


def _quit(_talk: ChatState, _argument: str) -> CommandResult:
    return CommandResult(should_quit=True)


def _new(talk: ChatState, _argument: str) -> CommandResult:
    conversation = talk.conversation
    conversation.switch_session(conversation.open_new_session())
    return CommandResult("a new conversation")


def _retry(talk: ChatState, _argument: str) -> CommandResult:
    """The last question once more; without a fixed seed the dice fall anew."""
    request = _last_request(talk)
    talk.conversation.rewind()
    talk.attachment_notice, talk.passage_sources = "", ()
    return CommandResult(request=replace(request, seed=talk.options.seed, variant=talk.options.variant))


def _take_back_turn(talk: ChatState, _argument: str) -> CommandResult:
    request = _last_request(talk)
    talk.conversation.rewind()
    return CommandResult(f"taken back: {request.text}")


def _last_request(talk: ChatState) -> Request:
    turns = talk.conversation.turns()
    if not turns:
        raise UsageError("nothing was asked yet")
    return request_from_json(turns[-1].request)


def _sessions(talk: ChatState, words: str) -> CommandResult:
    rows = talk.conversation.call("list", {"search": words} if words else {"kind": "chat"})["sessions"]
    lines = [
        f"{row['id']}  {row['name']}" + (f"  ({row['found']})" if words else "") for row in rows[:MAX_LISTED_SESSIONS]
    ]
    more = (
        [f"and {len(rows) - MAX_LISTED_SESSIONS} more; /sessions WORDS searches"]
        if len(rows) > MAX_LISTED_SESSIONS
        else []
    )
    return CommandResult("\n".join([*lines, *more]) or "none")


def _open(talk: ChatState, id: str) -> CommandResult:
    if not id:
        raise UsageError("/open needs the id of a session, or its beginning; /sessions lists them")
    talk.conversation.switch_session(talk.conversation.call("open", {"session": id}))
    return CommandResult(_transcript(talk))


def _transcript(talk: ChatState) -> str:
    turns = talk.conversation.turns()
    return "\n".join(f"> {turn.request['text']}\n{turn.answer.text}" for turn in turns) or "nothing was said yet"


def _show(talk: ChatState, _argument: str) -> CommandResult:
    return CommandResult(_transcript(talk))


def _save(talk: ChatState, name: str) -> CommandResult:
    return _export_to_file(talk, "/save", name, "markdown")


def _export(talk: ChatState, argument: str) -> CommandResult:
    """The format is said first, or by the end of the name."""
    first, _, rest = argument.partition(" ")
    form, name = (first, rest.strip()) if first in EXPORT_FORMATS and rest.strip() else ("", argument)
    return _export_to_file(talk, "/export", name, form or format_from_suffix(Path(name)))


def _export_to_file(talk: ChatState, command: str, name: str, form: str) -> CommandResult:
    if not name:
        raise UsageError(f"{command} needs the name of a file")
    turns, path = talk.conversation.turns(), Path(name).expanduser()
    if not turns:
        raise UsageError("nothing was said yet")
    write_new_file(path, export_conversation(form, str(talk.conversation.call("subscribe")["name"]), turns))
    return CommandResult(f"{len(turns)} question{'' if len(turns) == 1 else 's'} and answers in {path}")


def _rename(talk: ChatState, name: str) -> CommandResult:
    if not name:
        raise UsageError("/rename needs a name")
    talk.conversation.call("rename", {"name": name})
    return CommandResult(f"now called {name}")


def _delete(talk: ChatState, id: str) -> CommandResult:
    talk.conversation.call("delete", {"session": id} if id else {})
    return _new(talk, "") if not id else CommandResult(f"deleted; /restore {id} brings it back")


def _restore(talk: ChatState, id: str) -> CommandResult:
    if not id:
        rows = talk.conversation.call("list", {"deleted": True})["sessions"]
        return CommandResult("\n".join(f"{row['id']}  {row['name']}" for row in rows) or "nothing was deleted")
    talk.conversation.call("restore", {"session": id})
    return CommandResult("restored")


def _fork(talk: ChatState, _argument: str) -> CommandResult:
    talk.conversation.switch_session(talk.conversation.call("fork"))
    return CommandResult("a copy of this conversation; the old one stays as it is")


def _file(talk: ChatState, name: str) -> CommandResult:
    check_name(name)  # a mistake is told now, not with the question
    talk.pending_names.append(name)
    return CommandResult(f"{name} goes with the next question")


def _option_command(option: str, convert: Callable[[str], Any]) -> Callable[[ChatState, str], CommandResult]:
    """A command that sets one option; without an argument the profile decides again."""

    def run(talk: ChatState, argument: str) -> CommandResult:
        try:
            value = convert(argument) if argument else None
        except ValueError:
            raise UsageError(f"/{option} cannot be {argument!r}") from None
        talk.options = replace(talk.options, **{option: value})
        return CommandResult(f"{option}: {'as the profile says' if value is None else value}")

    return run


def _profile(talk: ChatState, name: str) -> CommandResult:
    conversation = talk.conversation
    if not name:
        return CommandResult(f"profile {conversation.profile}; known are {', '.join(profile_names())}")
    models = load_profile(name, talk.overrides).models
    is_other = models.backend not in SERVER_BACKENDS and models != _models_or_none(conversation.profile, talk.overrides)
    if is_other and not talk.confirm_load(models):
        return CommandResult(f"nothing is loaded; the profile stays {Path(conversation.profile).stem}")
    conversation.call("set", {"profile": SessionRequest(profile=name).to_params()["profile"]})
    conversation.profile = name
    return CommandResult(f"profile {name}" + ("; other models are loaded with the next question" if is_other else ""))


def _models_or_none(profile: str, overrides: Mapping[str, Any]) -> Models | None:
    """None of one that is gone: nobody knows what was loaded for it."""
    try:
        return load_profile(profile, overrides).models
    except SpecchatError:
        return None


def _stats(talk: ChatState, _argument: str) -> CommandResult:
    stats = talk.conversation.call("stats")
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["memory"].items())
    engine = f"engine {stats['state']}; {memory or 'no model in memory'}; {stats['sessions']} sessions"
    return CommandResult("\n".join([talk.status_line, engine, stats["trouble"]]).rstrip())


def _why(talk: ChatState, _argument: str) -> CommandResult:
    why = talk.conversation.call("why")
    if not why:
        return CommandResult("nothing was answered yet")
    said = f"{why['variant']}, at most {why['budget']} guesses a step, seed {why['seed']}: {why['reason']}"
    measured = talk.finished.totals.choice_reason if talk.finished else ""
    return CommandResult(f"{said}\n{measured}".rstrip())


def _inspect(talk: ChatState, number: str) -> CommandResult:
    from specchat.commands.inspect_text import inspect_answer  # the colours of the screen take a while

    return CommandResult(inspect_answer(talk.conversation, number))


COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command("help", "", "what can be said here", _help),
        Command("new", "", "begin a new conversation", _new),
        Command("retry", "", "answer the last question again, with other dice", _retry),
        Command("back", "", "take the last question and its answer back", _take_back_turn),
        Command(
            "undo", "", "the same, where files are the editor's; elsewhere it is about edits of files", _take_back_turn
        ),
        Command("file", "PATH", "attach a file, folder or glob to the next question", _file),
        Command("show", "", "this conversation from its beginning", _show),
        Command("save", "FILE", "write this conversation to a new file, as Markdown", _save),
        Command("export", "[json|markdown] FILE", "the same in a format; without one, .json says JSON", _export),
        Command("sessions", "[WORDS]", "earlier conversations, or those where words were said", _sessions),
        Command("open", "ID", "go on with an earlier conversation", _open),
        Command("fork", "", "go on in a copy of this conversation", _fork),
        Command("compact", "", "have this conversation summed up, and go on in a copy that begins so", compact),
        Command("rename", "NAME", "give this conversation a name", _rename),
        Command("delete", "[ID]", "take this or another conversation from the list", _delete),
        Command("restore", "[ID]", "bring a deleted conversation back, or list them", _restore),
        Command("profile", "[NAME]", "answer as another profile says, from the next question on", _profile),
        Command("variant", "[NAME]", "who guesses: auto, plain, lookup, draft", _option_command("variant", str)),
        Command(
            "temperature", "[NUMBER]", "0 takes the likeliest token, always", _option_command("temperature", float)
        ),
        Command("seed", "[NUMBER]", "the same seed gives the same answer", _option_command("seed", int)),
        Command("stats", "", "speed, memory and sessions", _stats),
        Command("why", "", "who guessed in the last answer, and for what reason", _why),
        Command("inspect", "[N]", "the last answer, or answer N, by who guessed it, step by step", _inspect),
        Command("quit", "", "leave; everything is kept", _quit),
    )
}


@dataclass(frozen=True)
class FileCommand:
    """A command that changes files, with a person who decides; `editing.py` carries it out."""

    name: str
    arguments: str
    help: str


FILE_COMMANDS: Mapping[str, FileCommand] = {
    command.name: command
    for command in (
        FileCommand("edit", "PATH... INSTRUCTION", "rewrite files as asked; you decide hunk by hunk"),
        FileCommand("apply", "[N] [PATH]", "write a block of code of the last answer to its file"),
        FileCommand("undo", "[N|FILE]", "take back the last edit of files, or another one"),
    )
}


def conversation_commands(reserved_names: Collection[str] = ()) -> Mapping[str, Command]:
    """Ours, and then those of plugins; `taken` are names that a front end has beside them."""
    added = find_extensions("slash_commands", {*COMMANDS, *reserved_names})
    return {**COMMANDS, **{name: _plugin_command(offer) for name, offer in added.items()}}


def line_mode_commands() -> Mapping[str, CommandInfo]:
    """What can be said line by line; those about files take the place of a namesake."""
    return {**conversation_commands(FILE_COMMANDS), **FILE_COMMANDS}


def _plugin_command(offer: Extension) -> Command:
    def run(talk: ChatState, argument: str) -> CommandResult:
        reply = offer.call(talk, argument)
        if not isinstance(reply, CommandResult):
            raise offer.plugin_error(f"answered with a {type(reply).__name__}, which is no Reply")
        return reply

    return Command(offer.name, offer.arguments, offer.description, run)
