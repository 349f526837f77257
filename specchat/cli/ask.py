"""`specchat ask`: one question, one answer on stdout."""

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from specchat.app.chat_state import ChatState
from specchat.app.question import Question, reading_once
from specchat.app.tool_sources import front_end_sources
from specchat.chat.attachments import decode_text
from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.cli.options import profile_options
from specchat.cli.question_options import (
    agent_options,
    answer_format_from_options,
    answer_format_options,
    command_chat,
    file_option,
    take_agent_mode,
)
from specchat.cli.session_options import open_host_conversation, private_option, session_request
from specchat.cli.starter_offer import offer_starter
from specchat.errors import InputError, UsageError
from specchat.history.history_reader import ASK
from specchat.repl.answer_printer import print_answer
from specchat.repl.interrupt import interruptible

STDIN = "-"
ENDED_EARLY_EXIT_CODE = 1  # of work with tools that a limit ended


@click.command()
@click.argument("words", nargs=-1, metavar="[QUESTION|-]...")
@file_option
@agent_options
@private_option
@answer_format_options
@profile_options
def ask(words: tuple[str, ...], files: tuple[str, ...], **options: Any) -> int:
    """Answer one question.

    The question is the arguments, or standard input when there are none; `-` stands for standard input. With a
    question, piped text is attached to it. `-f` and `@NAME` in the arguments attach files: from long ones and from
    folders the relevant passages; a file that is asked about as a whole and does not fit is read in parts. Only the
    answer goes to stdout.
    """
    mode, allow = take_agent_mode(options)
    offer_starter(options)
    question = _question_from_arguments(words, STDIN in files)
    names = tuple(name for name in files if name != STDIN)
    question = replace(question, names=names, answer_format=answer_format_from_options(options))
    request = session_request(options, kind=ASK)
    # What is read now, such as a pipe, is not read again with the question.
    access = reading_once(front_end_sources().loader)
    question.check(access)
    with open_host_conversation(request) as conversation:
        chat = command_chat(conversation, mode, allow)
        chat.access = access
        return answer_once(chat, question)


def answer_once(chat: ChatState, question: Question) -> int:
    """Print the answer; returns the exit code. Ctrl-C ends it within a step and keeps the text so far."""
    with interruptible() as stopped:
        answered = print_answer(chat, question, stopped)
    answered.raise_failure()
    if stopped.is_set():
        return stopped.exit_code
    return ENDED_EARLY_EXIT_CODE if answered.ended_early else 0


def _question_from_arguments(words: Sequence[str], is_stdin_file: bool) -> Question:
    attached = [Attachment("stdin", read_stdin())] if is_stdin_file else []
    if not words or STDIN in words:
        if sys.stdin.isatty() and not words:
            raise UsageError('no question; usage: specchat ask "QUESTION", or pipe it in (see --help)')
        text = " ".join(read_stdin() if word == STDIN else word for word in words or (STDIN,))
        return Question(text, files=tuple(attached), has_mentions=False)
    if not is_stdin_file and _is_piped():
        piped = read_stdin()
        attached += [Attachment("stdin", piped)] if piped.strip() else []
    return Question(check_utf8(" ".join(words)), files=tuple(attached))


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
