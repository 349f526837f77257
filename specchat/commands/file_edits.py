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
from specchat.commands.code_blocks import Block, blocks
from specchat.commands.registry import COMMAND, Talk
from specchat.edit.answer_check import flags, left_out
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.edit_task import Job, edit, rewrite_part
from specchat.edit.edit_turn import Talk as EditTalk
from specchat.edit.edit_turn import hear_nothing, sum_of
from specchat.edit.hunk_prompt import Means
from specchat.edit.hunk_review import decide
from specchat.edit.progress_line import Following
from specchat.edit.review_state import Review
from specchat.edit.scope import Region
from specchat.edit.source_text import Source, make_source, read_source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_edits import apply, chosen_edit, undo_edit
from specchat.edit.undo_store import keep_candidate, kept_edits
from specchat.errors import (
    BrokenEditError,
    InputError,
    NoChangeError,
    NotTakenError,
    NoUsableEditError,
    SpecchatError,
    UsageError,
)
from specchat.host.client import Conversation, Wish
from specchat.profile import load_profile

EDIT_PROFILE, USUAL_PROFILE = "edit", "chat"
WORD = re.compile(r"""\s*(?:@?"([^"]+)"|@?'([^']+)'|(\S+))""")


@dataclass(frozen=True)
class Desk:
    """Where a person sits while files are edited.

    `read` gives a letter or a line, "" when nobody is there; `edit` takes a text and a file ending and gives the text
    as the person left it, None for nothing; `follow` is told how far the model is; `hear` gets its events.
    """

    read: Callable[[str], str]
    show: Callable[[str], None]
    note: Callable[[str], None]
    edit: Callable[[str, str], str | None]
    follow: Callable[[str], None]
    hear: Callable[[Event], None] = hear_nothing
    cancelled: Flag = field(default_factory=Flag)

    def means(self, source: Source, rewrite: Callable[[int, int, str], str | None]) -> Means:
        """The same as a review wants it."""
        ending = PurePath(source.name).suffix
        return Means(self.read, self.show, self.note, lambda text: self.edit(text, ending), rewrite)


@dataclass(frozen=True)
class Order:
    """Which files, and what is to become of them."""

    paths: tuple[Path, ...]
    instruction: str


@dataclass(frozen=True)
class Taken:
    """What of a new text a person wants. A file that is not there yet has an empty source."""

    source: Source
    path: Path
    review: Review
    is_new: bool = False

    @property
    def is_something(self) -> bool:
        """Is there anything to write?"""
        return self.review.text != self.source.text

    @property
    def replacement(self) -> Replacement:
        """The same as bytes."""
        old = None if self.is_new else self.source.raw
        return Replacement(self.path, old, self.source.encode(self.review.text))


class Asker:
    """Whoever is asked for new texts: a session of its own, begun with the first question."""

    def __init__(self, talk: Talk, desk: Desk) -> None:
        self._talk, self._desk = talk, desk
        self._conversation: Conversation | None = None
        self._asked: EditTalk | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._conversation:
            self._conversation.close()

    @property
    def summary(self) -> str:
        """What the answers cost, "" when none came."""
        asked = self._asked
        return summary_line(asked.routed, sum_of(asked.finished)) if asked and asked.routed else ""

    def job(self, source: Source, instruction: str) -> Job:
        """What is to be done to this text, as large as the session allows."""
        conversation = self._opened()
        return Job(source, instruction, conversation.window or load_profile(conversation.profile).limits.context)

    def talk(self, source: Source) -> EditTalk:
        """What the edit task asks through; the next file begins a session anew."""
        conversation, following = self._opened(), Following(source.text, self._desk.follow)

        def hear(event: Event) -> None:
            following.hear(event)
            self._desk.hear(event)

        def anew() -> None:
            conversation.switch(conversation.fresh())

        if self._asked is None:
            self._asked = EditTalk(conversation, self._desk.cancelled, anew=anew)
        self._asked.hear = hear
        return self._asked

    def rewriting(self, source: Source, instruction: str) -> Callable[[int, int, str], str]:
        """How some lines of this text are written again, from and to which, as somebody wishes."""

        def rewrite(first: int, end: int, wish: str) -> str:
            job = self.job(source, instruction)
            return rewrite_part(job, Region(first + 1, end), wish, self.talk(source))

        return rewrite

    def _opened(self) -> Conversation:
        if self._conversation is None:
            known = self._talk.conversation.profile
            profile = EDIT_PROFILE if known == USUAL_PROFILE else known
            wish = Wish(profile=profile, overrides=dict(self._talk.overrides), kind="edit")
            self._conversation = Conversation(wish, self._talk.conversation.client)
        return self._conversation


def edit_files(talk: Talk, argument: str, desk: Desk) -> str:
    """`/edit PATH... INSTRUCTION`: one file after the other, all written in the end or none."""
    order = ordered(argument)
    sources = [read_source(path) for path in order.paths]
    if len({path.resolve() for path in order.paths}) < len(order.paths):
        raise UsageError("two of these names are the same file; name it once")
    for path in order.paths:
        check_writable(path)
    taken, unchanged = list[Taken](), list[NoChangeError]()
    with Asker(talk, desk) as asker:
        for path, source in zip(order.paths, sources, strict=True):
            try:
                review = _edited(asker, source, order.instruction, desk)
            except NoChangeError as error:
                unchanged.append(error)
            else:
                taken.append(Taken(source, path, review))
        if not taken:
            raise unchanged[0]
        return _write(order.instruction, taken, asker.summary)


def apply_block(talk: Talk, argument: str, desk: Desk) -> str:
    """`/apply [N] [PATH]`: a block of code of the last answer becomes a file, or the new text of one."""
    block, path = _block_and_path(talk, argument)
    is_new = not path.exists()
    if is_new and not path.parent.is_dir():
        raise InputError(f"{path.parent}: there is no such folder")
    source = make_source(b"", str(path)) if is_new else read_source(path)
    if not is_new:
        check_writable(path)
    text = source.ended(block.text)
    if text == source.text:
        raise NoChangeError(f"{path}: holds this already")
    if missing := left_out(source, text):
        raise NoUsableEditError(f"{path}: this block leaves something out: {missing}")
    instruction = f"block of code for {path.name}"
    with Asker(talk, desk) as asker:
        means = desk.means(source, asker.rewriting(source, instruction))
        review = decide(source, text, flags(source, text), lambda new: check_syntax(source, new), means)
        return _write(instruction, [Taken(source, path, review, is_new)], asker.summary)


def undo(_talk: Talk, argument: str, _desk: Desk) -> str:
    """`/undo [N|FILE]`: take an applied edit back, the last one if none is named."""
    kept = kept_edits()
    taken_back = chosen_edit(kept, argument.removeprefix("@"))
    try:
        done = undo_edit(kept, taken_back, is_forced=False)
    except OSError as error:
        where = error.filename or taken_back.files[0].path
        raise SpecchatError(f"{where}: cannot be written: {error.strerror}") from error
    names = ", ".join(_shown(Path(file.path)) for file in done.files)
    return f"took back edit {taken_back.number} of {names} · /undo {done.number} makes it again"


RUN: Mapping[str, Callable[[Talk, str, Desk], str]] = {"edit": edit_files, "apply": apply_block, "undo": undo}


def run_file_command(talk: Talk, line: str, desk: Desk) -> str:
    """What a line with one of the commands about files does; the answer says what was written."""
    found = COMMAND.match(line.strip())
    assert found is not None
    return RUN[found["name"]](talk, (found["argument"] or "").strip(), desk)


def ordered(argument: str) -> Order:
    """The words that are files, an @ before them or not, and the instruction that the others make."""
    paths, place = list[Path](), 0
    while found := WORD.match(argument, place):
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
    return Order(tuple(paths), instruction)


def _edited(asker: Asker, source: Source, instruction: str, desk: Desk) -> Review:
    """A new text, and what the person takes of it. One that is no good is kept where a person can look at it."""
    job, talk = asker.job(source, instruction), asker.talk(source)
    try:
        edited = edit(job, talk)
    except BrokenEditError as broken:
        if talk.candidate:
            where = keep_candidate(source.name, source.encode(talk.candidate))
            broken.args = (f"{broken}; it is kept in {where}",)
        raise
    means = desk.means(source, asker.rewriting(source, instruction))
    return decide(source, edited.text, edited.flags, lambda text: check_syntax(source, text), means)


def _write(instruction: str, taken: Sequence[Taken], summary: str) -> str:
    """All of it or nothing, and the line that says so."""
    written = [each for each in taken if each.is_something]
    if not written:
        raise NotTakenError("no hunk was taken; nothing is written")
    try:
        kept = apply(kept_edits(), instruction, [each.replacement for each in written])
    except OSError as error:
        raise SpecchatError(f"{error.filename or written[0].path}: cannot be written: {error.strerror}") from error
    hunks = sum(len(each.review.taken) for each in written)
    offered = sum(len(each.review.items) for each in written)
    names = ", ".join(_shown(each.path) for each in written)
    did = f"made {names}" if written[0].is_new else f"applied {hunks}/{offered} hunks to {names}"
    return " · ".join(filter(None, [did, summary, f"/undo {kept.number} takes it back"]))


def _block_and_path(talk: Talk, argument: str) -> tuple[Block, Path]:
    number, _, rest = argument.partition(" ")
    if not number.isdecimal():
        number, rest = "", argument
    turns = talk.conversation.turns()
    found = blocks(turns[-1].answered.text) if turns else []
    if not found:
        raise UsageError("the last answer has no block of code")
    if number and not 1 <= int(number) <= len(found):
        raise UsageError(f"the last answer has {len(found)} blocks of code; there is no {number}")
    block = found[int(number) - 1 if number else -1]
    named = rest.strip().strip("\"'").removeprefix("@")
    return block, Path(named).expanduser() if named else _path_of(block)


def _path_of(block: Block) -> Path:
    """What a model names is a file below this folder and no hidden one; a person may name any."""
    if not block.file:
        raise UsageError("this block does not say which file it is; /apply N PATH does")
    path = Path(block.file)
    is_inside = (Path.cwd() / path).resolve().is_relative_to(Path.cwd().resolve())
    if not is_inside or any(part.startswith(".") for part in path.parts):
        raise InputError(f"{path}: a model may not choose this file; /apply N PATH does if you want it")
    return path


def _shown(path: Path) -> str:
    """As short as it can be named from here."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    return str(path)
