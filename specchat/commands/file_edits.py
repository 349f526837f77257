"""`/edit`, `/apply` and `/undo`: change files from inside a conversation, with the task and the review of `specchat
edit`.

A front end passes an `EditUI`: how it shows a hunk, reads a key and shows progress. An edit runs in a session of its
own in the same engine process, so that it does not become part of the conversation. This module imports no torch.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from threading import Event as Flag
from typing import Self

from specchat.chat.events import Event, Notice
from specchat.chat.turn_summary import summary_line
from specchat.commands.code_blocks import CodeBlock, find_code_blocks
from specchat.commands.command_registry import COMMAND_PATTERN, ChatState
from specchat.edit.answer_check import find_omission, find_warnings
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.edit_plan import Region
from specchat.edit.edit_task import EditJob, rewrite_region, run_edit
from specchat.edit.edit_turn import EditRun, ignore_event, sum_totals
from specchat.edit.hunk_prompt import Review, ReviewUI, review_edit
from specchat.edit.refactoring import Refactoring
from specchat.edit.refactoring.joint_rename import joint_refactorings
from specchat.edit.rewrite_alignment import ProgressLine
from specchat.edit.source_text import Source, make_source, read_source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_store import apply_edit, find_edit, save_candidate, undo_edit, user_undo_store
from specchat.errors import (
    BrokenEditError,
    DeclinedError,
    InputError,
    NoChangeError,
    NoUsableEditError,
    SpecchatError,
    UsageError,
)
from specchat.host.client import Conversation, SessionRequest
from specchat.profile import load_profile

EDIT_PROFILE, DEFAULT_PROFILE = "edit", "chat"
WORD_PATTERN = re.compile(r"""\s*(?:@?"([^"]+)"|@?'([^']+)'|(\S+))""")


@dataclass(frozen=True)
class EditUI:
    """The callbacks of a front end during an edit.

    `read_input` returns a key or a line, "" when there is no input; `edit_text` takes a text and a file suffix and
    returns the changed text, None when the user cancels; `show_progress` gets progress lines; `on_event` gets the
    events of answers.
    """

    read_input: Callable[[str], str]
    show_hunk: Callable[[str], None]
    show_message: Callable[[str], None]
    edit_text: Callable[[str, str], str | None]
    show_progress: Callable[[str], None]
    on_event: Callable[[Event], None] = ignore_event
    cancelled: Flag = field(default_factory=Flag)

    def review_ui(self, source: Source, rewrite: Callable[[int, int, str], str | None]) -> ReviewUI:
        ending = PurePath(source.name).suffix
        return ReviewUI(
            self.read_input, self.show_hunk, self.show_message, lambda text: self.edit_text(text, ending), rewrite
        )


@dataclass(frozen=True)
class EditArguments:
    paths: tuple[Path, ...]
    instruction: str


@dataclass(frozen=True)
class AcceptedEdit:
    """The reviewed new text of a file. A new file has an empty source."""

    source: Source
    path: Path
    review: Review
    is_new: bool = False

    @property
    def has_changes(self) -> bool:
        return self.review.text != self.source.text

    @property
    def replacement(self) -> Replacement:
        old = None if self.is_new else self.source.raw
        return Replacement(self.path, old, self.source.encode(self.review.text))


class EditSession:
    """The session that rewrites files; it is opened with the first request."""

    def __init__(self, chat: ChatState, ui: EditUI) -> None:
        self._chat, self._ui = chat, ui
        self._conversation: Conversation | None = None
        self._edit_run: EditRun | None = None
        self._shown_notices = set[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._conversation:
            self._conversation.close()

    @property
    def summary(self) -> str:
        """What the answers cost, "" without answers."""
        run = self._edit_run
        return summary_line(run.route, sum_totals(run.finished_turns)) if run and run.route else ""

    def make_job(self, source: Source, instruction: str, refactoring: Refactoring | None = None) -> EditJob:
        conversation = self._open_conversation()
        window = conversation.context_window or load_profile(conversation.profile).limits.context
        return EditJob(source, instruction, window, refactoring=refactoring)

    def make_edit_run(self, source: Source) -> EditRun:
        """The run that sends the requests of an edit; each file restarts the session."""
        conversation, progress = self._open_conversation(), ProgressLine(source.text, self._ui.show_progress)

        def on_event(event: Event) -> None:
            if isinstance(event, Notice) and event.text not in self._shown_notices:
                self._shown_notices.add(event.text)  # each session may repeat what it says about the models
                self._ui.show_message(event.text)
            progress.on_event(event)
            self._ui.on_event(event)

        def restart() -> None:
            conversation.switch_session(conversation.open_new_session())

        if self._edit_run is None:
            self._edit_run = EditRun(conversation, self._ui.cancelled, restart_conversation=restart)
        self._edit_run.on_event = on_event
        return self._edit_run

    def make_rewriter(self, source: Source, instruction: str) -> Callable[[int, int, str], str]:
        """A function that rewrites lines `first` to `end` of this source as the user's comment asks."""

        def rewrite(first: int, end: int, comment: str) -> str:
            job = self.make_job(source, instruction)
            return rewrite_region(job, Region(first + 1, end), comment, self.make_edit_run(source))

        return rewrite

    def _open_conversation(self) -> Conversation:
        if self._conversation is None:
            chat_profile = self._chat.conversation.profile
            profile = EDIT_PROFILE if chat_profile == DEFAULT_PROFILE else chat_profile
            overrides, is_stored = dict(self._chat.overrides), self._chat.conversation.is_stored
            request = SessionRequest(profile=profile, overrides=overrides, kind="edit", is_stored=is_stored)
            self._conversation = Conversation(request, self._chat.conversation.client_name)
        return self._conversation


def edit_files(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/edit PATH... INSTRUCTION`: edit one file after the other; all are written at the end, or none.

    A renaming that the syntax tree can do in all files together needs no model.
    """
    arguments = parse_edit_arguments(argument)
    sources = [read_source(path) for path in arguments.paths]
    if len({path.resolve() for path in arguments.paths}) < len(arguments.paths):
        raise UsageError("two of these paths are the same file")
    for path in arguments.paths:
        check_writable(path)
    accepted, unchanged = list[AcceptedEdit](), list[NoChangeError]()
    renamings = joint_refactorings(sources, arguments.instruction) or [None] * len(sources)
    with EditSession(chat, ui) as session:
        for path, source, renaming in zip(arguments.paths, sources, renamings, strict=True):
            job = session.make_job(source, arguments.instruction, renaming)
            try:
                review = _edit_and_review(session, job, ui)
            except NoChangeError as error:
                unchanged.append(error)
            else:
                accepted.append(AcceptedEdit(source, path, review))
        if not accepted:
            raise unchanged[0]
        return _write_accepted(arguments.instruction, accepted, session.summary)


def apply_block(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/apply [N] [PATH]`: write a code block of the last answer to a new or an existing file."""
    block, path = _block_and_path(chat, argument)
    is_new = not path.exists()
    if is_new and not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")
    source = make_source(b"", str(path)) if is_new else read_source(path)
    if not is_new:
        check_writable(path)
    text = source.with_original_ending(block.text)
    if text == source.text:
        raise NoChangeError(f"{path}: already has this content")
    if missing := find_omission(source, text):
        raise NoUsableEditError(f"{path}: this block omits a part of the file: {missing}")
    instruction = f"code block for {path.name}"
    with EditSession(chat, ui) as session:
        review_ui = ui.review_ui(source, session.make_rewriter(source, instruction))
        warnings = find_warnings(source, text)
        review = review_edit(source, text, warnings, lambda new: check_syntax(source, new), review_ui)
        return _write_accepted(instruction, [AcceptedEdit(source, path, review, is_new)], session.summary)


def undo_file_edit(_chat: ChatState, argument: str, _ui: EditUI) -> str:
    """`/undo [N|FILE]`: undo an applied edit, the last one by default."""
    store = user_undo_store()
    edit = find_edit(store, argument.removeprefix("@"))
    try:
        done = undo_edit(store, edit, is_forced=False)
    except OSError as error:
        where = error.filename or edit.files[0].path
        raise SpecchatError(f"{where}: cannot be written: {error.strerror}") from error
    names = ", ".join(_display_path(Path(file.path)) for file in done.files)
    return f"undid edit {edit.number} of {names} · /undo {done.number} applies it again"


FILE_COMMAND_RUNNERS: Mapping[str, Callable[[ChatState, str, EditUI], str]] = {
    "edit": edit_files,
    "apply": apply_block,
    "undo": undo_file_edit,
}


def run_file_command(chat: ChatState, line: str, ui: EditUI) -> str:
    match = COMMAND_PATTERN.match(line.strip())
    assert match is not None
    return FILE_COMMAND_RUNNERS[match["name"]](chat, (match["argument"] or "").strip(), ui)


def parse_edit_arguments(argument: str) -> EditArguments:
    """Split into paths, with or without an @, and the instruction after them."""
    paths, offset = list[Path](), 0
    while match := WORD_PATTERN.match(argument, offset):
        word = match[1] or match[2] or match[3]
        is_marked = word.startswith("@")
        path = Path(word.removeprefix("@")).expanduser()
        if paths and not path.is_file():
            if is_marked:
                raise InputError(f"{path}: no such file")
            break
        paths.append(path)
        offset = match.end()
    instruction = argument[offset:].strip()
    if not paths or not instruction:
        raise UsageError("an edit needs a file and an instruction: /edit PATH... INSTRUCTION")
    return EditArguments(tuple(paths), instruction)


def _edit_and_review(session: EditSession, job: EditJob, ui: EditUI) -> Review:
    """Make an edit and let the user review it. A text that does not parse is saved for inspection."""
    source, run = job.source, session.make_edit_run(job.source)
    try:
        edited = run_edit(job, run)
    except BrokenEditError as error:
        if run.candidate:
            saved_path = save_candidate(source.name, source.encode(run.candidate))
            error.args = (f"{error}; the text is saved in {saved_path}",)
        raise
    if run.talk:
        ui.show_message(run.talk)
    review_ui = ui.review_ui(source, session.make_rewriter(source, job.instruction))
    return review_edit(source, edited.text, edited.warnings, lambda text: check_syntax(source, text), review_ui)


def _write_accepted(instruction: str, accepted: Sequence[AcceptedEdit], summary: str) -> str:
    """Write all files or none; returns the line that reports it."""
    written = [each for each in accepted if each.has_changes]
    if not written:
        raise DeclinedError("no hunk was accepted; nothing is written")
    try:
        stored = apply_edit(user_undo_store(), instruction, [each.replacement for each in written])
    except OSError as error:
        raise SpecchatError(f"{error.filename or written[0].path}: cannot be written: {error.strerror}") from error
    hunks = sum(len(each.review.accepted_hunks) for each in written)
    total = sum(len(each.review.decisions) for each in written)
    names = ", ".join(_display_path(each.path) for each in written)
    report = f"created {names}" if written[0].is_new else f"applied {hunks}/{total} hunks to {names}"
    return " · ".join(filter(None, [report, summary, f"/undo {stored.number} undoes it"]))


def _block_and_path(chat: ChatState, argument: str) -> tuple[CodeBlock, Path]:
    number, _, rest = argument.partition(" ")
    if not number.isdecimal():
        number, rest = "", argument
    turns = chat.conversation.turns()
    blocks = find_code_blocks(turns[-1].answer.text) if turns else []
    if not blocks:
        raise UsageError("the last answer has no code block")
    if number and not 1 <= int(number) <= len(blocks):
        raise UsageError(f"the last answer has {len(blocks)} code blocks; there is no block {number}")
    block = blocks[int(number) - 1 if number else -1]
    path_text = rest.strip().strip("\"'").removeprefix("@")
    return block, Path(path_text).expanduser() if path_text else _path_of(block)


def _path_of(block: CodeBlock) -> Path:
    """The model may name visible files below this folder only; the user may name any file."""
    if not block.file:
        raise UsageError("this block names no file; use /apply N PATH")
    path = Path(block.file)
    is_inside = (Path.cwd() / path).resolve().is_relative_to(Path.cwd().resolve())
    if not is_inside or any(part.startswith(".") for part in path.parts):
        raise InputError(f"{path}: the model may not choose this file; use /apply N PATH to write it")
    return path


def _display_path(path: Path) -> str:
    """The path, relative to this folder if possible."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    return str(path)
