"""An SVG picture of an inspected answer: the lines that `specchat inspect` prints, and the first steps."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.color import Color

from specchat.chat.events import Speedup
from specchat.chat.step_records import Inspection
from specchat.drawing.glyphs import UNICODE
from specchat.drawing.inspector_lines import COLUMNS, render_lines, step_lines
from specchat.drawing.themes import theme_variables

MAX_STEPS = 12


def render_svg(title: str, inspection: Inspection, speedup: Speedup | None) -> str:
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False
    )
    for line in (*render_lines(inspection, UNICODE, speedup), *_first_steps(inspection)):
        console.print(line, highlight=False, soft_wrap=False)
    background, foreground = (Color.parse(theme_variables()[name]).rgb for name in ("background", "foreground"))
    return console.export_svg(title=title, theme=TerminalTheme(background, foreground, [foreground] * 8))


def _first_steps(inspection: Inspection) -> Iterator[Text]:
    yield Text()
    for step_index in range(min(MAX_STEPS, len(inspection.steps))):
        yield Text(
            " ".join(filter(None, step_lines(inspection, step_index, UNICODE))), no_wrap=True, overflow="ellipsis"
        )
    if (more := len(inspection.steps) - MAX_STEPS) > 0:
        yield Text(f"{UNICODE.ellipsis} {more} more steps", "dim")
