"""What the target is asked: the kept conversations, the files of a folder, or rows of prompts.

Only questions are taken from there. The answers that a head learns from are the target's own (`answers.py`), for it is
these that the head will have to guess. Questions of one source (a conversation, a file, a row) stay together when some
are held out, so that nothing of what a head is tried on was in its lessons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.bench.prompt_files import read_prompts
from specchat.chat.history import HistoryReader
from specchat.chat.ignore import list_folder
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.errors import InputError, UsageError
from specchat.host.protocol import request_from_json

SESSIONS = "sessions"
LEAST_LESSONS, LEAST_TRIALS = 12, 6
PIECE_LINES = 24  # of a file, in one question
LARGEST_FILE = 400_000  # letters; what is longer is data and no text
ASKED_OF_CODE = ("Explain what this code does.", "Add a docstring.", "Write the next function of this file.")
ASKED_OF_TEXT = ("Summarise this text.", "Quote the most important sentence.", "Go on with this text.")
CODE = frozenset((".py", ".c", ".h", ".cc", ".cpp", ".rs", ".go", ".js", ".ts", ".java", ".rb", ".sh", ".sql", ".lua"))


@dataclass(frozen=True)
class Question:
    """One question, with what was said before it, and where it comes from."""

    source: str
    request: Request
    before: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Parted:
    """Questions to learn from, and questions that only the trial at the end sees."""

    lessons: list[Question]
    trials: list[Question]


def read_questions(data: str, history: Path) -> list[Question]:
    """The questions of `sessions`, a folder, or a file of JSON lines. InputError where there are none."""
    if data == SESSIONS:
        return list(_of_sessions(history))
    path = Path(data).expanduser()
    if path.is_dir():
        found = list(_of_folder(path))
    elif path.is_file():
        found = [Question(f"{path.name}:{place}", request) for place, request in enumerate(read_prompts(path))]
    else:
        raise InputError(f"{data}: no such file or folder; give '{SESSIONS}', a folder of texts, or JSON lines")
    if not found:
        raise InputError(f"{data}: nothing there that could be asked")
    return found


def part(questions: Sequence[Question], trials: int, most: int) -> Parted:
    """At most so many questions; whole sources are held out until there are `trials`, but no more than a quarter.

    Which ones depends on the names of the sources alone, so that they stay the same when more is asked later.
    UsageError when there is too little to learn from or to try a head on.
    """
    by_source: dict[str, list[Question]] = {}
    for question in questions:
        by_source.setdefault(question.source, []).append(question)
    wanted = min(trials, min(len(questions), most) // 4)
    lessons, held_out = list[Question](), list[Question]()
    for source in sorted(by_source, key=_number_of):
        (held_out if len(held_out) < wanted else lessons).extend(by_source[source])
    held_out, lessons = held_out[:trials], lessons[: most - wanted]
    check_enough(len(lessons), len(held_out), f"{len(questions)} questions of {len(by_source)} sources")
    return Parted(lessons, held_out)


def check_enough(lessons: int, trials: int, of: str) -> None:
    """UsageError for too little to learn from, or to tell a better head from a lucky one."""
    if lessons < LEAST_LESSONS or trials < LEAST_TRIALS:
        raise UsageError(
            f"too little to learn from: {of} leave {lessons} lessons and {trials} trials; "
            f"at least {LEAST_LESSONS} and {LEAST_TRIALS} are needed"
        )


def _number_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _of_sessions(history: Path) -> Iterator[Question]:
    """Every question of every kept conversation, with what was said before it there; one that forks share, once."""
    if not history.is_file():
        raise InputError("no conversation is kept here yet; talk first, or give a folder or JSON lines")
    reader = HistoryReader(history)
    try:
        seen = set[str]()
        origin = dict[str, str]()  # of a turn: the conversation that said it first
        for thread in reader.threads():
            before = list[Turn]()
            for turn in reader.turns(thread.tip):
                request = request_from_json(turn.request)
                origin.setdefault(turn.id, origin.get(turn.parent or "", thread.id))
                if turn.id not in seen:
                    seen.add(turn.id)
                    yield Question(origin[turn.id], request, tuple(before))
                before.append(Turn(request.text, request.files, answer=turn.answered.text))
    finally:
        reader.close()


def _of_folder(folder: Path) -> Iterator[Question]:
    """Questions about pieces of every text and code file, one question for each piece."""
    for path in list_folder(folder).files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "\0" in text or len(text) > LARGEST_FILE:
            continue
        asked, lines = ASKED_OF_CODE if path.suffix in CODE else ASKED_OF_TEXT, text.splitlines(keepends=True)
        for number, start in enumerate(range(0, len(lines), PIECE_LINES)):
            piece = "".join(lines[start : start + PIECE_LINES])
            if piece.strip():
                name = str(path.relative_to(folder))
                yield Question(name, Request(asked[number % len(asked)], (Attachment(name, piece),)))
