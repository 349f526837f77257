"""What went wrong with an MCP server, in one line that a terminal can show."""

from __future__ import annotations

from specchat.errors import SpecchatError
from specchat.terminal import printable_with_tabs

MAX_ERROR_CHARACTERS = 300
NO_MODEL_TEXT = dict.fromkeys(range(917504, 917632))  # letters that models read and terminals do not show


class McpServerError(SpecchatError):
    """A server that does not work, or that refused."""

    def __init__(self, server: str, failure: str) -> None:
        super().__init__(f"MCP server {server}: {shown_line(failure, MAX_ERROR_CHARACTERS)}")
        self.server = server


def one_line(error: BaseException) -> str:
    """What an exception says; of a group, what the first one says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def shown_line(text: str, max_characters: int) -> str:
    """Text of a server in one line: without control characters, and not longer than this."""
    line = " ".join(shown_text(text).split())
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def shown_text(text: str) -> str:
    """Text of a server with its control characters made visible, and without invisible letters."""
    return printable_with_tabs(text).translate(NO_MODEL_TEXT)
