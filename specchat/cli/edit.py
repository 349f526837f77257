"""`specchat edit`: rewrites files by an instruction, or a text in a pipe.

stdout is the diff, the JSON or the new text; messages go to stderr. Nothing is written before everything is decided.
A filter is mostly started by an editor that accepts any output: if it fails, it returns its input byte for byte, and
prints nothing where an editor would insert it into the text.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import click

from specchat.app.consent import EditConsent
from specchat.app.edit import describe_ways, drive, rewrite_text
from specchat.app.edit import edit as edit_verb
from specchat.app.edit_commit import tracked_files
from specchat.app.edit_events import EditOrder
from specchat.app.edit_session import EditSession
from specchat.app.edited_files import DiskFile, EditedFile, HeldText
from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.cli.completion import complete_files
from specchat.cli.edit_files import EditPrinter
from specchat.cli.options import CommandFunction, edit_profile_options
from specchat.cli.session_options import open_host_conversation, private_option, session_request
from specchat.cli.starter_offer import offer_starter
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.edit_turn import Conversation
from specchat.edit.source_text import Source, make_source
from specchat.errors import InputError, NoChangeError, SpecchatError, UsageError
from specchat.host.spawn import runtime_folder
from specchat.repl.interrupt import InterruptFlag, interruptible
from specchat.syntax.languages import LANGUAGES, language_of
from specchat.syntax.sniff import sniff_language

STDIN = "-"
USAGE = 'usage: specchat edit FILE... "INSTRUCTION", or specchat edit - "INSTRUCTION" < text'
NEXT_STEPS = (
    "next: fewer lines (-l FIRST-LAST), another model (-P PROFILE or --target), or --plan, which shows the ways"
)


class EditCommand(click.Command):
    """A command that returns its input on a usage error when it is a filter."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; a filter returns its input before it reports an error."""
        arguments = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            if STDIN in arguments:
                _write_stdout(sys.stdin.buffer.read())
                _silence_stderr()
            raise


EDIT_OPTIONS = (
    click.option(
        "--check", "checks", multiple=True, help="A command that must pass; {} is the file. May be given again."
    ),
    click.option("-y", "--yes", is_flag=True, help="Apply without asking."),
    click.option("--diff", "is_diff", is_flag=True, help="Print the diff and write nothing."),
    click.option("--plan", "is_plan", is_flag=True, help="Print the ways in which the edit would be tried, and stop."),
    click.option("--json", "is_json", is_flag=True, help="Print a line of JSON for each file; writes only with -y."),
    click.option("--commit", "is_commit", is_flag=True, help="Commit this change to git, and no other one."),
    click.option(
        "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
        help="Give up on a file after this time.",
    ),
    click.option(
        "--allow-shrink", is_flag=True, help="Without a review, accept a text that lost comments or many lines."
    ),
    click.option("--allow-empty", is_flag=True, help="Exit code 0 when nothing changes."),
    private_option,
    edit_profile_options,
)  # fmt: skip


def edit_options(command: CommandFunction) -> CommandFunction:
    """The options of each command that changes files, by an instruction or by a sketch."""
    return reduce(lambda made, option: option(made), reversed(EDIT_OPTIONS), command)


@click.command(cls=EditCommand)
@click.argument("words", nargs=-1, metavar="FILE...|- INSTRUCTION...", shell_complete=complete_files)
@click.option("-l", "--lines", default="", metavar="FIRST-LAST", help="Rewrite only these lines.")
@click.option(
    "--together", "is_together", is_flag=True, help="All files in one conversation, so that each sees the others."
)
@click.option("--lang", default="", help="Language of a piped text, as a file suffix: py, json, toml...")
@click.option("--stderr", "writes_stderr", is_flag=True, help="As a filter, report errors on stderr.")
@click.option("--strict", is_flag=True, help="As a filter, print nothing when the edit fails.")
@edit_options
def edit(words: tuple[str, ...], **options: Any) -> int:
    """Rewrite files by an instruction.

    On a terminal you decide hunk by hunk; in a pipe the diff is printed and nothing is written. `-` reads the text
    from standard input and prints the new text. `specchat undo` takes an edit back. The model writes the whole text, a
    region or search/replace blocks, whichever works best with it; prompt.edit_format of a profile chooses one.
    """
    if STDIN in words:
        return _run_as_filter([word for word in words if word != STDIN], options)
    paths, instruction = split_arguments(words)
    return run_order(_make_order(instruction, tuple(map(DiskFile, paths)), options), options)


def run_order(order: EditOrder, options: dict[str, Any]) -> int:
    """Carry out an edit of files, or print its plan; returns the exit code."""
    with interruptible() as stopped, _open_session(options, stopped) as session:
        if options["is_plan"]:
            return _print_plan(order, session)
        try:
            return _run(order, session, options, stopped)
        except NoChangeError:
            if options["allow_empty"]:
                return 0
            raise


def _make_order(instruction: str, files: tuple[EditedFile, ...], options: dict[str, Any]) -> EditOrder:
    lines = parse_line_range(options["lines"]) if options["lines"] else None
    return EditOrder(
        instruction, files, lines, options["checks"], options["is_together"],
        writes=will_write(options), next_steps=NEXT_STEPS,
    )  # fmt: skip


def will_write(options: dict[str, Any]) -> bool:
    """Whether an edit is written, perhaps after a review, and not only shown."""
    return _is_interactive(options) or (options["yes"] and not options["is_diff"])


def _is_interactive(options: dict[str, Any]) -> bool:
    decides_itself = options["yes"] or options["is_diff"] or options["is_json"]
    return not decides_itself and sys.stdout.isatty() and sys.stdin.isatty()


def _open_session(options: dict[str, Any], stopped: InterruptFlag, *, offers_starter: bool = True) -> EditSession:
    request = session_request(options, kind="edit")

    def open_conversation() -> AbstractContextManager[Conversation]:
        if offers_starter:
            offer_starter(options)
        return open_host_conversation(request)

    return EditSession(request, stopped, open_conversation=open_conversation, temperature=options["temperature"])


def _run(order: EditOrder, session: EditSession, options: dict[str, Any], stopped: InterruptFlag) -> int:
    printer = EditPrinter(order.instruction, options, order.writes, stopped, session.runs)
    is_asked = _is_interactive(options)
    consent = EditConsent(asks=is_asked, can_ask=is_asked, allows_loss=options["allow_shrink"] or not order.writes)
    if order.writes and options["is_commit"]:
        tracked_files([file.path for file in order.files])  # before a model is asked
    try:
        drive(edit_verb(order, session, consent), printer.on_event, printer.decide)
    except SpecchatError as error:
        if isinstance(error, NoChangeError):
            raise
        raise printer.report_failure(error) from None
    printer.report_files(is_written=order.writes)
    return 0


def split_arguments(arguments: Sequence[str]) -> tuple[list[Path], str]:
    """Split into files, up to the first word that is none, and the instruction."""
    count = 1
    while count < len(arguments) and Path(arguments[count]).is_file():
        count += 1
    rest = arguments[count:]
    if not arguments or not rest:
        raise UsageError(f"an edit needs a file and an instruction; {USAGE}")
    if len(rest) > 1 and not Path(rest[0]).exists() and language_of(rest[0]):
        raise InputError(f"{rest[0]}: there is no such file; put the instruction in quotes if it is a part of it")
    return [Path(word) for word in arguments[:count]], " ".join(rest)


def _piped_source(raw: bytes, suffix: str) -> Source:
    """The piped text, with the name of its language: as given, or as the text shows."""
    source = make_source(raw, f"stdin.{suffix.removeprefix('.')}" if suffix else "stdin")
    language = "" if suffix else sniff_language(source.text)
    return replace(source, name=f"stdin{LANGUAGES[language].suffixes[0]}") if language else source


def _print_plan(order: EditOrder, session: EditSession) -> int:
    """Print each way to edit a file, in the order in which they are tried. No model is needed."""
    numbers = Counter[str]()
    for name, way in describe_ways(order, session):
        numbers[name] += 1
        click.echo(f"{name}: {numbers[name]}. {way}")
    return 0


def _run_as_filter(words: Sequence[str], options: dict[str, Any]) -> int:
    """Write the edited stdin to stdout, or stdin unchanged after an error."""
    raw, new = sys.stdin.buffer.read(MAX_ATTACHED_BYTES + 1), None
    if options["is_plan"]:
        return run_order(_piped_order(raw, " ".join(words), options), options)
    if not (options["writes_stderr"] or os.environ.get("SPECCHAT_STDERR") or sys.stderr.isatty()):
        _silence_stderr()
    try:
        new = _edit_piped(raw, " ".join(words), options) if raw else b""  # an empty text needs no model
    except SpecchatError as error:
        if not (isinstance(error, NoChangeError) and options["allow_empty"]):
            _log(str(error))
            raise
        new = raw
    finally:
        raw += b"" if new is not None else sys.stdin.buffer.read()
        _write_stdout(new if new is not None else b"" if options["strict"] else raw)
    return 0


def _piped_order(raw: bytes, instruction: str, options: dict[str, Any]) -> EditOrder:
    """The order for a text; --check needs a file and is ignored."""
    if not instruction.strip():
        raise UsageError(f"an edit needs an instruction; {USAGE}")
    text = HeldText(_piped_source(raw, options["lang"]))
    return replace(_make_order(instruction, (text,), {**options, "checks": ()}), writes=False, next_steps="")


def _edit_piped(raw: bytes, instruction: str, options: dict[str, Any]) -> bytes:
    """The new text."""
    order = _piped_order(raw, instruction, options)
    consent = EditConsent(can_ask=False, allows_loss=options["allow_shrink"])
    with interruptible() as stopped, _open_session(options, stopped, offers_starter=False) as session:
        printer = EditPrinter(instruction, {**options, "is_json": False}, True, stopped, session.runs)
        try:
            return rewrite_text(order, session, consent, printer.on_event, shows_rejected=True).new_bytes
        except SpecchatError as error:
            raise printer.report_failure(error) from None


def _write_stdout(raw: bytes) -> None:
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def _silence_stderr() -> None:
    """Close stderr: editors insert what a filter writes there into the text."""
    if not sys.stderr.isatty():
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (open as long as the process lives)


def _log(message: str) -> None:
    with suppress(OSError, SpecchatError), (runtime_folder() / "edit.log").open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
