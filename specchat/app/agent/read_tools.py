"""Tools that read the project: `read`, `list` and `search`. They need no consent, and see nothing outside of it."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.app.agent import python_search
from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.app.agent.tool_schemas import DEFAULT_LINES, own_tool
from specchat.app.project_files import ProjectFiles, subject_path
from specchat.bounded_command import CommandRun, run_bounded
from specchat.chat.tools import Tool
from specchat.context.file_listing import list_folder
from specchat.edit.hunks import split_lines
from specchat.errors import InputError, SpecchatError

SEARCH_SECONDS = 20.0
MAX_CHOICES = 50  # each stands in the prompt, too


def existing_files(files: ProjectFiles) -> tuple[str, ...]:
    """The names of all files of the project that git does not ignore; none where they are too many to choose from."""
    names = tuple(map(files.name_of, list_folder(files.path_of(".")).files))
    return names if len(names) <= MAX_CHOICES else ()


@dataclass(frozen=True)
class _ReadingTool(ABC):
    """A tool that acts on nothing; an error that a user could read becomes one that the model reads."""

    files: ProjectFiles
    max_characters: int
    effect: Effect = field(default=Effect.READ, init=False)

    @abstractmethod
    def text(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> str:
        """What the model reads."""

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        try:
            return ToolOutcome(self.text(arguments, cancelled))
        except SpecchatError as error:
            return ToolOutcome(str(error), is_error=True)
        except (OSError, ValueError) as error:
            return ToolOutcome(f"{type(error).__name__}: {error}", is_error=True)


@dataclass(frozen=True)
class ReadTool(_ReadingTool):
    """Lines of a file, as they are: a model that copies them copies the file."""

    tool: Tool = own_tool("read")

    def describe(self, arguments: Mapping[str, Any]) -> str:
        first = arguments.get("first_line")
        return f"read {arguments['path']}{f' from line {first}' if first else ''}"

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return subject_path(self.files, arguments["path"])

    def text(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> str:
        source = self.files.read(self.files.path_of(arguments["path"]))
        lines, first = split_lines(source.text), int(arguments.get("first_line", 1))
        if first > max(1, len(lines)):
            raise InputError(f"{source.name}: has {len(lines)} lines, so none from line {first}")
        wanted = lines[first - 1 : first - 1 + int(arguments.get("lines", DEFAULT_LINES))]
        shown, size = list[str](), 0
        for line in wanted:
            if shown and size + len(line) > self.max_characters:
                break
            shown.append(line[: self.max_characters])
            size += len(line)
        text, last = "".join(shown), first - 1 + len(shown)
        if last == len(lines) and first == 1:
            return text or f"[{source.name} is empty]"
        newline = "" if text.endswith("\n") else "\n"
        more = f"; read on with first_line {last + 1}" if last < len(lines) else ""
        return f"{text}{newline}[lines {first}-{last} of {len(lines)} of {source.name}{more}]"


@dataclass(frozen=True)
class ListTool(_ReadingTool):
    """The files that git does not ignore."""

    tool: Tool = own_tool("list")

    def describe(self, arguments: Mapping[str, Any]) -> str:
        return " ".join(filter(None, ["list", arguments.get("folder") or ".", arguments.get("pattern", "")]))

    def text(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> str:
        folder = self.files.path_of(arguments.get("folder") or ".")
        if not folder.is_dir():
            raise InputError(f"{self.files.name_of(folder)}: no such folder")
        listing = list_folder(folder, glob_parts(arguments.get("pattern", "")))
        shown, size = list[str](), 0
        names = [self.files.name_of(path) for path in listing.files]
        for name in names:
            size += len(name) + 1
            if size > self.max_characters:
                break
            shown.append(name)
        more = len(names) - len(shown)
        left_out = [
            f"{more} more files; name a folder or a pattern" if more else "",
            "there are more files than are listed" if listing.is_truncated else "",
            f"{listing.large_files} large files left out" if listing.large_files else "",
            f"{listing.symlinks} symbolic links left out" if listing.symlinks else "",
        ]
        notes = "; ".join(filter(None, left_out))
        return "\n".join([*(shown or ["[no files]"]), *([f"[{notes}]"] if notes else [])])


def glob_parts(pattern: str) -> tuple[str, ...]:
    """The parts of a glob; one without a folder matches names in every folder."""
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    return parts if len(parts) > 1 else ("**", *parts)


@dataclass(frozen=True)
class SearchTool(_ReadingTool):
    """Lines that match a regular expression."""

    tool: Tool = own_tool("search")

    def describe(self, arguments: Mapping[str, Any]) -> str:
        where = " ".join(filter(None, [arguments.get("folder", ""), arguments.get("files", "")]))
        return f"search {arguments['pattern']!r}{f' in {where}' if where else ''}"

    def text(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> str:
        place = self.files.name_of(self.files.path_of(arguments.get("folder") or ".")) or "."
        options = arguments.get("files", ""), place, bool(arguments.get("ignore_case"))
        words, folder = python_search.command(arguments["pattern"], *options), self.files.root
        ran = run_bounded(CommandRun(words, folder, SEARCH_SECONDS, self.max_characters // 2), cancelled)
        if ran.exit_code not in (None, python_search.MATCH_CODE, python_search.NO_MATCH_CODE):
            raise InputError(f"search: {ran.output.strip() or 'failed'}")
        note = f"\n[{ran.ending}]" if ran.exit_code is None else ""
        lines = (line.removeprefix("./") for line in ran.output.rstrip("\n").split("\n"))
        return ("\n".join(lines) or "[no match]") + note
