"""An inspected answer for other places than the screen: lines for a terminal, and a picture as SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.color import Color

from specchat.chat.step_records import Inspection
from specchat.tui.glyphs import UNICODE, Glyphs
from specchat.tui.inspector_lines import answer, charts, legend, shares, step_lines, sums
from specchat.tui.token_colours import TokenColours

COLUMNS = 100
MOST_STEPS = 12


def lines(inspection: Inspection, colours: TokenColours, glyphs: Glyphs, plain_seconds: float = 0.0) -> Iterator[Text]:
    """What the inspector of the screen shows of a whole answer."""
    yield legend(inspection, colours, glyphs)
    yield Text(sums(inspection, plain_seconds, glyphs))
    yield Text()
    yield answer(inspection, colours, glyphs)
    yield Text()
    yield shares(inspection, colours, glyphs)
    yield Text(charts(inspection, 0, COLUMNS, glyphs))


def as_svg(title: str, inspection: Inspection, theme: Mapping[str, str], plain_seconds: float = 0.0) -> str:
    """A picture in the colours of a theme, given as its variables."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False
    )
    shown = [*lines(inspection, TokenColours.of_theme(theme), UNICODE, plain_seconds), *_first_steps(inspection)]
    for line in shown:
        console.print(line, highlight=False, soft_wrap=False)
    behind, front = Color.parse(theme["background"]).rgb, Color.parse(theme["foreground"]).rgb
    return console.export_svg(title=title, theme=TerminalTheme(behind, front, [front] * 8))


def _first_steps(inspection: Inspection) -> Iterator[Text]:
    yield Text()
    for number in range(min(MOST_STEPS, len(inspection.steps))):
        yield Text(" ".join(filter(None, step_lines(inspection, number, UNICODE))), no_wrap=True, overflow="ellipsis")
    if (more := len(inspection.steps) - MOST_STEPS) > 0:
        yield Text(f"{UNICODE.more} {more} more steps", "dim")
