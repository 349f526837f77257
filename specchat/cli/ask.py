"""`specchat ask`: one question, one answer on stdout."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from specchat.app.mcp.mcp_servers import front_end_servers
from specchat.chat.attachments import decode_text
from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment, Request
from specchat.cli.agent_options import agent_options, command_agent, take_agent_mode
from specchat.cli.completion import complete_files
from specchat.cli.format_options import answer_format_from_options, answer_format_options
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.print_turn import Answering, print_answer
from specchat.cli.session_options import conversation_opener, private_option
from specchat.cli.starter_offer import offer_starter
from specchat.errors import InputError, UsageError
from specchat.history.history_reader import ASK
from specchat.host.client import Conversation

if TYPE_CHECKING:
    from specchat.context.retrieve import RetrievedContext

STDIN = "-"


@click.command()
@click.argument("words", nargs=-1, metavar="[QUESTION|-]...")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    help="Attach a file, folder, glob, @repo or a resource @SERVER:URI; may be given again.",
    shell_complete=complete_files,
)
@agent_options
@private_option
@answer_format_options
@profile_options
@click.pass_context
def ask(context: click.Context, words: tuple[str, ...], files: tuple[str, ...], **options: Any) -> int:
    """Answer one question.

    The question is the arguments, or standard input when there are none; `-` stands for standard input. With a
    question, piped text is attached to it. From long files and folders the relevant passages are attached; a file that
    is asked about as a whole and does not fit is read in parts. Only the answer goes to stdout.
    """
    mode, allow = take_agent_mode(options)
    if context.obj is None:
        offer_starter(options)
    request = replace(_request_from_arguments(words, STDIN in files), answer_format=answer_format_from_options(options))
    open_session = conversation_opener(context.obj, options, kind=ASK)
    context_files = _gather_attachments([name for name in files if name != STDIN], request, options)
    with open_session() as session:
        answering: Answering = session
        if isinstance(session, Conversation):
            answering = command_agent(session, mode, allow)  # reads long files in parts, too
        code = print_answer(answering, replace(request, files=(*context_files.files, *request.files)))
    if context_files.sources:
        print_note(f"sources: {', '.join(context_files.sources)}")
    return code


def _gather_attachments(names: Sequence[str], request: Request, options: dict[str, Any]) -> RetrievedContext:
    """Attach the files and resources, or their relevant passages; what is left out or read in parts is printed."""
    from specchat.context.retrieve import ContextBudget, RetrievedContext, gather_context, gather_whole

    if not names and not request.files:
        return RetrievedContext()
    budget = ContextBudget.of_window(resolve_profile(options).limits.context)
    servers = front_end_servers()
    gathered = gather_context(names, request.text, budget, servers.loaders) if names else RetrievedContext()
    piped = [whole.notice for file in request.files if (whole := gather_whole(file, budget)).is_too_long]
    for notice in filter(None, [gathered.notice, *piped, *servers.take_notices()]):
        print_note(notice)
    return gathered


def _request_from_arguments(words: Sequence[str], is_stdin_file: bool) -> Request:
    attached = [Attachment("stdin", read_stdin())] if is_stdin_file else []
    if not words or STDIN in words:
        if sys.stdin.isatty() and not words:
            raise UsageError('no question; usage: specchat ask "QUESTION", or pipe it in (see --help)')
        return Request(" ".join(read_stdin() if word == STDIN else word for word in words or (STDIN,)), tuple(attached))
    if not is_stdin_file and _is_piped():
        piped = read_stdin()
        attached += [Attachment("stdin", piped)] if piped.strip() else []
    return Request(check_utf8(" ".join(words)), tuple(attached))


def read_stdin() -> str:
    return decode_text(sys.stdin.buffer.read(MAX_ATTACHED_BYTES + 1), "standard input")


def _is_piped() -> bool:
    """Whether stdin is a pipe or a file, not a terminal or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def check_utf8(question: str) -> str:
    """Refuse a question that is not UTF-8; Python passes such arguments with lone surrogates."""
    try:
        question.encode()
    except UnicodeEncodeError as error:
        where = f"character {error.start + 1}"
        raise InputError(f"the question is not a text in UTF-8 ({where}); check the encoding of its source") from error
    return question
