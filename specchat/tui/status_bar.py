"""The status bar: the last line of the screen."""

from __future__ import annotations

import re

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specchat.tui.glyphs import Glyphs
from specchat.tui.live_stats import StatsSnapshot
from specchat.tui.status_text import status_line

WARNING_PATTERN = re.compile(r"\S+ slow|ctx[^│|]*!|speculation paused")


class StatusBar(Widget):
    """Draws the line of `status_text.py`. A warning has a word or a mark besides its colour."""

    HELP = "Drafter, draft tokens of a step, acceptance rate, tokens per step, speed and speedup, context, memory."
    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; }"
    stats: reactive[StatsSnapshot] = reactive(StatsSnapshot())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="status")
        self._glyphs = glyphs

    @property
    def line(self) -> str:
        return status_line(self.stats, self.size.width, self._glyphs, max_columns=max(1, self.size.width - 1))

    def render(self) -> Content:
        line = Content(f" {self.line}")
        for match in WARNING_PATTERN.finditer(line.plain):
            line = line.stylize("$text-warning", match.start(), match.end())
        return line

    def watch_stats(self, stats: StatsSnapshot) -> None:
        """The tooltip shows why the drafter was chosen."""
        self.tooltip = stats.reason or None
