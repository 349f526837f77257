"""The training questions: from stored conversations, the files of a folder, or rows of prompts.

Only questions are read. The answers are the target's own (`target_answers.py`), as these are what a head must predict.
Questions of one source (a conversation, a file, a row) are either all in training or all held out.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.context.file_listing import list_folder
from specchat.errors import InputError, UsageError
from specchat.history.history_reader import HistoryReader
from specchat.host.protocol import request_from_json
from specchat.plugins.own_plugins import install_line

SESSIONS = "sessions"
MIN_TRAINING_PROMPTS, MIN_HELD_OUT_PROMPTS = 12, 6
LINES_PER_PROMPT = 24  # of a file, in one question
MAX_FILE_CHARACTERS = 400_000  # longer files are data and not text
CODE_INSTRUCTIONS = ("Explain what this code does.", "Add a docstring.", "Write the next function of this file.")
TEXT_INSTRUCTIONS = ("Summarise this text.", "Quote the most important sentence.", "Go on with this text.")
CODE_SUFFIXES = frozenset(
    (".py", ".c", ".h", ".cc", ".cpp", ".rs", ".go", ".js", ".ts", ".java", ".rb", ".sh", ".sql", ".lua")
)


@dataclass(frozen=True)
class TrainingPrompt:
    source: str
    request: Request
    previous_turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class PromptSplit:
    training: list[TrainingPrompt]
    held_out: list[TrainingPrompt]


def read_training_prompts(source: str, history: Path) -> list[TrainingPrompt]:
    """The questions of `sessions`, a folder, or a file of JSON lines. InputError when there are none."""
    if source == SESSIONS:
        return list(_prompts_of_sessions(history))
    path = Path(source).expanduser()
    if path.is_dir():
        prompts = list(_prompts_of_folder(path))
    elif path.is_file():
        prompts = list(_prompts_of_rows(path))
    else:
        raise InputError(f"{source}: no such file or folder; give '{SESSIONS}', a folder of texts, or JSON lines")
    if not prompts:
        raise InputError(f"{source}: no questions found")
    return prompts


def _prompts_of_rows(path: Path) -> Iterator[TrainingPrompt]:
    try:
        from specchat_bench.prompt_files import read_prompts
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: rows of prompts need another plugin: {install_line('bench')}") from error
    for index, request in enumerate(read_prompts(path)):
        yield TrainingPrompt(f"{path.name}:{index}", request)


def split_prompts(prompts: Sequence[TrainingPrompt], held_out_count: int, max_prompts: int) -> PromptSplit:
    """At most `max_prompts` questions; whole sources are held out, up to `held_out_count` questions and a quarter.

    The choice depends on the names of the sources only, so held-out sources stay the same when data is added.
    UsageError when there are too few questions.
    """
    by_source: dict[str, list[TrainingPrompt]] = {}
    for prompt in prompts:
        by_source.setdefault(prompt.source, []).append(prompt)
    required = min(held_out_count, min(len(prompts), max_prompts) // 4)
    training, held_out = list[TrainingPrompt](), list[TrainingPrompt]()
    for source in sorted(by_source, key=_source_hash):
        (held_out if len(held_out) < required else training).extend(by_source[source])
    held_out, training = held_out[:held_out_count], training[: max_prompts - required]
    check_enough_prompts(len(training), len(held_out), f"{len(prompts)} questions of {len(by_source)} sources")
    return PromptSplit(training, held_out)


def check_enough_prompts(training_count: int, held_out_count: int, source_description: str) -> None:
    """UsageError for too few questions to train a head or to compare it."""
    if training_count < MIN_TRAINING_PROMPTS or held_out_count < MIN_HELD_OUT_PROMPTS:
        raise UsageError(
            f"too few questions: {source_description} leave {training_count} for training and {held_out_count} held "
            f"out; at least {MIN_TRAINING_PROMPTS} and {MIN_HELD_OUT_PROMPTS} are required"
        )


def _source_hash(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _prompts_of_sessions(history: Path) -> Iterator[TrainingPrompt]:
    """The questions of all stored conversations with their previous turns; a turn that forks share counts once."""
    if not history.is_file():
        raise InputError("no conversation is stored yet; chat first, or give a folder or JSON lines")
    reader = HistoryReader(history)
    try:
        seen = set[str]()
        origin = dict[str, str]()  # turn id -> the conversation that has it first
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
    """One question about each piece of every text and code file."""
    for path in list_folder(folder).files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "\0" in text or len(text) > MAX_FILE_CHARACTERS:
            continue
        instructions = CODE_INSTRUCTIONS if path.suffix in CODE_SUFFIXES else TEXT_INSTRUCTIONS
        lines = text.splitlines(keepends=True)
        for index, start in enumerate(range(0, len(lines), LINES_PER_PROMPT)):
            piece = "".join(lines[start : start + LINES_PER_PROMPT])
            if piece.strip():
                name = str(path.relative_to(folder))
                yield TrainingPrompt(name, Request(instructions[index % len(instructions)], (Attachment(name, piece),)))
