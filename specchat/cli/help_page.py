"""How a page of help is laid out: as click does, but no wider than the terminal, and with the whole line of a command.

`\\b` keeps the lines of a paragraph apart; those that do not fit go on below, indented. Knows no command.
"""

import re
from collections.abc import Iterable
from shutil import get_terminal_size

import click

from specchat.repl.word_wrap import wrapped

MAX_COLUMNS = 80
TERM = re.compile(r" *\S.*? {3,}(?=\S)")  # the left side of a line with two columns


class HelpPage(click.HelpFormatter):
    def __init__(self, *_arguments: object, **_options: object) -> None:
        self._columns = min(get_terminal_size().columns, MAX_COLUMNS)
        super().__init__(width=self._columns - 2)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        left = min(col_max, self.width // 3, max((len(term) for term, _ in rows), default=0))
        column = self.current_indent + left + col_spacing
        for term, text in rows:
            head = f"{'':{self.current_indent}}{term}"
            head = f"{head}\n{'':{column}}" if len(term) > left else f"{head:{column}}"
            self.write(f"{wrapped(head + ' '.join(text.split()), self.width, ' ' * column).rstrip()}\n")

    def getvalue(self) -> str:
        return "\n".join(map(self._folded, super().getvalue().split("\n")))

    def _folded(self, line: str) -> str:
        term = TERM.match(line)
        indent = len(term[0]) if term and len(term[0]) < self._columns / 2 else 4
        return wrapped(line, self._columns, " " * indent)
