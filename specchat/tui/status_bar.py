"""The status bar: the last line of the screen. `live_stats.py` defines its values.

Three widths (below 80 columns, below 120, above) and ASCII. Unknown values are left out, and fields that do not fit are
dropped from the right.
"""

import re

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specchat.drawing.glyphs import UNICODE, Glyphs, sparkline
from specchat.tui.live_stats import WINDOW_STEPS, AcceptanceShares, Phase, StatsSnapshot

NARROW_COLUMNS, WIDE_COLUMNS = 80, 120
FULL_CONTEXT_SHARE = 0.8
BAR_CELLS = 8
MIN_SHARE = 0.001  # below this, a part of the acceptance bar is absent
MIN_SPARKLINE_COLUMNS = 4
GIGABYTE, MEGABYTE = 2**30, 2**20
BAR_COLOURS = ("$text-success", "$text-error", "$text-muted")
WARNING_PATTERN = re.compile(r"\S+ slow|ctx[^│|]*!|speculation paused")


def status_line(stats: StatsSnapshot, columns: int, glyphs: Glyphs = UNICODE, max_columns: int | None = None) -> str:
    """The line for a screen of this width; it takes at most `max_columns`, all columns by default."""
    max_columns = columns if max_columns is None else max_columns
    fields, separator = _phase_fields(stats, columns, glyphs)
    while len(fields) > 1 and cell_len(separator.join(fields)) > max_columns:
        fields = fields[:-1]
    line = separator.join(fields).rstrip()
    if cell_len(line) > max_columns:
        return line[:max_columns]
    return line + _sparkline_field(stats, max_columns - cell_len(line), glyphs) if columns >= WIDE_COLUMNS else line


def _sparkline_field(stats: StatsSnapshot, width: int, glyphs: Glyphs) -> str:
    separator = f" {glyphs.separator} "
    width -= len(separator)
    if stats.phase not in (Phase.DECODE, Phase.IDLE) or not stats.tokens_by_step or width < MIN_SPARKLINE_COLUMNS:
        return ""
    return separator + sparkline(stats.tokens_by_step[-width:], glyphs)


def _phase_fields(stats: StatsSnapshot, columns: int, glyphs: Glyphs) -> tuple[list[str], str]:
    spaced = f" {glyphs.separator} "
    if stats.phase is Phase.WAITING:
        return _waiting_fields(stats, is_narrow=columns < NARROW_COLUMNS), spaced
    if not stats.variant:
        return ["ready", *_context_and_memory(stats, is_wide=columns >= WIDE_COLUMNS)], spaced
    if stats.is_speculation_paused:
        return _paused_fields(stats, glyphs), spaced
    if columns < NARROW_COLUMNS:
        return _narrow_fields(stats, glyphs), " "
    if columns >= WIDE_COLUMNS:
        return _normal_fields(stats, glyphs, is_wide=True), spaced
    first, *others = _normal_fields(stats, glyphs, is_wide=False)
    return [f"{first} ", *others], glyphs.separator


def _normal_fields(stats: StatsSnapshot, glyphs: Glyphs, *, is_wide: bool) -> list[str]:
    session = _percent(stats.session_acceptance_rate)
    bar = acceptance_bar(stats.acceptance, glyphs) if stats.acceptance else ""
    acceptance = _non_empty(bar, _acceptance_field(stats), f"(ses {session})" if session and is_wide else "")
    return _non_empty(
        _drafter_field(stats, glyphs),
        " ".join(acceptance),
        _tokens_per_step(stats, " tok/step"),
        _speed_field(stats, glyphs, " t/s"),
        f"ttft {stats.ttft_seconds:.1f}s" if is_wide and stats.ttft_seconds is not None else "",
        *_context_and_memory(stats, is_wide=is_wide),
    )


def _acceptance_field(stats: StatsSnapshot) -> str:
    rate = _percent(stats.acceptance_rate)
    return f"acc {rate}" if rate else ""


def acceptance_bar(shares: AcceptanceShares, glyphs: Glyphs) -> str:
    """Accepted and rejected draft tokens and steps without any, in a shape each; what occurs has at least one cell."""
    parts = [shares.accepted, shares.rejected, 1 - shares.accepted - shares.rejected]
    cells = [max(round(BAR_CELLS * share), int(share > MIN_SHARE)) for share in parts]
    while (excess := sum(cells) - BAR_CELLS) != 0:
        cells[cells.index(max(cells))] -= 1 if excess > 0 else -1
    return "".join(character * count for character, count in zip(glyphs.bar_parts, cells, strict=True))


def _narrow_fields(stats: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    draft_tokens = "" if stats.draft_tokens is None else str(stats.draft_tokens)
    context = _context_percent(stats)
    return _non_empty(
        f"{stats.drafter or stats.variant}{draft_tokens}",
        _acceptance_field(stats),
        _tokens_per_step(stats, "tok/step"),
        _speed_field(stats, glyphs, "t/s"),
        f"ctx{context}" if context else "",
    )


def _waiting_fields(stats: StatsSnapshot, *, is_narrow: bool) -> list[str]:
    progress, speed = stats.progress, stats.progress.tokens_per_second
    pace = f"{progress.elapsed_seconds:.0f}s" if speed is None else "" if is_narrow else f"{speed:.0f} t/s"
    context = _context_and_memory(stats, is_wide=False) if stats.is_answering and not is_narrow else []
    return _non_empty(progress.text, pace, *context, "Esc stop" if stats.is_answering else "")


def _paused_fields(stats: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    speedup = "no draft tokens" if stats.speedup is None else f"{stats.speedup.text}{glyphs.times}"
    speed = f"{_format_rate(stats.tokens_per_second)} t/s" if stats.tokens_per_second is not None else ""
    paused = f"plain (speculation paused: {speedup} over {WINDOW_STEPS} steps)"
    return _non_empty(paused, speed, *_context_and_memory(stats, is_wide=False))


def _drafter_field(stats: StatsSnapshot, glyphs: Glyphs) -> str:
    drafter = f"{glyphs.drafter_mark}{stats.drafter}" if stats.drafter else ""
    draft_tokens = f" K{stats.draft_tokens}" if stats.draft_tokens is not None else ""
    return f"{stats.variant}{drafter}{draft_tokens}"


def _tokens_per_step(stats: StatsSnapshot, unit: str) -> str:
    return "" if stats.tokens_per_step is None else f"{stats.tokens_per_step:.1f}{unit}"


def _speed_field(stats: StatsSnapshot, glyphs: Glyphs, unit: str) -> str:
    if stats.tokens_per_second is None:
        return ""
    if stats.speedup is None:
        return f"{_format_rate(stats.tokens_per_second)}{unit}"
    estimate = "~" if stats.is_speedup_estimated else ""
    slow = " slow" if stats.speedup.is_slower else ""
    return f"{_format_rate(stats.tokens_per_second)}{unit} {estimate}{glyphs.times}{stats.speedup.text}{slow}"


def _context_and_memory(stats: StatsSnapshot, *, is_wide: bool) -> list[str]:
    context = ""
    if stats.context_window:
        context = f"ctx {_format_tokens(stats.context_tokens or 0)}/{_format_tokens(stats.context_window)}"
        percent = _context_percent(stats)
        context += f" {percent}" if is_wide or percent.endswith("!") else ""
    return _non_empty(context, f"RAM {format_bytes(stats.memory_bytes)}" if stats.memory_bytes else "")


def format_bytes(byte_count: int) -> str:
    """For example: 1.2G, 92M."""
    return f"{byte_count / GIGABYTE:.1f}G" if byte_count >= GIGABYTE else f"{byte_count / MEGABYTE:.0f}M"


def _context_percent(stats: StatsSnapshot) -> str:
    """The used share of the context window; it ends with a mark when nearly full, so that colour is not needed."""
    if not stats.context_window:
        return ""
    share = (stats.context_tokens or 0) / stats.context_window
    return f"{_percent(share)}{'!' if share >= FULL_CONTEXT_SHARE else ''}"


def _format_tokens(count: int) -> str:
    """3100 is 3.1k, 32768 is 32k."""
    if count < 1000:
        return str(count)
    if count % 1024 == 0:
        return f"{count // 1024}k"
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{count / 1000:.0f}k"


def _format_rate(speed: float) -> str:
    return f"{speed:.1f}" if speed < 10 else f"{speed:.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _non_empty(*fields: str) -> list[str]:
    return [field for field in fields if field]


class StatusBar(Widget):
    """A warning has a word or a mark besides its colour."""

    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; }"
    stats: reactive[StatsSnapshot] = reactive(StatsSnapshot())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="status")
        self._glyphs = glyphs

    @property
    def line(self) -> str:
        return status_line(self.stats, self.size.width, self._glyphs, max_columns=max(1, self.size.width - 1))

    def render(self) -> Content:
        line = Content(f" {self.line}").highlight_regex(WARNING_PATTERN, style="$text-warning")
        bar = acceptance_bar(self.stats.acceptance, self._glyphs) if self.stats.acceptance else ""
        end = line.plain.find(bar)
        for character, colour in zip(self._glyphs.bar_parts, BAR_COLOURS, strict=True) if end >= 0 else ():
            start, end = end, end + bar.count(character)
            line = line.stylize(colour, start, end)
        return line

    def watch_stats(self, stats: StatsSnapshot) -> None:
        """The tooltip shows why the drafter was chosen."""
        self.tooltip = stats.reason or None
