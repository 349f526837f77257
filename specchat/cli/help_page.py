"""How a page of help is laid out: as click does, but no wider than the terminal, and with the whole line of a command.

Click gets one long line for each paragraph and each option; here it is translated, and folded below its beginning.
"""

import re
from collections.abc import Iterable
from shutil import get_terminal_size

import click

from specchat.own_text import translated
from specchat.repl.word_wrap import wrapped

HANGING = re.compile(r" *(?:\S.*? {2,}(?=\S))?")  # the left one of two columns, or an indent
ENDLESS, MAX_COLUMNS = 100_000, 80


class HelpPage(click.HelpFormatter):
    def __init__(self, *_arguments: object, **_options: object) -> None:
        super().__init__(width=ENDLESS)
        self._columns = min(get_terminal_size().columns, MAX_COLUMNS)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, min(col_max, self._columns // 3), col_spacing)

    def getvalue(self) -> str:
        return "\n".join(map(self._folded, super().getvalue().split("\n")))

    def _folded(self, line: str) -> str:
        indent = len(HANGING.match(line)[0])  # pyright: ignore[reportOptionalSubscript] (it always matches)
        return wrapped(translated(line), self._columns, " " * (indent if indent <= self._columns / 2 else 4))
