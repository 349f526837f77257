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
from specchat.commands.compact import compact
from specchat.commands.export import FORMATS, exported, format_of, write_new
from specchat.commands.talk import Reply, Talk
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import Wish
from specchat.host.protocol import request_from_json
from specchat.plugins.discovery import offers
from specchat.plugins.offer import Offer
from specchat.profile import SERVERS, Models, load_profile, profile_names

COMMAND = re.compile(r"/(?P<name>[a-z]+)(?:\s+(?P<argument>.*))?\Z", re.DOTALL)
LISTED = 20
MENTIONS_HELP = "anywhere in a question attaches the file; so do @FOLDER/, @*.GLOB and @repo, this repository"


@dataclass(frozen=True)
class Command:
    """One command of the registry."""

    name: str
    arguments: str
    help: str
    run: Callable[[Talk, str], Reply]


def changes_files(line: str) -> bool:
    """Is it one of the commands that `editing.py` carries out?"""
    found = COMMAND.match(line.strip())
    return bool(found) and found["name"] in FILE_COMMANDS


def run_line(talk: Talk, line: str) -> Reply:
    """What a line means: a command, or a question."""
    found = COMMAND.match(line.strip())
    if not found:
        return Reply(ask=talk.request(line))
    if (command := COMMANDS.get(found["name"]) or every_command().get(found["name"])) is None:
        near = get_close_matches(found["name"], line_commands(), n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise UsageError(f"unknown command /{found['name']}; {hint}")
    return command.run(talk, (found["argument"] or "").strip())


class Described(Protocol):
    """A command of any table."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def help(self) -> str: ...


def help_text(commands: Collection[Described]) -> str:
    """Every command in a line."""
    width = max(len(f"/{command.name} {command.arguments}") for command in commands)
    lines = [f"{f'/{command.name} {command.arguments}':{width}}  {command.help}" for command in commands]
    return "\n".join([*lines, f"{'@FILE':{width}}  {MENTIONS_HELP}"])


def _help(_talk: Talk, _argument: str) -> Reply:
    return Reply(help_text(line_commands().values()))


def _quit(_talk: Talk, _argument: str) -> Reply:
    return Reply(leaves=True)


def _new(talk: Talk, _argument: str) -> Reply:
    conversation = talk.conversation
    conversation.switch(conversation.fresh())
    return Reply("a new conversation")


def _retry(talk: Talk, _argument: str) -> Reply:
    """The last question once more; without a fixed seed the dice fall anew."""
    request = _last_request(talk)
    talk.conversation.rewind()
    talk.notice, talk.sources = "", ()
    return Reply(ask=replace(request, seed=talk.options.seed, variant=talk.options.variant))


def _undo(talk: Talk, _argument: str) -> Reply:
    request = _last_request(talk)
    talk.conversation.rewind()
    return Reply(f"taken back: {request.text}")


def _last_request(talk: Talk) -> Request:
    turns = talk.conversation.turns()
    if not turns:
        raise UsageError("nothing was asked yet")
    return request_from_json(turns[-1].request)


def _sessions(talk: Talk, words: str) -> Reply:
    rows = talk.conversation.call("list", {"search": words} if words else {"kind": "chat"})["sessions"]
    lines = [f"{row['id']}  {row['name']}" + (f"  ({row['found']})" if words else "") for row in rows[:LISTED]]
    more = [f"and {len(rows) - LISTED} more; /sessions WORDS searches"] if len(rows) > LISTED else []
    return Reply("\n".join([*lines, *more]) or "none")


def _open(talk: Talk, id: str) -> Reply:
    if not id:
        raise UsageError("/open needs the id of a session, or its beginning; /sessions lists them")
    talk.conversation.switch(talk.conversation.call("open", {"session": id}))
    return Reply(_transcript(talk))


def _transcript(talk: Talk) -> str:
    turns = talk.conversation.turns()
    return "\n".join(f"> {turn.request['text']}\n{turn.answered.text}" for turn in turns) or "nothing was said yet"


def _show(talk: Talk, _argument: str) -> Reply:
    return Reply(_transcript(talk))


def _save(talk: Talk, name: str) -> Reply:
    return _write(talk, "/save", name, "markdown")


def _export(talk: Talk, argument: str) -> Reply:
    """The format is said first, or by the end of the name."""
    first, _, rest = argument.partition(" ")
    form, name = (first, rest.strip()) if first in FORMATS and rest.strip() else ("", argument)
    return _write(talk, "/export", name, form or format_of(Path(name)))


def _write(talk: Talk, command: str, name: str, form: str) -> Reply:
    if not name:
        raise UsageError(f"{command} needs the name of a file")
    turns, path = talk.conversation.turns(), Path(name).expanduser()
    if not turns:
        raise UsageError("nothing was said yet")
    write_new(path, exported(form, str(talk.conversation.call("subscribe")["name"]), turns))
    return Reply(f"{len(turns)} question{'' if len(turns) == 1 else 's'} and answers in {path}")


def _rename(talk: Talk, name: str) -> Reply:
    if not name:
        raise UsageError("/rename needs a name")
    talk.conversation.call("rename", {"name": name})
    return Reply(f"now called {name}")


def _delete(talk: Talk, id: str) -> Reply:
    talk.conversation.call("delete", {"session": id} if id else {})
    return _new(talk, "") if not id else Reply(f"deleted; /restore {id} brings it back")


def _restore(talk: Talk, id: str) -> Reply:
    if not id:
        rows = talk.conversation.call("list", {"deleted": True})["sessions"]
        return Reply("\n".join(f"{row['id']}  {row['name']}" for row in rows) or "nothing was deleted")
    talk.conversation.call("restore", {"session": id})
    return Reply("restored")


def _fork(talk: Talk, _argument: str) -> Reply:
    talk.conversation.switch(talk.conversation.call("fork"))
    return Reply("a copy of this conversation; the old one stays as it is")


def _file(talk: Talk, name: str) -> Reply:
    check_name(name)  # a mistake is told now, not with the question
    talk.names.append(name)
    return Reply(f"{name} goes with the next question")


def _choose(option: str, convert: Callable[[str], Any]) -> Callable[[Talk, str], Reply]:
    """A command that sets one option; without an argument the profile decides again."""

    def run(talk: Talk, argument: str) -> Reply:
        try:
            value = convert(argument) if argument else None
        except ValueError:
            raise UsageError(f"/{option} cannot be {argument!r}") from None
        talk.options = replace(talk.options, **{option: value})
        return Reply(f"{option}: {'as the profile says' if value is None else value}")

    return run


def _profile(talk: Talk, name: str) -> Reply:
    conversation = talk.conversation
    if not name:
        return Reply(f"profile {conversation.profile}; known are {', '.join(profile_names())}")
    models = load_profile(name, talk.overrides).models
    is_other = models.backend not in SERVERS and models != _models_of(conversation.profile, talk.overrides)
    if is_other and not talk.may_load(models):
        return Reply(f"nothing is loaded; the profile stays {Path(conversation.profile).stem}")
    conversation.call("set", {"profile": Wish(profile=name).params()["profile"]})
    conversation.profile = name
    return Reply(f"profile {name}" + ("; other models are loaded with the next question" if is_other else ""))


def _models_of(profile: str, overrides: Mapping[str, Any]) -> Models | None:
    """None of one that is gone: nobody knows what was loaded for it."""
    try:
        return load_profile(profile, overrides).models
    except SpecchatError:
        return None


def _stats(talk: Talk, _argument: str) -> Reply:
    stats = talk.conversation.call("stats")
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["memory"].items())
    engine = f"engine {stats['state']}; {memory or 'no model in memory'}; {stats['sessions']} sessions"
    return Reply("\n".join([talk.status, engine, stats["trouble"]]).rstrip())


def _why(talk: Talk, _argument: str) -> Reply:
    why = talk.conversation.call("why")
    if not why:
        return Reply("nothing was answered yet")
    said = f"{why['variant']}, at most {why['budget']} guesses a step, seed {why['seed']}: {why['reason']}"
    measured = talk.finished.totals.why if talk.finished else ""
    return Reply(f"{said}\n{measured}".rstrip())


def _inspect(talk: Talk, number: str) -> Reply:
    from specchat.commands.inspect_text import inspect_answer  # the colours of the screen take a while

    return Reply(inspect_answer(talk.conversation, number))


COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command("help", "", "what can be said here", _help),
        Command("new", "", "begin a new conversation", _new),
        Command("retry", "", "answer the last question again, with other dice", _retry),
        Command("back", "", "take the last question and its answer back", _undo),
        Command("undo", "", "the same, where files are the editor's; elsewhere it is about edits of files", _undo),
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
        Command("variant", "[NAME]", "who guesses: auto, plain, lookup, draft", _choose("variant", str)),
        Command("temperature", "[NUMBER]", "0 takes the likeliest token, always", _choose("temperature", float)),
        Command("seed", "[NUMBER]", "the same seed gives the same answer", _choose("seed", int)),
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


def every_command(taken: Collection[str] = ()) -> Mapping[str, Command]:
    """Ours, and then those of plugins; `taken` are names that a front end has beside them."""
    added = offers("slash_commands", {*COMMANDS, *taken})
    return {**COMMANDS, **{name: _added(offer) for name, offer in added.items()}}


def line_commands() -> Mapping[str, Described]:
    """What can be said line by line; those about files take the place of a namesake."""
    return {**every_command(FILE_COMMANDS), **FILE_COMMANDS}


def _added(offer: Offer) -> Command:
    def run(talk: Talk, argument: str) -> Reply:
        reply = offer.call(talk, argument)
        if not isinstance(reply, Reply):
            raise offer.failure(f"answered with a {type(reply).__name__}, which is no Reply")
        return reply

    return Command(offer.name, offer.arguments, offer.what, run)
