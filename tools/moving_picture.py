"""Frames of the screen as one SVG that moves without scripts: what a film keeps of each frame, and how it is drawn.

A row that stays the same through several frames is drawn once, and CSS shows it for as long as it stands there. Knows
neither the app nor what is filmed. Where a reader wants no motion, the last frame stands still.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI

COLUMN, ROW, FONT_SIZE, MARGIN, BAR = 8.4, 18, 14, 12, 30
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
DIM_OPACITY = 0.6
DOTS = "#ff5f57", "#febc2e", "#28c840"


@dataclass(frozen=True)
class Span:
    """Characters of one style in a row."""

    text: str
    color: str
    background: str
    is_bold: bool = False
    is_dim: bool = False


Row = tuple[Span, ...]


@dataclass(frozen=True)
class Frame:
    """What the screen shows, and for how long."""

    rows: tuple[Row, ...]
    seconds: float

    @property
    def text(self) -> str:
        return "\n".join("".join(span.text for span in row).rstrip() for row in self.rows)


def row_of(segments: Iterable[Segment]) -> Row:
    """A drawn line; neighbours of the same style are one span."""
    styled = ((_span("", each.style or Style()), each.text) for each in segments if not each.control)
    return tuple(
        Span("".join(text for _, text in same), span.color, span.background, span.is_bold, span.is_dim)
        for span, same in groupby(styled, key=lambda pair: pair[0])
    )


def _span(text: str, style: Style) -> Span:
    theme = DIMMED_MONOKAI
    color = style.color.get_truecolor(theme) if style.color else theme.foreground_color
    background = style.bgcolor.get_truecolor(theme, foreground=False) if style.bgcolor else theme.background_color
    if style.reverse:
        color, background = background, color
    return Span(text, color.hex, background.hex, bool(style.bold), bool(style.dim))


def draw_moving(frames: Sequence[Frame], title: str) -> str:
    """The SVG of the frames, one after the other, for ever."""
    columns = max(sum(len(span.text) for span in row) for frame in frames for row in frame.rows)
    lines = max(len(frame.rows) for frame in frames)
    width, height = columns * COLUMN + 2 * MARGIN, lines * ROW + BAR + MARGIN
    shown = dict[tuple[int, Row], list[int]]()  # the frames that have this row there
    for number, frame in enumerate(frames):
        for line, row in enumerate(frame.rows):
            shown.setdefault((line, row), []).append(number)
    times = {numbers: f"t{index}" for index, numbers in enumerate(dict.fromkeys(map(tuple, shown.values())))}
    total = sum(frame.seconds for frame in frames)
    rules = (_animation(name, numbers, frames, total) for numbers, name in times.items())
    styles = [
        f"text{{font:{FONT_SIZE}px {FONTS};white-space:pre}}.b{{font-weight:bold}}.d{{opacity:{DIM_OPACITY}}}",
        *filter(None, rules),
        "@media(prefers-reduced-motion:reduce){g{animation:none!important}}",
    ]
    background = _commonest_background(frames[-1])
    drawn = [_drawn_row(*place, times[tuple(numbers)], background) for place, numbers in shown.items()]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" data-frames="{len(frames)}">',
        f"<title>{escape(title)}</title>", "<style>", *styles, "</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{background}"/>',
        *(f'<circle cx="{MARGIN + 8 + 18 * n}" cy="15" r="5" fill="{c}"/>' for n, c in enumerate(DOTS)),
        *drawn, "</svg>", "",
    ])  # fmt: skip


def _animation(name: str, numbers: Sequence[int], frames: Sequence[Frame], total: float) -> str:
    """The rule that shows what stands in these frames. Without motion the last frame is shown."""
    begins = [0.0]
    for frame in frames:
        begins.append(begins[-1] + 100 * frame.seconds / total)
    there = set(numbers)
    is_last = "visible" if len(frames) - 1 in there else "hidden"
    if len(there) == len(frames):
        return ""
    steps = [
        f"{begins[number]:.2f}%{{visibility:{'visible' if number in there else 'hidden'}}}"
        for number in range(len(frames))
        if number == 0 or (number in there) != (number - 1 in there)
    ]
    shown = f".{name}{{visibility:{is_last};animation:{name} {total:.1f}s step-end infinite}}"
    return f"{shown}@keyframes {name}{{{''.join(steps)}}}"


def _commonest_background(frame: Frame) -> str:
    counts = dict[str, int]()
    for row in frame.rows:
        for span in row:
            counts[span.background] = counts.get(span.background, 0) + len(span.text)
    return max(counts, key=lambda color: counts[color])


def _drawn_row(line: int, row: Row, time: str, background: str) -> str:
    x, y, parts = MARGIN, BAR + line * ROW, list[str]()
    for span in row:
        width = len(span.text) * COLUMN
        if span.background != background:
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{span.background}"/>')
        if text := span.text.strip():
            begin = x + (len(span.text) - len(span.text.lstrip())) * COLUMN
            classes = " ".join(["b"] * span.is_bold + ["d"] * span.is_dim)
            parts.append(
                f'<text x="{begin:.1f}" y="{y + FONT_SIZE}" textLength="{len(text) * COLUMN:.1f}" fill="{span.color}"'
                + (f' class="{classes}"' if classes else "")
                + f">{escape(text, quote=False)}</text>"
            )
        x += width
    return f'<g class="{time}">{"".join(parts)}</g>' if parts else ""
