"""The one door to the terminal: what a command prints shows its control characters instead of sending them.

The text of a model, file names, titles and messages of other programs can hold escape sequences that write to the
clipboard, rename the window, or hide what the user is about to approve. While a command runs, `guarded_terminal`
replaces stdout and stderr where they are terminals, so `print` and `click.echo` need no care. Pipes and files get every
byte unchanged: they are data, and the program that reads them decides. Our own colours and cursor movements are
`Styled`; code that makes such a text applies `printable_with_tabs` to the rest of it.

Also the one place that knows what the terminal can do, and when it is gone.
"""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Thread
from typing import Any, TextIO, cast

# C0 and C1 controls, separators that end a line, and characters that reorder the text around them.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
CONTROL_PICTURES = 0x2400  # the Unicode block of pictures of control characters
DELETE, PICTURE_OF_DELETE = 0x7F, 0x2421


class Styled(str):
    """A text with control sequences of our own, whose other text is printable."""

    __slots__ = ()


HANGUP_EXIT_CODE = 128 + 1  # SIGHUP, which Windows does not have
PLAIN = "SPECCHAT_PLAIN"  # what `--plain` sets, for users who want it everywhere
STREAM_NAMES = ("stdin", "stdout", "stderr")


def is_interactive() -> bool:
    """Whether a person types to stdin and reads stdout."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def can_move_cursor() -> bool:
    """Whether this is also a terminal that can be drawn on, as its name says: not when it is dumb or has no name."""
    return is_interactive() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get(PLAIN)


def wants_plain_lines() -> bool:
    """Whether lines are only added, without colours: as `--plain`, NO_COLOR or the name of a dumb terminal say."""
    return bool(os.environ.get(PLAIN) or os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def can_redraw(stream: TextIO) -> bool:
    return stream.isatty() and not wants_plain_lines()


def is_terminal_gone(error: OSError) -> bool:
    """Whether this is what reading and writing raise after the window of the terminal was closed."""
    return error.errno == errno.EIO


def exit_when_terminal_closes() -> None:
    """End this process as a hangup does, also where that signal is ignored (nohup), or reaches another process.

    Without this, a program that draws goes on without a terminal, for ever. The engine process stores the conversation.
    """
    if not hasattr(select, "poll"):
        return  # Windows ends the programs of a window that closes
    number = sys.stdin.fileno()

    def wait() -> None:
        poll = select.poll()
        poll.register(number, 0)  # a hangup is always reported
        poll.poll()
        os._exit(HANGUP_EXIT_CODE)  # neither a thread that draws nor one that reads can be waited for

    Thread(target=wait, name="terminal-watch", daemon=True).start()


def replace_closed_streams() -> tuple[str, ...]:
    """Let the null device stand for each standard stream that the caller closed; returns their names.

    Otherwise the next file or socket would get the number of the stream, and what is printed would go there.
    """
    closed = [name for name in STREAM_NAMES if getattr(sys, name) is None]
    for name in closed:
        number = STREAM_NAMES.index(name)
        null = os.open(os.devnull, os.O_RDWR)
        if null != number and not _is_open(number):
            os.dup2(null, number)
        setattr(sys, name, open(null, "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115 (kept open)
    return tuple(closed)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def printable_with_tabs(text: str) -> str:
    """Replace control characters by visible ones; line ends and tabs stay.

    An escape becomes "␛", so a colour code reads as "␛[31m" and has no effect.
    """
    return CONTROL_CHARACTERS.sub(_control_picture, text.replace("\r\n", "\n"))


def write_line(text: str, stream: TextIO) -> None:
    """Print a line that may be styled."""
    stream.write(Styled(f"{text}\n") if isinstance(text, Styled) else f"{text}\n")
    stream.flush()


def raw_stream(stream: TextIO) -> TextIO:
    """The stream behind the door, for libraries that draw, and that get printable text only."""
    return stream.unguarded if isinstance(stream, GuardedStream) else stream


@contextmanager
def guarded_terminal() -> Generator[None]:
    """Guard stdout and stderr where they are terminals."""
    sys.stdout, sys.stderr = _guard(sys.stdout), _guard(sys.stderr)
    try:
        yield
    finally:  # a command may have replaced a stream; that one stays
        sys.stdout, sys.stderr = raw_stream(sys.stdout), raw_stream(sys.stderr)


class GuardedStream:
    """A terminal as a text stream. Everything but writing is that of the stream behind it."""

    def __init__(self, unguarded: TextIO) -> None:
        self.unguarded = unguarded
        self._pending_return = ""  # "\r" at the end of a piece of text, which may be the first half of a line end

    def write(self, text: str) -> int:
        shown = self._pending_return + text
        self._pending_return = "\r" if shown.endswith("\r") else ""
        shown = shown.removesuffix("\r")
        self.unguarded.write(shown if isinstance(text, Styled) else printable_with_tabs(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> GuardedBuffer:
        return GuardedBuffer(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class GuardedBuffer:
    """The same for bytes."""

    def __init__(self, stream: GuardedStream) -> None:
        self._stream = stream

    def write(self, raw: bytes) -> int:
        self._stream.write(raw.decode(self._stream.encoding or "utf-8", "replace"))
        return len(raw)

    def flush(self) -> None:
        self._stream.flush()


def _guard(stream: TextIO) -> TextIO:
    is_terminal = not isinstance(stream, GuardedStream) and stream.isatty()
    return cast("TextIO", GuardedStream(stream)) if is_terminal else stream


def _control_picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(CONTROL_PICTURES + code)
    return chr(PICTURE_OF_DELETE) if code == DELETE else "\N{REPLACEMENT CHARACTER}"
