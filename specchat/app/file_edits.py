"""`/edit`, `/apply` and `/undo`: change files from inside a conversation, with the task and the review of `specchat
edit`.

A front end passes an `EditUI`: how it shows a hunk, reads a key and shows progress. An edit runs in a session of its
own in the same engine process, so that it does not become part of the conversation. This module imports no torch.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import partial
from pathlib import Path, PurePath
from threading import Event as Flag
from typing import Self

from specchat.app.code_blocks import CodeBlock, find_code_blocks
from specchat.app.command_registry import COMMAND_PATTERN, ChatState
from specchat.chat.events import Event, Notice, Routed, TextDelta
from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import summary_line
from specchat.edit.answer_check import find_omission, find_warnings
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.check_commands import run_checks, split_check_command
from specchat.edit.edit_intent import is_question
from specchat.edit.edit_plan import Region, parse_line_range
from specchat.edit.edit_task import (
    EditJob,
    EditResult,
    describe_way,
    multi_file_jobs,
    possible_ways,
    rewrite_region,
    run_edit,
)
from specchat.edit.edit_turn import EditRun, ignore_event
from specchat.edit.hunk_prompt import Review, ReviewUI, review_edit
from specchat.edit.refactoring import Refactoring
from specchat.edit.refactoring.joint_rename import joint_refactorings
from specchat.edit.rewrite_alignment import ProgressLine
from specchat.edit.source_text import Source, make_source, read_source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_store import apply_edit, find_edit, save_candidate, undo_edit, user_undo_store
from specchat.errors import (
    BrokenEditError,
    CancelledError,
    DeclinedError,
    InputError,
    NoChangeError,
    NoUsableEditError,
    SpecchatError,
    UsageError,
)
from specchat.host.client import Conversation, SessionRequest

VALUE_OPTIONS, FLAG_OPTIONS = ("-l", "--lines", "--check"), ("--together", "--plan")
EDIT_OPTIONS_HELP = "its options are -l FIRST-LAST, --check COMMAND, --together and --plan"
NEXT_STEPS = (
    "next: fewer lines (/edit -l FIRST-LAST PATH ...), another model (/model NAME), or /edit --plan PATH ..., which "
    "shows the ways it can be tried"
)
MAX_REJECTED_LINES = 40
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
    show_rejected: Callable[[str], None] = lambda _diff: None  # what the model wrote and cannot be taken, as a diff

    def review_ui(self, source: Source, rewrite: Callable[[int, int, str], str | None]) -> ReviewUI:
        ending = PurePath(source.name).suffix
        return ReviewUI(
            self.read_input, self.show_hunk, self.show_message, lambda text: self.edit_text(text, ending), rewrite
        )


@dataclass(frozen=True)
class EditArguments:
    paths: tuple[Path, ...]
    instruction: str
    region: Region | None = None
    checks: tuple[str, ...] = ()
    is_together: bool = False
    is_plan: bool = False

    def __post_init__(self) -> None:
        if not self.paths or not (self.instruction or self.is_plan):
            raise UsageError("an edit needs a file and an instruction: /edit PATH... INSTRUCTION")
        if self.region and len(self.paths) > 1:
            raise UsageError("-l FIRST-LAST is about one file; name one")
        if len({path.resolve() for path in self.paths}) < len(self.paths):
            raise UsageError("two of these paths are the same file")


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
        return Replacement(self.path, old, self.new_bytes)

    @property
    def new_bytes(self) -> bytes:
        return self.source.encode(self.review.text)


class EditSession:
    """The session that rewrites files; it is opened with the first request."""

    def __init__(self, chat: ChatState, ui: EditUI) -> None:
        self._chat, self._ui = chat, ui
        self._conversation: Conversation | None = None
        self._edit_run: EditRun | None = None
        self._shown_notices = set[str]()
        self._answer_parts = list[str]()  # of the last answer

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

    @property
    def window_tokens(self) -> int:
        return self._open_conversation().window_tokens

    def make_job(self, source: Source, instruction: str, refactoring: Refactoring | None = None) -> EditJob:
        return EditJob(source, instruction, self.window_tokens, refactoring=refactoring)

    def make_edit_run(self, source: Source, *, keeps_context: bool = False) -> EditRun:
        """The run that sends the requests of an edit; each file restarts the session unless it keeps the context."""
        conversation, progress = self._open_conversation(), ProgressLine(source.text, self._ui.show_progress)

        def on_event(event: Event) -> None:
            if isinstance(event, Notice) and event.text not in self._shown_notices:
                self._shown_notices.add(event.text)  # each session may repeat what it says about the models
                self._ui.show_message(event.text)
            match event:
                case Routed():
                    self._answer_parts.clear()
                case TextDelta(text=text):
                    self._answer_parts.append(text)
                case _:
                    pass
            progress.on_event(event)
            self._ui.on_event(event)

        def restart() -> None:
            if not keeps_context:
                conversation.switch_session(conversation.open_new_session())

        if self._edit_run is None:
            self._edit_run = EditRun(conversation, self._ui.cancelled)
        self._edit_run.on_event, self._edit_run.restart_conversation = on_event, restart
        return self._edit_run

    def make_rewriter(self, source: Source, instruction: str) -> Callable[[int, int, str], str]:
        """A function that rewrites lines `first` to `end` of this source as the user's comment asks."""

        def rewrite(first: int, end: int, comment: str) -> str:
            job = self.make_job(source, instruction)
            return rewrite_region(job, Region(first + 1, end), comment, self.make_edit_run(source))

        return rewrite

    def generate(self, job: EditJob, run: EditRun) -> EditResult:
        """The new text. One that cannot be taken is shown and saved, and the error names what may help."""
        source = job.source
        run.candidate = ""
        self._answer_parts.clear()
        try:
            return run_edit(job, run)
        except NoChangeError as error:
            if self._answer_parts and not is_question(job.instruction):
                error.args = (f"{error}; {NEXT_STEPS}",)
            raise
        except (BrokenEditError, NoUsableEditError, CancelledError) as error:
            answer = "".join(self._answer_parts)
            if run.candidate or answer.strip():
                self._ui.show_rejected(_rejected_diff(source, run.candidate, answer))
            if isinstance(error, BrokenEditError) and run.candidate:
                saved_path = save_candidate(source.name, source.encode(run.candidate))
                error.args = (f"{error}; the text is saved in {saved_path}",)
            if not isinstance(error, CancelledError):
                error.args = (f"{error}; {NEXT_STEPS}",)
            raise

    def _open_conversation(self) -> Conversation:
        if self._conversation is None:
            chat = self._chat.conversation
            request = SessionRequest(settings=chat.settings.for_edits(), kind="edit", is_stored=chat.is_stored)
            self._conversation = Conversation(request, chat.client_name)
        return self._conversation


def edit_files(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/edit PATH... INSTRUCTION`: edit one file after the other; all are written at the end, or none.

    A renaming that the syntax tree can do in all files together needs no model.
    """
    arguments = parse_edit_arguments(argument)
    for command in arguments.checks:
        split_check_command(command)
    sources = [read_source(path) for path in arguments.paths]
    for path in arguments.paths:
        check_writable(path)
    with EditSession(chat, ui) as session:
        jobs = _edit_jobs(session, arguments, sources)
        if arguments.is_plan:
            return "\n".join(f"{job.source.name}: {describe_way(way)}" for job in jobs for way in possible_ways(job))
        return _edit_all(session, arguments, jobs, ui)


def _edit_jobs(session: EditSession, arguments: EditArguments, sources: Sequence[Source]) -> list[EditJob]:
    renamings = joint_refactorings(sources, arguments.instruction)
    if arguments.is_together and not renamings:
        return multi_file_jobs(sources, arguments.instruction, session.window_tokens)
    jobs = [
        session.make_job(source, arguments.instruction, renaming)
        for source, renaming in zip(sources, renamings or [None] * len(sources), strict=True)
    ]
    return [replace(job, region=arguments.region) for job in jobs]


def _edit_all(session: EditSession, arguments: EditArguments, jobs: Sequence[EditJob], ui: EditUI) -> str:
    """Edit and review one file after the other; with --together, the first review follows the last answer."""
    accepted, unchanged = list[AcceptedEdit](), list[NoChangeError]()

    def review_result(path: Path, job: EditJob, result: EditResult, talk: str) -> None:
        if talk:
            ui.show_message(talk)
        review_ui = ui.review_ui(job.source, session.make_rewriter(job.source, job.instruction))
        review = review_edit(job.source, result.text, result.warnings, partial(_check_accepted, job), review_ui)
        accepted.append(AcceptedEdit(job.source, path, review))

    waiting = list[Callable[[], None]]()
    for path, planned in zip(arguments.paths, jobs, strict=True):
        check = _project_check(arguments, path, planned.source, accepted)
        job = planned if arguments.is_together else replace(planned, check=check)
        run = session.make_edit_run(job.source, keeps_context=job.first_request is not None)
        try:
            result = session.generate(job, run)
            waiting.append(partial(review_result, path, job, result, run.talk))
        except NoChangeError as error:
            unchanged.append(error)
        if not arguments.is_together:
            _run_all(waiting)
    _run_all(waiting)
    if not accepted:
        raise unchanged[0]
    if arguments.is_together:
        _check_together(arguments, accepted)
    return _write_accepted(arguments.instruction, accepted, session.summary)


def _run_all(waiting: list[Callable[[], None]]) -> None:
    while waiting:
        waiting.pop(0)()


def _check_accepted(job: EditJob, text: str) -> None:
    check_syntax(job.source, text)
    job.check(text)


def _project_check(
    arguments: EditArguments, path: Path, source: Source, accepted: Sequence[AcceptedEdit]
) -> Callable[[str], None]:
    """Run the commands of --check on a new text, beside the files that were accepted before it."""
    target = path.resolve()

    def check(text: str) -> None:
        earlier = {each.path.resolve(): each.new_bytes for each in accepted}
        run_checks(arguments.checks, target, {**earlier, target: source.encode(text)})

    return check


def _check_together(arguments: EditArguments, accepted: Sequence[AcceptedEdit]) -> None:
    texts = {each.path.resolve(): each.new_bytes for each in accepted}
    for path in texts:
        run_checks(arguments.checks, path, texts)


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
    """Split into options and paths, with or without an @, and the instruction after them."""
    paths, offset = list[Path](), 0
    region, checks, flags = None, list[str](), set[str]()
    while match := WORD_PATTERN.match(argument, offset):
        word = match[1] or match[2] or match[3]
        if word in VALUE_OPTIONS:
            value = WORD_PATTERN.match(argument, match.end())
            if value is None:
                raise UsageError(f"{word} needs a value; {EDIT_OPTIONS_HELP}")
            text, offset = value[1] or value[2] or value[3], value.end()
            if word == "--check":
                checks.append(text)
            else:
                region = parse_line_range(text)
            continue
        if word in FLAG_OPTIONS:
            flags.add(word)
            offset = match.end()
            continue
        if word.startswith("-") and not Path(word).exists():
            raise UsageError(f"/edit has no option {word}; {EDIT_OPTIONS_HELP}")
        is_marked = word.startswith("@")
        path = Path(word.removeprefix("@")).expanduser()
        if paths and not path.is_file():
            if is_marked:
                raise InputError(f"{path}: no such file")
            break
        paths.append(path)
        offset = match.end()
    instruction = argument[offset:].strip()
    return EditArguments(
        tuple(paths), instruction, region, tuple(checks), "--together" in flags, is_plan="--plan" in flags
    )


def _rejected_diff(source: Source, text: str, answer: str) -> str:
    """How the new text differs; for an answer that is no text of the file, the answer."""
    is_text = text and text != source.text
    old, new = (source.text if is_text else ""), (text if is_text else answer)
    lines = list(unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
    more = [f"({len(lines) - MAX_REJECTED_LINES} more lines)"] if len(lines) > MAX_REJECTED_LINES else []
    title = f"{source.name}: the model wrote this, and nothing of it is taken"
    return "\n".join([title, *lines[:MAX_REJECTED_LINES], *more])


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
