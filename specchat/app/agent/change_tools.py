"""Tools that act: `edit` rewrites a file or some of its lines, `write` sets the whole text, `run` runs a command.

An edit is a rewrite by the model at the speed of copying (`app/edit_task.py`), or new lines in the place of old ones.
So there is no old text that must be repeated exactly. New lines may have gaps for what stays (`edit/sketch.py`). Every
write goes through the undo store. Where an editor has the file, the change is one of its text, saved or not, and the
editor writes it.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.app.agent.agent_tool import Effect, ToolOutcome, WritableChange
from specchat.app.agent.tool_schemas import own_tool
from specchat.app.chat_state import ChatState
from specchat.app.consent import EditConsent
from specchat.app.edit import rewrite_text
from specchat.app.edit_events import EditOrder
from specchat.app.edit_progress import ProgressLine
from specchat.app.edited_files import HeldText
from specchat.app.file_edits import open_edit_session
from specchat.app.project_files import ProjectFiles, subject_path
from specchat.bounded_command import SHELL, CommandRun, run_bounded
from specchat.chat.tools import Tool
from specchat.edit.atomic_write import check_writable
from specchat.edit.edit_plan import Region, region_source, replace_region
from specchat.edit.hunks import diff_hunks, split_lines
from specchat.edit.sketch import find_omission, sketch_merger
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import check_syntax
from specchat.errors import InputError, NoChangeError, SpecchatError, UsageError

# The new text of a source by an instruction, and what a person should see before it is written
Rewrite = Callable[[Source, str, Region | None, threading.Event], tuple[str, str]]
ENVIRONMENT = {"SPECCHAT_AGENT": "1"}  # of a command, so that a program can know that no person waits for it
NO_CHANGE = "the file has this text already; nothing to change"


@dataclass(frozen=True)
class FileChange:
    """A new text for one file."""

    files: ProjectFiles
    file: Path
    source: Source
    new: str
    is_new_file: bool
    instruction: str
    warning: str = ""

    @property
    def path(self) -> str:
        return self.source.name

    @property
    def old(self) -> str | None:
        return None if self.is_new_file else self.source.text

    def apply(self) -> ToolOutcome:
        try:
            if self.files.buffers:
                self.files.check_unchanged(self.file, self.source, is_new=self.is_new_file)
            number = self.files.write(self.file, self.source, self.new, self.instruction, is_new=self.is_new_file)
        except (SpecchatError, OSError) as error:
            return ToolOutcome(str(error), is_error=True)
        count = len(diff_hunks(self.source.text, self.new))
        what = "created" if self.is_new_file else f"{count} change{'' if count == 1 else 's'} written"
        how = f"edit {number}" if number else "in the editor, which has not saved it"
        return ToolOutcome(f"{self.path}: {what} ({how})")


@dataclass(frozen=True)
class _ChangeTool(ABC):
    """A tool whose change can be shown before it is written."""

    files: ProjectFiles
    effect: Effect = field(default=Effect.WRITE, init=False)

    @abstractmethod
    def change(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> FileChange:
        """The change; an error says why there is none."""

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return subject_path(self.files, arguments["path"])

    def plan(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> WritableChange | ToolOutcome:
        try:
            return self.change(arguments, cancelled)
        except NoChangeError as error:
            return ToolOutcome(str(error))
        except SpecchatError as error:
            return ToolOutcome(str(error), is_error=True)
        except OSError as error:
            return ToolOutcome(f"cannot be changed: {error.strerror}", is_error=True)

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        planned = self.plan(arguments, cancelled)
        return planned if isinstance(planned, ToolOutcome) else planned.apply()


@dataclass(frozen=True)
class WriteTool(_ChangeTool):
    tool: Tool = own_tool("write")

    def describe(self, arguments: Mapping[str, Any]) -> str:
        return f"write {arguments['path']}"

    def change(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> FileChange:
        name, content = arguments["path"], arguments["content"]
        path, is_new, source = _open(self.files, name)
        new = source.with_original_ending(content.replace("\r\n", "\n")) if not is_new else content
        if "\0" in new:
            raise InputError(f"{source.name}: the new text has a NUL character, so it is no text")
        if not is_new and new == source.text:
            raise NoChangeError(f"{source.name}: {NO_CHANGE}")
        instruction = f"agent: {'create' if is_new else 'write'} {source.name}"
        return FileChange(self.files, path, source, new, is_new, instruction)


@dataclass(frozen=True)
class EditTool(_ChangeTool):
    rewrite: Rewrite
    tool: Tool = own_tool("edit")

    def describe(self, arguments: Mapping[str, Any]) -> str:
        lines = f":{arguments['first_line']}-{arguments.get('last_line', '')}" if "first_line" in arguments else ""
        how = arguments.get("instruction", "")
        return f"edit {arguments['path']}{lines}{f': {how}' if how else ''}"

    def change(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> FileChange:
        path, is_new, source = _open(self.files, arguments["path"])
        if is_new:
            raise InputError(f"{source.name}: no such file; write creates one")
        instruction, new_text = arguments.get("instruction", "").strip(), arguments.get("new_text")
        if bool(instruction) == (new_text is not None):
            raise UsageError("edit needs an instruction, or new_text, and not both")
        region, warning = _region(arguments, source), ""
        if new_text is None:
            new, warning = self.rewrite(source, instruction, region, cancelled)
        else:
            new_text = new_text.replace("\r\n", "\n")
            part = region_source(source, region) if region else source
            if find_omission(new_text, part.text):
                new_text = sketch_merger().merge(part, new_text)
            new = _with_lines(source, region, new_text) if region else source.with_original_ending(new_text)
            check_syntax(source, new)
        if new == source.text:
            raise NoChangeError(f"{source.name}: {NO_CHANGE}")
        return FileChange(self.files, path, source, new, False, f"agent: {self.describe(arguments)}", warning)


def _open(files: ProjectFiles, name: str) -> tuple[Path, bool, Source]:
    """The path of a file that may be written, whether it is new, and its text."""
    path = files.writable_path_of(name)
    is_new = not path.exists()
    if not is_new and not files.are_written_by_editor:
        check_writable(path)
    return path, is_new, files.read_to_change(path)


def _region(arguments: Mapping[str, Any], source: Source) -> Region | None:
    if "first_line" not in arguments and "last_line" not in arguments:
        return None
    count, first = max(1, len(split_lines(source.text))), int(arguments.get("first_line", 1))
    if first > count:
        raise InputError(f"{source.name}: has {count} lines, so none from line {first}")
    return Region(first, min(int(arguments.get("last_line", count)), count))


def _with_lines(source: Source, region: Region, new: str) -> str:
    """The whole text with new lines; an empty text removes the old ones."""
    if new:
        return source.with_original_ending(replace_region(source.text, region, new))
    lines = split_lines(source.text)
    return "".join([*lines[: region.first - 1], *lines[region.last :]])


@dataclass(frozen=True)
class RunTool:
    """A line for the shell. What it starts ends with it."""

    files: ProjectFiles
    max_characters: int
    limit_seconds: float
    effect: Effect = Effect.EXECUTE
    tool: Tool = own_tool("run")

    def describe(self, arguments: Mapping[str, Any]) -> str:
        return f"run {arguments['command']}"

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return arguments["command"]

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        words, max_bytes = (*SHELL, arguments["command"]), self.max_characters // 2
        command = CommandRun(words, self.files.root, self.limit_seconds, max_bytes, ENVIRONMENT)
        try:
            ran = run_bounded(command, cancelled)
        except InputError as error:
            return ToolOutcome(str(error), is_error=True)
        output = f"{ran.output.rstrip(chr(10))}\n" if ran.output.strip() else ""
        return ToolOutcome(f"{output}[{ran.ending}]", is_error=ran.exit_code != 0)


def session_rewrite(chat: ChatState, show: Callable[[str], None]) -> Rewrite:
    """Rewrites in a session of its own, with the models of this conversation; the consent of the call is the review."""

    def rewrite(source: Source, instruction: str, region: Region | None, cancelled: threading.Event) -> tuple[str, str]:
        on_answer = ProgressLine(source.text, show).on_event
        order = EditOrder(instruction, (HeldText(source),), region, writes=False)
        with open_edit_session(chat, cancelled) as session:
            accepted = rewrite_text(order, session, EditConsent(can_ask=False, allows_loss=True), on_answer)
        return accepted.text, accepted.result.warnings.summary

    return rewrite
