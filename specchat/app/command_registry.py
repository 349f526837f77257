"""The slash commands of every front end: what `commands.toml` says of each, and what it does.

A command works on a `ChatState` and returns a `CommandResult`. It draws nothing and reads no keys, so the line mode,
the TUI and editors share it. This module imports neither prompt_toolkit nor torch.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from specchat.app.chat_settings import CHAT_SETTINGS, COMMAND_TABLES, run_setting, show_settings, switch_model
from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.compact import compact
from specchat.app.export import write_conversation
from specchat.app.question import Question
from specchat.app.session_lines import session_details
from specchat.app.tool_sources import MCP, ToolSources
from specchat.chat.events import Routed
from specchat.chat.request import Request
from specchat.chat.turn_summary import explanation
from specchat.context.at_names import check_name, resolve_names, unquoted_name
from specchat.errors import UsageError
from specchat.history.history_reader import CHAT
from specchat.host.protocol import request_from_json
from specchat.host.wire_values import from_json
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension
from specchat.plugins.own_plugins import missing_plugin
from specchat.profile.profile_files import profile_names

COMMAND_PATTERN = re.compile(r"/(?P<name>[a-z]+:[^\s:]+:\S+|[a-z][a-z-]*)(?:\s+(?P<argument>.*))?\Z", re.DOTALL)
MAX_LISTED_SESSIONS = 20
MAX_SHOWN_PROMPT = 200  # characters of the prompt of a source, which is sent in the name of the user
FILE_ARGUMENT_COMMANDS = ("/file ", "/edit ", "/apply ", "/summarize ")  # their first argument is a path
ALL_VERSIONS = "--all"
SUMMARY_QUESTION = "Summarize this file."
HELP_GROUPS: Mapping[str, Sequence[str]] = {
    title: names.format(settings=" ".join(CHAT_SETTINGS)).split() for title, names in COMMAND_TABLES["groups"].items()
}
AT_NAMES_HELP = 'anywhere in a request attaches the file, @"A NAME" one with spaces; so do @FOLDER/, @*.GLOB and @repo'


@dataclass(frozen=True)
class CommandInfo:
    """What help and completion show of a command."""

    name: str
    arguments: str
    help: str


@dataclass(frozen=True)
class Command(CommandInfo):
    run: Callable[[ChatState, str], CommandResult]
    changes_conversation: bool = False


def is_file_command(line: str) -> bool:
    """Whether `file_edits.py` runs this command."""
    match = COMMAND_PATTERN.match(line.strip())
    return bool(match) and match["name"] in FILE_COMMANDS


def run_line(chat: ChatState, line: str) -> CommandResult:
    """Run a command; any other line is a question."""
    match = COMMAND_PATTERN.match(line.strip())
    if not match:
        return CommandResult(request=Question(line))
    if ":" in match["name"]:
        return _source_prompt(chat, match["name"], match["argument"] or "") or CommandResult(request=Question(line))
    if (command := COMMANDS.get(match["name"]) or conversation_commands().get(match["name"])) is None:
        if match["name"] == MCP:
            raise missing_plugin("'/mcp'", MCP)
        nearest = get_close_matches(match["name"], line_mode_commands(), n=1)
        hint = f"did you mean /{nearest[0]}?" if nearest else "/help lists them"
        raise UsageError(f"unknown command /{match['name']}; {hint}")
    return command.run(chat, (match["argument"] or "").strip())


def _source_prompt(chat: ChatState, name: str, argument: str) -> CommandResult | None:
    """The question that a source of tools has for this name; None where no source does."""
    text = chat.sources.prompt(name, argument)
    if text is None:
        return None
    return CommandResult(f"{name}: {' '.join(text.split())[:MAX_SHOWN_PROMPT]}", request=Request(text))


def help_text(commands: Collection[CommandInfo]) -> str:
    """The commands in groups; those of plugins and of this front end alone stand at the end."""
    by_name = {command.name: command for command in commands}
    groups = {title: [by_name.pop(name) for name in names if name in by_name] for title, names in HELP_GROUPS.items()}
    lines = [f"@FILE  {AT_NAMES_HELP}"]
    for title, group in {**groups, "More": list(by_name.values())}.items():
        usages = [f"/{each.name} {each.arguments}" for each in group]
        width = max(map(len, usages), default=0)
        rows = [f"{usage:{width}}  {each.help}" for usage, each in zip(usages, group, strict=True)]
        lines += ["", title, *rows] if rows else []
    return "\n".join(lines)


def _new(chat: ChatState, _argument: str) -> CommandResult:
    conversation = chat.conversation
    conversation.switch_session(conversation.open_new_session())
    return CommandResult("a new conversation")


def _retry(chat: ChatState, _argument: str) -> CommandResult:
    """Send the last request once more; unless `/seed` fixed it, sampling draws new noise."""
    request = _last_request(chat)
    chat.conversation.rewind()
    return CommandResult(request=replace(request, seed=None, temperature=None, variant=None))


def _take_back_turn(chat: ChatState, _argument: str) -> CommandResult:
    request = _last_request(chat)
    chat.conversation.rewind()
    return CommandResult(f"removed: {request.text}")


def _last_request(chat: ChatState) -> Request:
    turns = chat.conversation.turns()
    if not turns:
        raise UsageError("this conversation has no requests yet")
    return request_from_json(turns[-1].request)


def _sessions(chat: ChatState, words: str) -> CommandResult:
    rows = chat.conversation.call("list_sessions", {"search": words} if words else {"kind": CHAT})["sessions"]
    lines = [_session_line(row) for row in rows[:MAX_LISTED_SESSIONS]]
    if (more := len(rows) - MAX_LISTED_SESSIONS) > 0:
        lines.append(f"and {more} more; /sessions WORDS searches")
    return CommandResult("\n".join(lines) or "none")


def _session_line(row: Mapping[str, Any]) -> str:
    details = session_details(row["model"], row["folder"], row["turn_count"], ", ")
    return f"{row['id']}  {row['name']}  ({row['snippet'] or details})"


def _open(chat: ChatState, id: str) -> CommandResult:
    if not id:
        raise UsageError("/open needs the id of a session, or the first characters of it; /sessions lists them")
    chat.conversation.switch_session(chat.conversation.call("open_session", {"session": id}))
    return CommandResult(_transcript(chat), is_conversation=True)


def _transcript(chat: ChatState) -> str:
    turns = chat.conversation.turns()
    return "\n".join(f"> {turn.request['text']}\n{turn.answer.text}" for turn in turns) or "this conversation is empty"


def _version(chat: ChatState, number: str) -> CommandResult:
    """Show another version of the last answer, and continue with it."""
    conversation = chat.conversation
    if not (turns := conversation.turns()):
        raise UsageError("this conversation has no answer yet")
    versions = conversation.versions().get(turns[-1].id, (turns[-1].id,))
    if not number:
        shown = versions.index(turns[-1].id) + 1
        return CommandResult(f"version {shown} of {len(versions)} of the last answer; /version N shows another one")
    if not number.isdecimal():
        raise UsageError(f"/version needs a number, not {number!r}")
    conversation.select_version(len(turns) - 1, int(number))
    return CommandResult(f"version {number} of {len(versions)}\n{_transcript(chat)}", is_conversation=True)


def _export(chat: ChatState, argument: str) -> CommandResult:
    name = argument.removesuffix(ALL_VERSIONS).strip()
    if not name:
        raise UsageError("/export needs a file name")
    has_all = argument != name
    turns, path = chat.conversation.all_turns() if has_all else chat.conversation.turns(), Path(name).expanduser()
    if not turns:
        raise UsageError("this conversation is empty")
    title = str(chat.conversation.call("session_info")["name"])
    return CommandResult(write_conversation(path, title, turns))


def _rename(chat: ChatState, name: str) -> CommandResult:
    if not name:
        raise UsageError("/rename needs a name")
    chat.conversation.call("rename", {"name": name})
    return CommandResult(f"renamed to {name}")


def _delete(chat: ChatState, id: str) -> CommandResult:
    chat.conversation.call("delete", {"session": id} if id else {})
    return _new(chat, "") if not id else CommandResult(f"deleted; /restore {id} brings it back")


def _restore(chat: ChatState, id: str) -> CommandResult:
    if not id:
        rows = chat.conversation.call("list_sessions", {"is_deleted": True})["sessions"]
        return CommandResult("\n".join(f"{row['id']}  {row['name']}" for row in rows) or "no conversation is deleted")
    chat.conversation.call("restore", {"session": id})
    return CommandResult("restored")


def _fork(chat: ChatState, _argument: str) -> CommandResult:
    chat.conversation.switch_session(chat.conversation.call("fork"))
    return CommandResult("a copy of this conversation; the original is unchanged")


def _file(chat: ChatState, argument: str) -> CommandResult:
    name, access = unquoted_name(argument), replace(chat.access, loader=chat.sources.loader)
    check_name(name, access)  # report a mistake now, not with the next request
    chat.pending_names = (*chat.pending_names, name)
    return CommandResult(f"{name} is attached to the next request")


def _summarize(chat: ChatState, argument: str) -> CommandResult:
    """A question about all of a file; `part_reader.py` reads one that does not fit, when the request is sent."""
    typed = argument.strip().removeprefix("@")
    if typed.startswith('"') and '"' in typed[1:]:
        name, _, question = typed[1:].partition('"')
    else:
        name, _, question = typed.partition(" ")
    if not name:
        raise UsageError("/summarize needs a file, and perhaps a question about it")
    named, listing = resolve_names([unquoted_name(name)], chat.access)
    if len(named) != 1 or listing.files:
        raise UsageError("/summarize reads one file; attach a folder with @, which finds the matching passages")
    return CommandResult(request=Question(question.strip() or SUMMARY_QUESTION, files=(named[0],), has_mentions=False))


def _profile(chat: ChatState, name: str) -> CommandResult:
    conversation = chat.conversation
    if not name:
        return CommandResult(f"profile {conversation.profile}; available: {', '.join(profile_names())}")
    settings = conversation.settings.with_profile(name)
    models = settings.profile.models
    is_other = not models.is_on_server and models != conversation.settings.profile.models
    if is_other and chat.ui.confirm is not None:
        from specchat.app.model_loading import loading_question  # most sessions never need it

        if not chat.ui.confirm(loading_question(models)):
            return CommandResult(f"no model is loaded; the profile stays {Path(conversation.profile).stem}")
    conversation.use(settings)
    return CommandResult(f"profile {name}" + ("; other models load with the next request" if is_other else ""))


def _stats(chat: ChatState, _argument: str) -> CommandResult:
    stats = chat.conversation.call("stats")
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["memory_bytes"].items())
    engine = f"engine {stats['state']}; {memory or 'no model loaded'}; {stats['sessions']} sessions"
    return CommandResult("\n".join([chat.status_line, engine, stats["warning"]]).rstrip())


def _why(chat: ChatState, _argument: str) -> CommandResult:
    why = chat.conversation.call("explain_routing")
    if not why:
        return CommandResult("this conversation has no answer yet")
    return CommandResult(explanation(from_json(Routed, why), chat.finished.totals if chat.finished else None))


def _inspect(chat: ChatState, number: str) -> CommandResult:
    from specchat.app.inspect_text import inspect_answer  # the colours of the TUI import slowly

    return CommandResult(inspect_answer(chat.conversation, number))


RUNNERS: Mapping[str, Callable[[ChatState, str], CommandResult]] = {
    "help": lambda *_: CommandResult(help_text(line_mode_commands().values())), "new": _new, "retry": _retry,
    "back": _take_back_turn, "undo": _take_back_turn, "file": _file, "summarize": _summarize,
    "show": lambda chat, _argument: CommandResult(_transcript(chat)), "version": _version, "export": _export,
    "sessions": _sessions, "open": _open, "fork": _fork, "compact": compact, "rename": _rename, "delete": _delete,
    "restore": _restore, "profile": _profile, "model": switch_model, "settings": show_settings, "stats": _stats,
    "why": _why, "inspect": _inspect, "quit": lambda *_: CommandResult(should_quit=True),
    **{name: partial(run_setting, setting) for name, setting in CHAT_SETTINGS.items()},
}  # fmt: skip
COMMANDS: Mapping[str, Command] = {
    name: Command(
        name,
        entry.get("arguments", "") if "help" in entry else CHAT_SETTINGS[name].arguments,
        entry["help"] if "help" in entry else CHAT_SETTINGS[name].help,
        RUNNERS[name],
        changes_conversation=entry.get("changes_conversation", False),
    )
    for name, entry in COMMAND_TABLES["commands"].items()
}
FILE_COMMANDS: Mapping[str, CommandInfo] = {
    name: CommandInfo(name, **entry) for name, entry in COMMAND_TABLES["file_commands"].items()
}


def conversation_commands(reserved_names: Collection[str] = ()) -> Mapping[str, Command]:
    """The built-in commands, and then those of plugins; `reserved_names` are further commands of a front end."""
    extensions = find_extensions("slash_commands", {*COMMANDS, *reserved_names})
    return {**COMMANDS, **{name: _plugin_command(extension) for name, extension in extensions.items()}}


def line_mode_commands() -> Mapping[str, CommandInfo]:
    """The commands of the line mode; a file command replaces another command of the same name."""
    return {**conversation_commands(FILE_COMMANDS), **FILE_COMMANDS}


def prompt_commands(sources: ToolSources) -> Mapping[str, CommandInfo]:
    """The prompts of sources, for completion; `run_line` runs also those that are not known yet."""
    return {each.name: CommandInfo(each.name, each.arguments, each.help) for each in sources.prompts()}


def _plugin_command(extension: Extension) -> Command:
    def run(chat: ChatState, argument: str) -> CommandResult:
        result = extension.call(chat, argument)
        if not isinstance(result, CommandResult):
            raise extension.plugin_error(f"returned a {type(result).__name__} instead of a CommandResult")
        return result

    return Command(extension.name, extension.arguments, extension.description, run)
