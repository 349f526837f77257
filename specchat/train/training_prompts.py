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
from specchat.chat.file_listing import list_folder
from specchat.chat.history import HistoryReader
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.errors import InputError, UsageError
from specchat.host.protocol import request_from_json

SESSIONS = "sessions"
MIN_TRAINING_PROMPTS, MIN_HELD_OUT_PROMPTS = 12, 6
LINES_PER_PROMPT = 24  # of a file, in one question
MAX_FILE_CHARACTERS = 400_000  # letters; what is longer is data and no text
CODE_INSTRUCTIONS = ("Explain what this code does.", "Add a docstring.", "Write the next function of this file.")
TEXT_INSTRUCTIONS = ("Summarise this text.", "Quote the most important sentence.", "Go on with this text.")
CODE_SUFFIXES = frozenset(
    (".py", ".c", ".h", ".cc", ".cpp", ".rs", ".go", ".js", ".ts", ".java", ".rb", ".sh", ".sql", ".lua")
)


@dataclass(frozen=True)
class TrainingPrompt:
    """One question, with what was said before it, and where it comes from."""

    source: str
    request: Request
    previous_turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class PromptSplit:
    """Questions to learn from, and questions that only the trial at the end sees."""

    training: list[TrainingPrompt]
    held_out: list[TrainingPrompt]


def read_training_prompts(source: str, history: Path) -> list[TrainingPrompt]:
    """The questions of `sessions`, a folder, or a file of JSON lines. InputError where there are none."""
    if source == SESSIONS:
        return list(_prompts_of_sessions(history))
    path = Path(source).expanduser()
    if path.is_dir():
        found = list(_prompts_of_folder(path))
    elif path.is_file():
        found = [TrainingPrompt(f"{path.name}:{place}", request) for place, request in enumerate(read_prompts(path))]
    else:
        raise InputError(f"{source}: no such file or folder; give '{SESSIONS}', a folder of texts, or JSON lines")
    if not found:
        raise InputError(f"{source}: nothing there that could be asked")
    return found


def split_prompts(questions: Sequence[TrainingPrompt], held_out_count: int, max_prompts: int) -> PromptSplit:
    """At most so many questions; whole sources are held out until there are `trials`, but no more than a quarter.

    Which ones depends on the names of the sources alone, so that they stay the same when more is asked later.
    UsageError when there is too little to learn from or to try a head on.
    """
    by_source: dict[str, list[TrainingPrompt]] = {}
    for question in questions:
        by_source.setdefault(question.source, []).append(question)
    wanted = min(held_out_count, min(len(questions), max_prompts) // 4)
    lessons, held_out = list[TrainingPrompt](), list[TrainingPrompt]()
    for source in sorted(by_source, key=_source_hash):
        (held_out if len(held_out) < wanted else lessons).extend(by_source[source])
    held_out, lessons = held_out[:held_out_count], lessons[: max_prompts - wanted]
    check_enough_prompts(len(lessons), len(held_out), f"{len(questions)} questions of {len(by_source)} sources")
    return PromptSplit(lessons, held_out)


def check_enough_prompts(training_count: int, held_out_count: int, source_description: str) -> None:
    """UsageError for too little to learn from, or to tell a better head from a lucky one."""
    if training_count < MIN_TRAINING_PROMPTS or held_out_count < MIN_HELD_OUT_PROMPTS:
        raise UsageError(
            f"too little to learn from: {source_description} leave {training_count} lessons and {held_out_count} trials; "
            f"at least {MIN_TRAINING_PROMPTS} and {MIN_HELD_OUT_PROMPTS} are needed"
        )


def _source_hash(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _prompts_of_sessions(history: Path) -> Iterator[TrainingPrompt]:
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
                    yield TrainingPrompt(origin[turn.id], request, tuple(before))
                before.append(Turn(request.text, request.files, answer=turn.answer.text))
    finally:
        reader.close()


def _prompts_of_folder(folder: Path) -> Iterator[TrainingPrompt]:
    """Questions about pieces of every text and code file, one question for each piece."""
    for path in list_folder(folder).files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "\0" in text or len(text) > MAX_FILE_CHARACTERS:
            continue
        asked, lines = (
            CODE_INSTRUCTIONS if path.suffix in CODE_SUFFIXES else TEXT_INSTRUCTIONS,
            text.splitlines(keepends=True),
        )
        for number, start in enumerate(range(0, len(lines), LINES_PER_PROMPT)):
            piece = "".join(lines[start : start + LINES_PER_PROMPT])
            if piece.strip():
                name = str(path.relative_to(folder))
                yield TrainingPrompt(name, Request(asked[number % len(asked)], (Attachment(name, piece),)))
