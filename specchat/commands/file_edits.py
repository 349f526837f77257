"""`/edit`, `/apply` and `/undo`: files changed from inside a conversation, by the task and review of `specchat edit`.

A front end gives a `Desk`: how it shows a hunk, reads a letter, tells how far the model is. An edit is asked in a
session of its own, of the same engine process, so that the conversation is about what was said in it. No torch here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from threading import Event as Flag
from typing import Self

from specchat.chat.events import Event
from specchat.chat.turn_summary import summary_line
from specchat.commands.code_blocks import CodeBlock, find_code_blocks
from specchat.commands.command_registry import COMMAND_PATTERN, ChatState
from specchat.edit.answer_check import find_omission, find_warnings
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.edit_regions import Region
from specchat.edit.edit_task import EditJob, rewrite_region, run_edit
from specchat.edit.edit_turn import EditRun as EditTalk
from specchat.edit.edit_turn import ignore_event, sum_totals
from specchat.edit.hunk_prompt import ReviewUI
from specchat.edit.hunk_review import review_edit
from specchat.edit.progress_line import ProgressLine
from specchat.edit.review_state import Review
from specchat.edit.source_text import Source, make_source, read_source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_edits import apply_edit, find_edit, undo_edit
from specchat.edit.undo_store import save_candidate, user_undo_store
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
    """Where a person sits while files are edited.

    `read` gives a letter or a line, "" when nobody is there; `edit` takes a text and a file ending and gives the text
    as the person left it, None for nothing; `follow` is told how far the model is; `hear` gets its events.
    """

    read_input: Callable[[str], str]
    show_hunk: Callable[[str], None]
    show_message: Callable[[str], None]
    edit_text: Callable[[str, str], str | None]
    show_progress: Callable[[str], None]
    on_event: Callable[[Event], None] = ignore_event
    cancelled: Flag = field(default_factory=Flag)

    def review_ui(self, source: Source, rewrite: Callable[[int, int, str], str | None]) -> ReviewUI:
        """The same as a review wants it."""
        ending = PurePath(source.name).suffix
        return ReviewUI(
            self.read_input, self.show_hunk, self.show_message, lambda text: self.edit_text(text, ending), rewrite
        )


@dataclass(frozen=True)
class EditArguments:
    """Which files, and what is to become of them."""

    paths: tuple[Path, ...]
    instruction: str


@dataclass(frozen=True)
class AcceptedEdit:
    """What of a new text a person wants. A file that is not there yet has an empty source."""

    source: Source
    path: Path
    review: Review
    is_new: bool = False

    @property
    def has_changes(self) -> bool:
        """Is there anything to write?"""
        return self.review.text != self.source.text

    @property
    def replacement(self) -> Replacement:
        """The same as bytes."""
        old = None if self.is_new else self.source.raw
        return Replacement(self.path, old, self.source.encode(self.review.text))


class EditSession:
    """Whoever is asked for new texts: a session of its own, begun with the first question."""

    def __init__(self, chat: ChatState, ui: EditUI) -> None:
        self._chat, self._ui = chat, ui
        self._conversation: Conversation | None = None
        self._edit_run: EditTalk | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._conversation:
            self._conversation.close()

    @property
    def summary(self) -> str:
        """What the answers cost, "" when none came."""
        asked = self._edit_run
        return summary_line(asked.route, sum_totals(asked.finished_turns)) if asked and asked.route else ""

    def make_job(self, source: Source, instruction: str) -> EditJob:
        """What is to be done to this text, as large as the session allows."""
        conversation = self._open_conversation()
        return EditJob(
            source, instruction, conversation.context_window or load_profile(conversation.profile).limits.context
        )

    def make_edit_run(self, source: Source) -> EditTalk:
        """What the edit task asks through; the next file begins a session anew."""
        conversation, following = self._open_conversation(), ProgressLine(source.text, self._ui.show_progress)

        def hear(event: Event) -> None:
            following.on_event(event)
            self._ui.on_event(event)

        def anew() -> None:
            conversation.switch_session(conversation.open_new_session())

        if self._edit_run is None:
            self._edit_run = EditTalk(conversation, self._ui.cancelled, restart_conversation=anew)
        self._edit_run.on_event = hear
        return self._edit_run

    def make_rewriter(self, source: Source, instruction: str) -> Callable[[int, int, str], str]:
        """How some lines of this text are written again, from and to which, as somebody wishes."""

        def rewrite(first: int, end: int, wish: str) -> str:
            job = self.make_job(source, instruction)
            return rewrite_region(job, Region(first + 1, end), wish, self.make_edit_run(source))

        return rewrite

    def _open_conversation(self) -> Conversation:
        if self._conversation is None:
            known = self._chat.conversation.profile
            profile = EDIT_PROFILE if known == DEFAULT_PROFILE else known
            wish = SessionRequest(profile=profile, overrides=dict(self._chat.overrides), kind="edit")
            self._conversation = Conversation(wish, self._chat.conversation.client_name)
        return self._conversation


def edit_files(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/edit PATH... INSTRUCTION`: one file after the other, all written in the end or none."""
    order = parse_edit_arguments(argument)
    sources = [read_source(path) for path in order.paths]
    if len({path.resolve() for path in order.paths}) < len(order.paths):
        raise UsageError("two of these names are the same file; name it once")
    for path in order.paths:
        check_writable(path)
    taken, unchanged = list[AcceptedEdit](), list[NoChangeError]()
    with EditSession(chat, ui) as asker:
        for path, source in zip(order.paths, sources, strict=True):
            try:
                review = _edit_and_review(asker, source, order.instruction, ui)
            except NoChangeError as error:
                unchanged.append(error)
            else:
                taken.append(AcceptedEdit(source, path, review))
        if not taken:
            raise unchanged[0]
        return _write_accepted(order.instruction, taken, asker.summary)


def apply_block(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/apply [N] [PATH]`: a block of code of the last answer becomes a file, or the new text of one."""
    block, path = _block_and_path(chat, argument)
    is_new = not path.exists()
    if is_new and not path.parent.is_dir():
        raise InputError(f"{path.parent}: there is no such folder")
    source = make_source(b"", str(path)) if is_new else read_source(path)
    if not is_new:
        check_writable(path)
    text = source.with_original_ending(block.text)
    if text == source.text:
        raise NoChangeError(f"{path}: holds this already")
    if missing := find_omission(source, text):
        raise NoUsableEditError(f"{path}: this block leaves something out: {missing}")
    instruction = f"block of code for {path.name}"
    with EditSession(chat, ui) as asker:
        means = ui.review_ui(source, asker.make_rewriter(source, instruction))
        review = review_edit(source, text, find_warnings(source, text), lambda new: check_syntax(source, new), means)
        return _write_accepted(instruction, [AcceptedEdit(source, path, review, is_new)], asker.summary)


def undo_file_edit(_talk: ChatState, argument: str, _desk: EditUI) -> str:
    """`/undo [N|FILE]`: take an applied edit back, the last one if none is named."""
    kept = user_undo_store()
    taken_back = find_edit(kept, argument.removeprefix("@"))
    try:
        done = undo_edit(kept, taken_back, is_forced=False)
    except OSError as error:
        where = error.filename or taken_back.files[0].path
        raise SpecchatError(f"{where}: cannot be written: {error.strerror}") from error
    names = ", ".join(_display_path(Path(file.path)) for file in done.files)
    return f"took back edit {taken_back.number} of {names} · /undo {done.number} makes it again"


FILE_COMMAND_RUNNERS: Mapping[str, Callable[[ChatState, str, EditUI], str]] = {
    "edit": edit_files,
    "apply": apply_block,
    "undo": undo_file_edit,
}


def run_file_command(chat: ChatState, line: str, ui: EditUI) -> str:
    """What a line with one of the commands about files does; the answer says what was written."""
    found = COMMAND_PATTERN.match(line.strip())
    assert found is not None
    return FILE_COMMAND_RUNNERS[found["name"]](chat, (found["argument"] or "").strip(), ui)


def parse_edit_arguments(argument: str) -> EditArguments:
    """The words that are files, an @ before them or not, and the instruction that the others make."""
    paths, place = list[Path](), 0
    while found := WORD_PATTERN.match(argument, place):
        word = found[1] or found[2] or found[3]
        is_marked = word.startswith("@")
        path = Path(word.removeprefix("@")).expanduser()
        if paths and not path.is_file():
            if is_marked:
                raise InputError(f"{path}: there is no such file")
            break
        paths.append(path)
        place = found.end()
    instruction = argument[place:].strip()
    if not paths or not instruction:
        raise UsageError("an edit needs a file and an instruction: /edit PATH... INSTRUCTION")
    return EditArguments(tuple(paths), instruction)


def _edit_and_review(asker: EditSession, source: Source, instruction: str, desk: EditUI) -> Review:
    """A new text, and what the person takes of it. One that is no good is kept where a person can look at it."""
    job, talk = asker.make_job(source, instruction), asker.make_edit_run(source)
    try:
        edited = run_edit(job, talk)
    except BrokenEditError as broken:
        if talk.candidate:
            where = save_candidate(source.name, source.encode(talk.candidate))
            broken.args = (f"{broken}; it is kept in {where}",)
        raise
    means = desk.review_ui(source, asker.make_rewriter(source, instruction))
    return review_edit(source, edited.text, edited.warnings, lambda text: check_syntax(source, text), means)


def _write_accepted(instruction: str, taken: Sequence[AcceptedEdit], summary: str) -> str:
    """All of it or nothing, and the line that says so."""
    written = [each for each in taken if each.has_changes]
    if not written:
        raise DeclinedError("no hunk was taken; nothing is written")
    try:
        kept = apply_edit(user_undo_store(), instruction, [each.replacement for each in written])
    except OSError as error:
        raise SpecchatError(f"{error.filename or written[0].path}: cannot be written: {error.strerror}") from error
    hunks = sum(len(each.review.accepted_hunks) for each in written)
    offered = sum(len(each.review.decisions) for each in written)
    names = ", ".join(_display_path(each.path) for each in written)
    did = f"made {names}" if written[0].is_new else f"applied {hunks}/{offered} hunks to {names}"
    return " · ".join(filter(None, [did, summary, f"/undo {kept.number} takes it back"]))


def _block_and_path(talk: ChatState, argument: str) -> tuple[CodeBlock, Path]:
    number, _, rest = argument.partition(" ")
    if not number.isdecimal():
        number, rest = "", argument
    turns = talk.conversation.turns()
    found = find_code_blocks(turns[-1].answer.text) if turns else []
    if not found:
        raise UsageError("the last answer has no block of code")
    if number and not 1 <= int(number) <= len(found):
        raise UsageError(f"the last answer has {len(found)} blocks of code; there is no {number}")
    block = found[int(number) - 1 if number else -1]
    named = rest.strip().strip("\"'").removeprefix("@")
    return block, Path(named).expanduser() if named else _path_of(block)


def _path_of(block: CodeBlock) -> Path:
    """What a model names is a file below this folder and no hidden one; a person may name any."""
    if not block.file:
        raise UsageError("this block does not say which file it is; /apply N PATH does")
    path = Path(block.file)
    is_inside = (Path.cwd() / path).resolve().is_relative_to(Path.cwd().resolve())
    if not is_inside or any(part.startswith(".") for part in path.parts):
        raise InputError(f"{path}: a model may not choose this file; /apply N PATH does if you want it")
    return path


def _display_path(path: Path) -> str:
    """As short as it can be named from here."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    return str(path)
