"""An inspected answer outside the screen: lines for a terminal, and an SVG picture."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.color import Color

from specchat.chat.step_records import Inspection
from specchat.tui.glyphs import UNICODE, Glyphs
from specchat.tui.inspector_lines import answer_content, charts, legend, source_shares, step_lines, totals_line
from specchat.tui.token_colours import TokenColours

COLUMNS = 100
MAX_STEPS = 12


def render_lines(
    inspection: Inspection, colours: TokenColours, glyphs: Glyphs, plain_step_seconds: float = 0.0
) -> Iterator[Text]:
    yield legend(inspection, colours, glyphs)
    yield Text(totals_line(inspection, plain_step_seconds, glyphs))
    yield Text()
    yield answer_content(inspection, colours, glyphs)
    yield Text()
    yield source_shares(inspection, colours, glyphs)
    yield Text(charts(inspection, 0, COLUMNS, glyphs))


def render_svg(
    title: str, inspection: Inspection, theme_variables: Mapping[str, str], plain_step_seconds: float = 0.0
) -> str:
    """An SVG picture in the colours of a theme, given as its variables."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False
    )
    lines = [
        *render_lines(inspection, TokenColours.from_theme(theme_variables), UNICODE, plain_step_seconds),
        *_first_steps(inspection),
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=False)
    background, foreground = (
        Color.parse(theme_variables["background"]).rgb,
        Color.parse(theme_variables["foreground"]).rgb,
    )
    return console.export_svg(title=title, theme=TerminalTheme(background, foreground, [foreground] * 8))


def _first_steps(inspection: Inspection) -> Iterator[Text]:
    yield Text()
    for step_index in range(min(MAX_STEPS, len(inspection.steps))):
        yield Text(
            " ".join(filter(None, step_lines(inspection, step_index, UNICODE))), no_wrap=True, overflow="ellipsis"
        )
    if (more := len(inspection.steps) - MAX_STEPS) > 0:
        yield Text(f"{UNICODE.ellipsis} {more} more steps", "dim")
