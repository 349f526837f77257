"""The status bar: the last line of the screen. `live_stats.py` defines its values.

It has the words of the line under an answer; a key shows the other numbers in their place. Unknown values are left out,
and fields that do not fit are dropped from the right.
"""

import re

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specchat.chat.turn_summary import SEPARATOR, percent, speed_words
from specchat.drawing.glyphs import UNICODE, Glyphs
from specchat.tui.live_stats import AcceptanceShares, Phase, StatsSnapshot

FULL_CONTEXT_SHARE = 0.8
BAR_CELLS = 8
MIN_SHARE = 0.001  # below this, a part of the acceptance bar is absent
GIGABYTE, MEGABYTE = 2**30, 2**20
BAR_COLOURS = ("$text-success", "$text-error", "$text-muted")
WARNING_PATTERN = re.compile(r"\S+, slower|context \d+ % full|drafts paused")


def status_line(stats: StatsSnapshot, columns: int, glyphs: Glyphs = UNICODE, *, is_detailed: bool = False) -> str:
    """The line for so many columns; with `is_detailed`, that of the other numbers."""
    fields = [glyphs.drawn(field) for field in _fields(stats, glyphs, is_detailed=is_detailed) if field]
    while len(fields) > 1 and cell_len(glyphs.drawn(SEPARATOR).join(fields)) > columns:
        fields = fields[:-1]
    return glyphs.drawn(SEPARATOR).join(fields)[:columns]


def _fields(stats: StatsSnapshot, glyphs: Glyphs, *, is_detailed: bool) -> list[str]:
    if stats.phase is Phase.WAITING:
        progress = stats.progress
        return [progress.text, "Esc stops" if stats.is_answering else "", f"{progress.elapsed_seconds:.0f} s"]
    if is_detailed:
        return _detailed_fields(stats, glyphs)
    if not stats.variant:
        return [stats.model, "ready"]
    factor, rate = (None, None) if stats.is_speculation_paused else (stats.speedup, stats.acceptance_rate)
    words = speed_words(stats.tokens_per_second, factor, rate, "~" if stats.is_speedup_estimated else "")
    bar = acceptance_bar(stats.acceptance, glyphs) if stats.acceptance else ""
    paused = "drafts paused: they do not pay here" if stats.is_speculation_paused else ""
    return [stats.model or stats.variant, _full_context(stats), *words, paused or bar]


def acceptance_bar(shares: AcceptanceShares, glyphs: Glyphs) -> str:
    """Accepted and rejected draft tokens and steps without any, in a shape each; what occurs has at least one cell."""
    parts = [shares.accepted, shares.rejected, 1 - shares.accepted - shares.rejected]
    cells = [max(round(BAR_CELLS * share), int(share > MIN_SHARE)) for share in parts]
    while (excess := sum(cells) - BAR_CELLS) != 0:
        cells[cells.index(max(cells))] -= 1 if excess > 0 else -1
    return "".join(character * count for character, count in zip(glyphs.bar_parts, cells, strict=True))


def _detailed_fields(stats: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    drafter = f"{stats.variant}{glyphs.drafter_mark}{stats.drafter}" if stats.drafter else stats.variant
    session, window = stats.session_acceptance_rate, stats.context_window
    used = f"{_format_tokens(stats.context_tokens or 0)}/{_format_tokens(window)}" if window else ""
    return [
        drafter,
        f"{stats.draft_tokens} draft tokens" if stats.draft_tokens is not None else "",
        f"{stats.tokens_per_step:.1f} tokens/step" if stats.tokens_per_step is not None else "",
        f"context {used}" if used else "",
        f"first token {stats.ttft_seconds:.1f} s" if stats.ttft_seconds is not None else "",
        f"memory {format_bytes(stats.memory_bytes)}" if stats.memory_bytes else "",
        f"accepted {percent(session)} in all" if session is not None else "",
    ]


def _full_context(stats: StatsSnapshot) -> str:
    """A warning, where the context window is nearly full."""
    share = (stats.context_tokens or 0) / stats.context_window if stats.context_window else 0.0
    return f"context {percent(share)} full" if share >= FULL_CONTEXT_SHARE else ""


def format_bytes(byte_count: int) -> str:
    """For example: 1.2G, 92M."""
    return f"{byte_count / GIGABYTE:.1f}G" if byte_count >= GIGABYTE else f"{byte_count / MEGABYTE:.0f}M"


def _format_tokens(count: int) -> str:
    """3100 is 3.1k, 32768 is 32k."""
    if count < 1000:
        return str(count)
    if count % 1024 == 0:
        return f"{count // 1024}k"
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{count / 1000:.0f}k"


class StatusBar(Widget):
    """A warning has a word or a mark besides its colour."""

    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; }"
    stats: reactive[StatsSnapshot] = reactive(StatsSnapshot())
    is_detailed: reactive[bool] = reactive(False)

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="status")
        self._glyphs = glyphs

    @property
    def line(self) -> str:
        return status_line(self.stats, max(1, self.size.width - 1), self._glyphs, is_detailed=self.is_detailed)

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
