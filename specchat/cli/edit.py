"""`specchat edit`: rewrites files by an instruction, or a text in a pipe.

stdout is the diff, the JSON or the new text; messages go to stderr. Nothing is written before everything is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specchat.cli.completion import complete_files
from specchat.cli.edit_conversation import (
    context_window,
    edit_run_for,
    open_conversation_for,
    resolve_edit_profile,
    run_with_progress,
)
from specchat.cli.edit_files import EditFiles
from specchat.cli.edit_filter import STDIN, EditCommand, run_filter
from specchat.cli.options import profile_options
from specchat.cli.session_options import private_option
from specchat.edit.answer_check import check_unreviewed
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.edit_task import EditJob, describe_way, possible_ways
from specchat.edit.edit_task import run_edit as edit_source
from specchat.edit.refactoring.joint_rename import joint_refactorings
from specchat.edit.source_text import Source, make_source, read_source
from specchat.errors import InputError, NoChangeError, UsageError
from specchat.syntax.languages import LANGUAGES, language_of
from specchat.syntax.sniff import sniff_language

USAGE = 'usage: specchat edit FILE... "INSTRUCTION", or specchat edit - "INSTRUCTION" < text'


@click.command(cls=EditCommand)
@click.argument("words", nargs=-1, metavar="FILE...|- INSTRUCTION...", shell_complete=complete_files)
@click.option("-l", "--lines", default="", metavar="FIRST-LAST", help="Rewrite only these lines.")
@click.option("--check", "checks", multiple=True, help="A command that must pass; {} is the file. May be given again.")
@click.option("-y", "--yes", is_flag=True, help="Apply without asking.")
@click.option("--diff", "is_diff", is_flag=True, help="Print the diff and write nothing.")
@click.option("--plan", "is_plan", is_flag=True, help="Print the ways in which the edit would be tried, and stop.")
@click.option("--json", "is_json", is_flag=True, help="Print a line of JSON for each file; writes only with -y.")
@click.option("--commit", "is_commit", is_flag=True, help="Commit the edited files to git, and only them.")
@click.option(
    "--together", "is_together", is_flag=True, help="All files in one conversation, so that each sees the others."
)
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Give up on a file after this time."
)
@click.option(
    "--allow-shrink",
    is_flag=True,
    help="With -y or as a filter, accept a text that lost comments or many lines.",
)
@click.option("--allow-empty", is_flag=True, help="Exit code 0 when nothing changes.")
@click.option("--lang", default="", help="Language of a piped text, as a file suffix: py, json, toml...")
@click.option("--stderr", "writes_stderr", is_flag=True, help="As a filter, report errors on stderr.")
@click.option("--strict", is_flag=True, help="As a filter, print nothing when the edit fails.")
@private_option
@profile_options
def edit(words: tuple[str, ...], **options: Any) -> int:
    """Rewrite files by an instruction.

    On a terminal you decide hunk by hunk; in a pipe the diff is printed and nothing is written. `-` reads the text
    from standard input and prints the new text. `specchat undo` takes an edit back.
    """
    if STDIN in words:
        return _run_as_filter([word for word in words if word != STDIN], options)
    paths, instruction = split_arguments(words)
    if options["is_plan"]:
        return _print_plan(paths, instruction, options)
    command = EditFiles(instruction, options)
    try:
        return command.run(paths)
    except NoChangeError:
        if options["allow_empty"]:
            return 0
        raise


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


def _print_plan(paths: Sequence[Path], instruction: str, options: dict[str, Any]) -> int:
    """Print each way to edit a file, in the order in which they are tried. No model is needed."""
    window = resolve_edit_profile(options).limits.context
    lines = parse_line_range(options["lines"]) if options["lines"] else None
    sources = [read_source(path) for path in paths]
    renamings = joint_refactorings(sources, instruction) or [None] * len(sources)
    for path, source, renaming in zip(paths, sources, renamings, strict=True):
        job = EditJob(source, instruction, window, lines, refactoring=renaming)
        for number, way in enumerate(possible_ways(job), 1):
            click.echo(f"{path}: {number}. {describe_way(way)}")
    return 0


def _run_as_filter(words: Sequence[str], options: dict[str, Any]) -> int:
    """Edit stdin; --check needs a file and is ignored."""

    def edit_bytes(raw: bytes) -> bytes:
        instruction = " ".join(words)
        if not instruction.strip():
            raise UsageError(f"an edit needs an instruction; {USAGE}")
        source = _piped_source(raw, options["lang"])
        lines = parse_line_range(options["lines"]) if options["lines"] else None
        with open_conversation_for(source, instruction, lines, options, offers_starter=False) as conversation:
            job = EditJob(source, instruction, context_window(options, conversation), lines)
            run = edit_run_for(options, conversation)
            result = run_with_progress(job, run, options["timeout"], lambda: edit_source(job, run))
        check_unreviewed(source, result.warnings, allows_shrink=options["allow_shrink"])
        return source.encode(result.text)

    return run_filter(
        edit_bytes,
        writes_stderr=options["writes_stderr"],
        is_strict=options["strict"],
        allows_no_change=options["allow_empty"],
    )
